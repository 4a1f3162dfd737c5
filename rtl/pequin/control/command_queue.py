"""The queue in front of a unit: register writes and launches in, commands out."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.control.in_flight import InFlight
from pequin.control.isa import COUNT_REGISTER, LEVELS, LaunchWord
from pequin.control.loops import LoopCounter, StridedWords
from pequin.control.types import QueueCause
from pequin.errors import ConfigError
from pequin.tile.types import (
    COMMAND_WORDS,
    PC_BITS,
    SEMAPHORES,
    STRIDED_WORDS,
    ErrorCode,
    QueueItem,
    TakeRequest,
    UnitFault,
    UnitId,
    unit_words,
)


class CommandQueue(wiring.Component):
    """Keep a unit's registers, expand its launches, wait for and signal its semaphores.

    Register writes are carried out in the order of the queue, one per clock, as long as no launch
    is at work or its last command waits to be handed over. A launch hands over its first command
    two clocks after it has entered an empty queue, and then one per clock as long as the unit is
    ready, semaphores are there and fewer than 16 commands are in flight. A launch behind it
    follows without a gap.

    Waits are taken before the first or before each command, both at once, also while the unit is
    not ready. A completion signals in its own clock. A launch with a level of no iterations
    waits like a command, and until the commands before it have completed; then it is a fault,
    and the queue stands still until it is reset.

    *Timing*: `command.valid` depends on `taken`, and `signal_valid` on `done`, in the same clock;
    everything else comes from registers. A reset clears queue and registers; it takes four clocks
    afterwards until the first item is carried out.

    Parameters
    ----------
    unit
        The unit; it gives words and strided words.
    params
        The tile's parameters: `queue_items`.

    Members
    -------
    items : In(stream of QueueItem)
        Registers that do not exist are ignored.
    command : Out(stream of unit_words(unit))
    done : In(1)
        The oldest command in flight has completed; not in the clock of its handing over.
    take : Out(TakeRequest), take_valid : Out(1), taken : In(1), lacks : In(5)
        As a user of `Semaphores`.
    signal : Out(5), signal_valid : Out(1)
        As a user of `Semaphores`.
    signal_pc : Out(PC_BITS)
        Program counter of the command that signalled in the clock before.
    pc : Out(PC_BITS)
        Program counter of the oldest command in flight, or of the launch at work, or of the last.
    pending : Out(1)
        Something is queued, at work or in flight.
    moved : Out(1)
        An item was carried out, or a command handed over or completed.
    waiting : Out(1), waiting_for : Out(5)
        The command to be handed over waits for this semaphore.
    fault : Out(UnitFault), fault_valid : Out(1)
        Pulse, of a launch without iterations.
    cause : Out(QueueCause)

    Raises
    ------
    ConfigError
        The unit has no command queue.
    """

    items: Any
    command: Any
    done: Any
    take: Any
    take_valid: Any
    taken: Any
    lacks: Any
    signal: Any
    signal_valid: Any
    signal_pc: Any
    pc: Any
    pending: Any
    moved: Any
    waiting: Any
    waiting_for: Any
    fault: Any
    fault_valid: Any
    cause: Any

    def __init__(self, unit: UnitId, params: TileParams) -> None:
        if unit not in COMMAND_WORDS:
            raise ConfigError(f"{unit} has no command queue")
        self._unit, self._params = unit, params
        number = range(SEMAPHORES)
        super().__init__(
            {
                "items": In(stream.Signature(QueueItem)),
                "command": Out(stream.Signature(unit_words(unit))),
                "done": In(1),
                "take": Out(TakeRequest),
                "take_valid": Out(1),
                "taken": In(1),
                "lacks": In(number),
                "signal": Out(number),
                "signal_valid": Out(1),
                "signal_pc": Out(PC_BITS),
                "pc": Out(PC_BITS),
                "pending": Out(1),
                "moved": Out(1),
                "waiting": Out(1),
                "waiting_for": Out(number),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "cause": Out(QueueCause),
            }
        )

    @property
    def unit(self) -> UnitId:
        """The unit."""
        return self._unit

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._active, self._stuck = Signal(name="active"), Signal(name="stuck")
        self._launch: Any = Signal(LaunchWord, name="launch")
        self._launch_pc = Signal(PC_BITS, name="launch_pc")
        self._handed = Signal(name="handed")
        self._free = Signal(name="free")
        m.submodules.loops = self._loops = LoopCounter()
        m.submodules.strided = self._strided = StridedWords(words=len(STRIDED_WORDS[self._unit]))
        m.submodules.in_flight = self._flight = InFlight()
        self._last = self._loops.level == 0
        self._accept(m)
        self._write(m)
        self._advance(m)
        self._issue(m)
        self._complete(m)
        self._refuse(m)
        self._explain(m)
        return m

    def _accept(self, m: Module) -> None:
        """Take the next item when its turn has come."""
        width = len(Value.cast(self.items.payload))
        m.submodules.fifo = inner = fifo.SyncFIFO(
            width=width, depth=self._params.config.queue_items
        )
        self._item: Any = Signal(QueueItem, name="item")
        self._taking = Signal(name="taking")
        ends = ~self._active | (self._last & self._handed)
        may = Mux(self._item.launch, ends, ~self._active | self._last)
        m.d.comb += [
            inner.w_data.eq(Value.cast(self.items.payload)),
            inner.w_en.eq(self.items.valid),
            self.items.ready.eq(inner.w_rdy),
            Value.cast(self._item).eq(inner.r_data),
            self._taking.eq(inner.r_rdy & may & self._strided.cleared & ~self._stuck),
            inner.r_en.eq(self._taking),
        ]
        self._queued = inner.r_rdy

    def _write(self, m: Module) -> None:
        """Carry out a register write; plain words have a copy for the command at work."""
        item, strided = self._item, STRIDED_WORDS[self._unit]
        writes = self._taking & ~item.launch
        level, place = item.register[4:], item.register[:4]
        self._begins = Signal(name="begins")
        m.d.comb += [
            self._begins.eq(self._taking & item.launch),
            self._loops.write.eq(writes & (place == COUNT_REGISTER)),
            self._loops.write_level.eq(Mux(level <= LEVELS, level, 0)),
            self._loops.value.eq(item.value),
            self._strided.place.eq(level),
            self._strided.value.eq(item.value),
        ]
        for number, word in enumerate(strided):
            m.d.comb += [
                self._strided.write[number].eq(writes & (level <= LEVELS) & (place == word)),
                self.command.payload[word].eq(self._strided.current[number]),
            ]
        for word in sorted(set(range(COMMAND_WORDS[self._unit])) - set(strided)):
            value = Signal(32, name=f"word_{word}")
            given = Signal(32, name=f"given_{word}")
            with m.If(writes & (item.register == word)):
                m.d.sync += value.eq(item.value)
            with m.If(self._begins):
                m.d.sync += given.eq(value)
            m.d.comb += self.command.payload[word].eq(given)

    def _advance(self, m: Module) -> None:
        """Begin a launch, or go on to its next command."""
        begun: Any = Signal(LaunchWord, name="begun")
        loops, strided = self._loops, self._strided
        m.d.comb += [
            Value.cast(begun).eq(self._item.value),
            loops.load.eq(self._begins),
            loops.levels.eq(begun.levels),
            loops.step.eq(self._handed),
            strided.level.eq(loops.level),
            strided.advance.eq(self._begins | (self._handed & ~self._last)),
        ]
        with m.If(self._begins):
            m.d.sync += [
                self._active.eq(1),
                self._launch.eq(begun),
                self._launch_pc.eq(self._item.pc),
            ]
        with m.Elif(self._handed & self._last):
            m.d.sync += self._active.eq(0)

    def _issue(self, m: Module) -> None:
        """Take the semaphores of the command at work, then hand it over."""
        launch, take = self._launch, self.take
        begun: Any = Signal(LaunchWord, name="begun_waits")
        m.d.comb += [
            Value.cast(begun).eq(self._item.value),
            take.first.eq(launch.wait_a.number),
            take.second.eq(launch.wait_b.number),
            self.take_valid.eq(take.use_first | take.use_second),
            self._free.eq(~self.take_valid | self.taken),
            self.command.valid.eq(
                self._active & self._free & self._flight.room & ~self._loops.none
            ),
            self._handed.eq(self.command.valid & self.command.ready),
            self.waiting.eq(self.take_valid & ~self.taken),
            self.waiting_for.eq(self.lacks),
        ]
        needs = Signal(name="needs_a"), Signal(name="needs_b")
        m.d.comb += [take.use_first.eq(needs[0]), take.use_second.eq(needs[1])]
        waits = ((launch.wait_a, begun.wait_a), (launch.wait_b, begun.wait_b))
        for need, (wait, first) in zip(needs, waits, strict=True):
            with m.If(self._begins):
                m.d.sync += need.eq(first.use)
            with m.Elif(self._handed):
                m.d.sync += need.eq(wait.use & wait.each & ~self._last)
            with m.Elif(self.taken):
                m.d.sync += need.eq(0)

    def _complete(self, m: Module) -> None:
        """Remember what is in flight; signal what has completed."""
        launch, flight = self._launch, self._flight
        m.d.comb += [
            flight.push.eq(self._handed),
            flight.record.pc.eq(self._launch_pc),
            flight.record.signals.eq(launch.signal.use & (launch.signal.each | self._last)),
            flight.record.number.eq(launch.signal.number),
            flight.pop.eq(self.done),
            self.signal.eq(flight.oldest.number),
            self.signal_valid.eq(self.done & flight.any & flight.oldest.signals),
            self.pc.eq(Mux(flight.any, flight.oldest.pc, self._launch_pc)),
            self.pending.eq(self._queued | self._active | flight.any),
        ]
        m.d.sync += self.signal_pc.eq(flight.oldest.pc)

    def _refuse(self, m: Module) -> None:
        """Tell of a launch without iterations, once its turn has come."""
        refused = self._active & self._loops.none & self._free & ~self._flight.any & ~self._stuck
        with m.If(refused):
            m.d.sync += self._stuck.eq(1)
        m.d.sync += self.fault_valid.eq(refused)
        m.d.comb += [
            self.fault.code.eq(ErrorCode.COMMAND),
            self.fault.detail.eq(self.command.payload[0]),
        ]

    def _explain(self, m: Module) -> None:
        m.d.comb += self.moved.eq(Cat(self._handed, self._taking, self.done).any())
        with m.If(self._handed):
            m.d.comb += self.cause.eq(QueueCause.ISSUE)
        with m.Elif(self.waiting):
            m.d.comb += self.cause.eq(QueueCause.SEMAPHORE)
        with m.Elif(self._taking):
            m.d.comb += self.cause.eq(QueueCause.SET)
        with m.Elif(self._active):
            m.d.comb += self.cause.eq(QueueCause.UNIT)
        with m.Else():
            m.d.comb += self.cause.eq(QueueCause.EMPTY)
