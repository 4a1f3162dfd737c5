"""How the tile stops: the first fault, the draining of HBM reads, the clearing of the units."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.tile.types import (
    PC_BITS,
    ControlKind,
    ErrorCode,
    EventKind,
    TileControl,
    TileEvent,
    UnitFault,
    UnitId,
)

CLEAR_CLOCKS = 4
"""Clocks for which the units are held in reset."""


class FaultSource(data.Struct):
    """A fault with the unit and the program counter it belongs to."""

    unit: UnitId
    pc: PC_BITS
    fault: UnitFault


class Stopper(wiring.Component):
    """Stop the tile at the first fault; tell it once; make the units ready for a new start.

    The order: freeze the sequencer and the queues, let HBM reads under way end, clear the units,
    send the ERROR event. Later faults of the same stop are dropped. Of faults in one clock the
    one with the lowest number counts.

    Parameters
    ----------
    sources
        Number of fault sources.

    Members
    -------
    source : In(FaultSource).array(sources), source_valid : In(1).array(sources)
    drained : In(1)
        No HBM read of the units is on its way.
    freeze : Out(1)
        Hold the sequencer and the queues in reset; pass no HBM request.
    clear : Out(1)
        Hold the units in reset.
    event : Out(stream of TileEvent)
    last : Out(FaultSource)
        The fault that stopped the tile last; its code is NONE when none did.

    Raises
    ------
    ConfigError
        There is no source.
    """

    source: Any
    source_valid: Any
    drained: Any
    freeze: Any
    clear: Any
    event: Any
    last: Any

    def __init__(self, *, sources: int) -> None:
        if sources < 1:
            raise ConfigError(f"a stopper needs at least one fault source, not {sources}")
        self._sources = sources
        super().__init__(
            {
                "source": In(FaultSource).array(sources),
                "source_valid": In(1).array(sources),
                "drained": In(1),
                "freeze": Out(1),
                "clear": Out(1),
                "event": Out(stream.Signature(TileEvent)),
                "last": Out(FaultSource),
            }
        )

    @property
    def sources(self) -> int:
        """Number of fault sources."""
        return self._sources

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        first: Any = Signal(FaultSource)
        any_fault = Signal()
        for i in reversed(range(self._sources)):
            with m.If(self.source_valid[i]):
                m.d.comb += [first.eq(self.source[i]), any_fault.eq(1)]
        left = Signal(range(CLEAR_CLOCKS))
        event = self.event.payload
        m.d.comb += [
            event.kind.eq(EventKind.ERROR),
            event.unit.eq(self.last.unit),
            event.pc.eq(self.last.pc),
            event.code.eq(self.last.fault.code.as_value()),
            event.detail.eq(self.last.fault.detail),
        ]
        with m.FSM(name="stop"):
            with m.State("RUN"):
                m.d.sync += left.eq(CLEAR_CLOCKS - 1)
                with m.If(any_fault):
                    m.d.sync += [self.last.eq(first), self.freeze.eq(1)]
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                # `freeze` closes the guards one clock later: a request of this very clock counts.
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.next = "DRAINED"
            with m.State("DRAINED"):
                m.d.sync += left.eq(CLEAR_CLOCKS - 1)
                with m.If(self.drained):
                    m.d.sync += self.clear.eq(1)
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.d.sync += self.clear.eq(0)
                    m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += self.event.valid.eq(1)
                with m.If(self.event.ready):
                    m.d.sync += self.freeze.eq(0)
                    m.next = "RUN"
        return m


class Watchdog(wiring.Component):
    """Tell when the tile has work but nothing has moved for too long.

    Members
    -------
    active : In(1)
        There is work, and nobody outside holds it up.
    moved : In(1)
        Something moved in this clock.
    limit : In(32)
        Clocks without movement that are allowed; 0 turns the watchdog off.
    bite : Out(1)
        Pulse: the limit is exceeded; `limit` + 3 clocks after the last movement.
    """

    active: Any
    moved: Any
    limit: Any
    bite: Any

    def __init__(self) -> None:
        super().__init__({"active": In(1), "moved": In(1), "limit": In(32), "bite": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        still = Signal(32)
        reached = Signal()
        quiet = self.active & ~self.moved & ~self.bite
        # The limit may be lowered below what was counted.
        m.d.sync += [
            reached.eq(quiet & ~reached & (still >= self.limit) & self.limit.any()),
            self.bite.eq(reached & quiet),
        ]
        with m.If(~quiet):
            m.d.sync += still.eq(0)
        with m.Elif(~reached):
            m.d.sync += still.eq(still + 1)
        return m


class Starter(wiring.Component):
    """The host's orders: start, stop, clear the counters.

    A START waits until the units have ended what an earlier program left them, and until the tile
    has stopped; orders after it need not wait. While a program runs, or another START waits, it is
    refused. A STOP drops the START that waits.

    Members
    -------
    control : In(stream of TileControl)
    running : In(1), pending : In(1), frozen : In(1)
        The sequencer runs; units have work; the tile is stopping.
    start : Out(1), start_pc : Out(PC_BITS)
        Pulse: semaphores are cleared and the sequencer starts.
    clear_counters : Out(1)
    stop : Out(FaultSource), stop_valid : Out(1)
    refusal : Out(stream of TileEvent)
    """

    control: Any
    running: Any
    pending: Any
    frozen: Any
    start: Any
    start_pc: Any
    clear_counters: Any
    stop: Any
    stop_valid: Any
    refusal: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "control": In(stream.Signature(TileControl)),
                "running": In(1),
                "pending": In(1),
                "frozen": In(1),
                "start": Out(1),
                "start_pc": Out(PC_BITS),
                "clear_counters": Out(1),
                "stop": Out(FaultSource),
                "stop_valid": Out(1),
                "refusal": Out(stream.Signature(TileEvent)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        control, event = self.control, self.refusal.payload
        order = control.payload
        waiting, started, refusing = Signal(), Signal(), Signal()
        refused_pc = Signal(PC_BITS)
        m.d.comb += [
            event.kind.eq(EventKind.ERROR),
            event.code.eq(ErrorCode.BUSY.value),
            event.pc.eq(refused_pc),
            self.refusal.valid.eq(refusing),
            self.stop.unit.eq(UnitId.SEQ),
            self.stop.fault.code.eq(ErrorCode.STOPPED),
            self.start.eq(waiting & ~self.pending & ~self.frozen & ~self.stop_valid),
        ]
        m.d.sync += started.eq(self.start)
        with m.If(self.start | self.stop_valid):
            m.d.sync += waiting.eq(0)
        with m.If(self.refusal.ready):
            m.d.sync += refusing.eq(0)
        with m.Switch(order.kind):
            with m.Case(ControlKind.START):
                m.d.comb += control.ready.eq(~self.frozen & ~refusing)
                with m.If(control.valid & control.ready):
                    # `running` follows `start` by a clock.
                    with m.If(self.running | started | waiting):
                        m.d.sync += [refusing.eq(1), refused_pc.eq(order.pc)]
                    with m.Else():
                        m.d.sync += [waiting.eq(1), self.start_pc.eq(order.pc)]
            with m.Case(ControlKind.STOP):
                m.d.comb += [
                    self.stop_valid.eq(control.valid & ~self.frozen),
                    control.ready.eq(~self.frozen),
                ]
            with m.Default():
                m.d.comb += [
                    self.clear_counters.eq(control.valid & (order.kind == ControlKind.CLEAR)),
                    control.ready.eq(1),
                ]
        return m
