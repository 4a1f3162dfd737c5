"""The simplest thing that a host port can be tested against."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.counters import CauseCounters, cause_counts
from pequin.harness.pauses import PauseControl, Pauser
from pequin.host.types import HostCause
from pequin.ram import Ram
from pequin.tile.types import (
    BEAT_BITS,
    STAMP_BITS,
    ControlKind,
    ErrorCode,
    EventKind,
    Memory,
    StepItem,
    TileAccess,
    TileAnswer,
    TileControl,
    TileEvent,
)

STUB_BEATS = 1024
"""Beats of each memory; an access beyond is refused."""

BROKEN_BEAT = 1000
"""Beat of HBM whose reads have an ECC error."""

STOP_CLOCKS = 8
"""Clocks from a STOP to its event."""

MAX_COLUMNS = 64
"""Columns of a step's table."""


class StubMemory(wiring.Component):
    """Seven memories in one RAM (plusargs `+stub.load=`, `+stub.dump=`).

    Members
    -------
    accesses : In(stream of TileAccess), answers : Out(stream of TileAnswer)
    pause : In(1)
        No access is taken.
    """

    accesses: Any
    answers: Any
    pause: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "accesses": In(stream.Signature(TileAccess)),
                "answers": Out(stream.Signature(TileAnswer)),
                "pause": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.ram = ram = Ram(width=BEAT_BITS, depth=8 * STUB_BEATS, name="stub")
        access, held, write = self.accesses.payload, Signal(), Signal()
        error: Any = Signal(ErrorCode)
        taken, outside = Signal(), access.address >= STUB_BEATS
        place = Cat(access.address[: STUB_BEATS.bit_length() - 1], Value.cast(access.memory)[:3])
        hbm = access.memory == Memory.HBM
        m.d.comb += [
            self.accesses.ready.eq(~self.pause & (~held | self.answers.ready)),
            taken.eq(self.accesses.valid & self.accesses.ready),
            ram.read_en.eq(taken),
            ram.read_addr.eq(place),
            ram.write_en.eq(taken & access.write & ~outside),
            ram.write_addr.eq(place),
            ram.write_data.eq(access.data),
            self.answers.valid.eq(held),
            self.answers.payload.error.eq(error),
        ]
        with m.If((error == ErrorCode.NONE) & ~write):
            m.d.comb += self.answers.payload.data.eq(ram.read_data)
        with m.If(taken):
            m.d.sync += [held.eq(1), write.eq(access.write), error.eq(ErrorCode.NONE)]
            with m.If(outside):
                m.d.sync += error.eq(Mux(hbm, ErrorCode.HBM_ADDRESS, ErrorCode.ACCESS))
            with m.Elif(hbm & ~access.write & (access.address == BROKEN_BEAT)):
                m.d.sync += error.eq(ErrorCode.HBM_ECC)
        with m.Elif(self.answers.ready):
            m.d.sync += held.eq(0)
        return m


class _Event:
    """The fields of a `TileEvent` that a program fills."""

    def __init__(self) -> None:
        self.kind: Any = Signal(EventKind, name="event_kind")
        self.code, self.pc = Signal(16, name="event_code"), Signal(16, name="event_pc")
        self.value, self.detail = Signal(32, name="event_value"), Signal(32, name="event_detail")

    def fields(self) -> Value:
        """Return all but the stamp, in the order of `TileEvent`."""
        unit = Const(0, 4)
        return Cat(self.kind.as_value(), unit, self.code, self.pc, self.value, self.detail)


class StubProgram(wiring.Component):
    """A program that answers each step with a TOKEN for each column and a DONE.

    TOKEN: `code` is the column in bits [15:8], `value` its token plus one, `detail` the sum of its
    fields. DONE: `value` is the number of columns. START while it runs is refused with BUSY, STOP
    ends it with STOPPED; CLEAR counts.

    Members
    -------
    steps : In(stream of StepItem), control : In(stream of TileControl)
    events : Out(stream of TileEvent)
    hold : In(1)
        No step is taken.
    pause : In(1)
        Nothing is taken.
    stopping : Out(1)
    running : Out(1)
    pc : Out(16), clears : Out(8)
        The last START's; how many CLEARs have come.
    """

    steps: Any
    control: Any
    events: Any
    hold: Any
    pause: Any
    stopping: Any
    running: Any
    pc: Any
    clears: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "steps": In(stream.Signature(StepItem)),
                "control": In(stream.Signature(TileControl)),
                "events": Out(stream.Signature(TileEvent)),
                "hold": In(1),
                "pause": In(1),
                "stopping": Out(1),
                "running": Out(1),
                "pc": Out(16),
                "clears": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFO(width=TileEvent.as_shape().size, depth=4)
        event = _Event()
        stamp, column, count = Signal(STAMP_BITS), Signal(8), Signal(8)
        order, item = self.control.payload, self.steps.payload
        left, tell = Signal(range(STOP_CLOCKS)), Signal()
        token, total = self._table(m, column)
        m.d.sync += stamp.eq(stamp + 1)
        m.d.comb += [
            queue.w_data.eq(Cat(event.fields(), stamp)),
            Value.cast(self.events.payload).eq(queue.r_data),
            self.events.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.events.ready),
            queue.w_en.eq(tell & queue.w_rdy),
        ]
        with m.FSM(name="program"):
            with m.State("IDLE"):
                with m.If(self.control.valid & ~self.pause):
                    self._order(m, event, queue, tell)
                    m.d.sync += left.eq(STOP_CLOCKS - 1)
                    with m.If(order.kind == ControlKind.STOP):
                        m.next = "STOP"
                with m.Elif(self.running & ~self.hold & ~self.pause):
                    m.d.comb += self.steps.ready.eq(1)
                    m.d.sync += [column.eq(0), count.eq(item.value)]
                    with m.If(self.steps.valid & item.commit):
                        m.next = "TOKENS"
            with m.State("TOKENS"):
                last = column == count
                m.d.comb += [
                    tell.eq(1),
                    event.kind.eq(Mux(last, EventKind.DONE, EventKind.TOKEN)),
                    event.code.eq(Mux(last, 0, column << 8)),
                    event.value.eq(Mux(last, count, token + 1)),
                    event.detail.eq(Mux(last, 0, total)),
                ]
                with m.If(queue.w_rdy):
                    m.d.sync += column.eq(column + 1)
                    with m.If(last):
                        m.next = "IDLE"
                with m.If(self.control.valid & (order.kind == ControlKind.STOP)):
                    m.next = "IDLE"
            with m.State("STOP"):
                m.d.comb += [
                    self.stopping.eq(1),
                    event.kind.eq(EventKind.ERROR),
                    event.code.eq(ErrorCode.STOPPED.value),
                    tell.eq(left == 0),
                ]
                m.d.sync += [self.running.eq(0), left.eq(Mux(left == 0, 0, left - 1))]
                with m.If(queue.w_en):
                    m.next = "IDLE"
        return m

    def _order(self, m: Module, event: Any, queue: Any, tell: Signal) -> None:
        order = self.control.payload
        m.d.comb += self.control.ready.eq(1)
        with m.Switch(order.kind):
            with m.Case(ControlKind.START):
                with m.If(self.running):
                    m.d.comb += [
                        tell.eq(1),
                        event.kind.eq(EventKind.ERROR),
                        event.code.eq(ErrorCode.BUSY.value),
                        event.pc.eq(order.pc),
                        self.control.ready.eq(queue.w_rdy),
                    ]
                with m.Else():
                    m.d.sync += [self.running.eq(1), self.pc.eq(order.pc)]
            with m.Case(ControlKind.CLEAR):
                m.d.sync += self.clears.eq(self.clears + 1)

    def _table(self, m: Module, column: Signal) -> tuple[Value, Value]:
        """Keep token and sum of fields of each column; return those of `column`."""
        item, sums = self.steps.payload, Signal(32)
        tokens: Any = memory.Memory(shape=64, depth=MAX_COLUMNS, init=[])
        m.submodules.tokens = tokens
        into, out = tokens.write_port(), tokens.read_port(domain="comb")
        token, total = Signal(32), Signal(32)
        m.d.comb += [
            total.eq(Mux(item.field == 0, 0, sums) + item.value),
            into.addr.eq(item.column),
            into.data.eq(Cat(token, total)),
            into.en.eq(self.steps.valid & self.steps.ready & ~item.commit),
            out.addr.eq(column),
        ]
        with m.If(into.en):
            m.d.sync += sums.eq(total)
            with m.If(item.field == 1):
                m.d.sync += token.eq(item.value)
        return out.data[:32], out.data[32:]


class StubTile(wiring.Component):
    """A host port and a stub behind it.

    Parameters
    ----------
    port
        The host port.

    Members
    -------
    rx : In(stream of LinkWord), tx : Out(stream of LinkWord)
    access_pauses, order_pauses, event_pauses : In(PauseControl)
        Random pauses of the stub's memories, of its program, of its events.
    hold, running, pc, clears
        As `StubProgram`.
    clocks : Out(48), counts : Out(cause_counts(HostCause))
        Clocks since reset, and those of the port by cause.
    """

    rx: Any
    tx: Any
    access_pauses: Any
    order_pauses: Any
    event_pauses: Any
    hold: Any
    running: Any
    pc: Any
    clears: Any
    clocks: Any
    counts: Any

    def __init__(self, port: wiring.Component) -> None:
        self._port = port
        members = port.signature.members
        super().__init__(
            {
                "rx": members["rx"],
                "tx": members["tx"],
                "access_pauses": In(PauseControl),
                "order_pauses": In(PauseControl),
                "event_pauses": In(PauseControl),
                "hold": In(1),
                "running": Out(1),
                "pc": Out(16),
                "clears": Out(8),
                "clocks": Out(48),
                "counts": Out(cause_counts(HostCause)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.port = self._port
        port: Any = self._port
        m.submodules.memory = memory_ = StubMemory()
        m.submodules.program = program = StubProgram()
        wiring.connect(m, wiring.flipped(self.rx), port.rx)
        wiring.connect(m, port.tx, wiring.flipped(self.tx))
        wiring.connect(m, port.accesses, memory_.accesses)
        wiring.connect(m, memory_.answers, port.answers)
        wiring.connect(m, port.steps, program.steps)
        wiring.connect(m, port.control, program.control)
        started = Signal()
        m.d.sync += started.eq(1)
        pauses = {}
        for name in ("access", "order", "event"):
            m.submodules[f"{name}_pauser"] = pauser = Pauser()
            m.d.comb += [
                pauser.control.eq(getattr(self, f"{name}_pauses")),
                pauser.start.eq(~started),
                pauser.draw.eq(1),
            ]
            pauses[name] = pauser.pause
        m.d.comb += [
            memory_.pause.eq(pauses["access"]),
            program.pause.eq(pauses["order"]),
            port.events.payload.eq(program.events.payload),
            port.events.valid.eq(program.events.valid & ~pauses["event"]),
            program.events.ready.eq(port.events.ready & ~pauses["event"]),
            port.stopping.eq(program.stopping),
            program.hold.eq(self.hold),
            self.running.eq(program.running),
            self.pc.eq(program.pc),
            self.clears.eq(program.clears),
        ]
        m.d.sync += self.clocks.eq(self.clocks + 1)
        m.submodules.counters = counters = CauseCounters(HostCause)
        m.d.comb += [counters.cause.eq(port.cause), self.counts.eq(counters.counts)]
        return m
