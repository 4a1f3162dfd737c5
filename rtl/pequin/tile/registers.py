"""The register memory: what the host reads about a tile, and the few settings it writes."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.counters import COUNTER_BITS
from pequin.errors import ConfigError
from pequin.hbm.types import RefreshMode
from pequin.tile.types import (
    BEAT_BITS,
    SEMAPHORES,
    ErrorCode,
    beat_access,
    beat_answer,
)

IDENTITY_BEAT, STATUS_BEAT, SEMAPHORE_BEAT, SETTINGS_BEAT, COUNTER_BEAT = 0, 1, 2, 3, 4
"""Beats of the register memory; the counters follow from `COUNTER_BEAT` on, four to a beat."""

MAGIC = 0x4E515150
"""Word 0 of the identity: PQQN, least significant byte first."""

VERSION = 1
"""Word 1 of the identity: the layout of this memory."""

IDENTITY = (
    "magic",
    "version",
    "columns",
    "lanes",
    "vector_elements",
    "kv_beats",
    "program_words",
    "counters",
)
"""Words of the identity beat."""

STATUS = ("state", "pc", "error", "error_pc", "error_detail", "stamp_low", "stamp_high", "waiting")
"""Words of the status beat.

state: bit 0 the sequencer runs, 1 the tile is stopping, 2 units have work, 3 the sequencer waits
for a STEP. error: code [7:0] and unit [11:8] of the last stop. waiting: bit u is set when unit u
waits for a semaphore.
"""

SETTINGS = ("watchdog", "refresh", "hold")
"""Words of the settings beat: the watchdog's limit (clocks, 0 is off); `RefreshMode`; whether all
counters stand still, so that the beats of them that are read are of one clock."""

WATCHDOG_CLOCKS = 1 << 16
"""The watchdog's limit after reset."""


def register_beats(counters: int) -> int:
    """Return the size of the register memory (beats)."""
    return COUNTER_BEAT + -(-counters // 4)


class Registers(wiring.Component):
    """Answer the host's accesses to identity, status, semaphores, settings and counters.

    Only the settings are writable; a write to another beat has no effect and is answered with
    `ErrorCode.ACCESS`. All words of a beat are of the same clock.

    *Timing*: an answer comes two clocks after its access.

    Parameters
    ----------
    params
        The tile's parameters.
    counters
        Counters.

    Members
    -------
    access : In(stream of beat_access()), answer : Out(stream of beat_answer())
    status : In(32).array(8)
        As `STATUS`.
    semaphores : In(8).array(SEMAPHORES)
    counter : In(COUNTER_BITS).array(counters)
    watchdog : Out(32), refresh : Out(RefreshMode), hold : Out(1)
        Settings.

    Raises
    ------
    ConfigError
        There is no counter.
    """

    access: Any
    answer: Any
    status: Any
    semaphores: Any
    counter: Any
    watchdog: Any
    refresh: Any
    hold: Any

    def __init__(self, params: TileParams, *, counters: int) -> None:
        if counters < 1:
            raise ConfigError(f"registers need at least one counter, not {counters}")
        self._params, self._counters = params, counters
        super().__init__(
            {
                "access": In(stream.Signature(beat_access())),
                "answer": Out(stream.Signature(beat_answer())),
                "status": In(32).array(len(STATUS)),
                "semaphores": In(8).array(SEMAPHORES),
                "counter": In(COUNTER_BITS).array(counters),
                "watchdog": Out(32, init=WATCHDOG_CLOCKS),
                "refresh": Out(RefreshMode, init=RefreshMode.PER_BANK),
                "hold": Out(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def beats(self) -> int:
        """Size of the memory (beats)."""
        return register_beats(self._counters)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        chosen, beat = Signal(BEAT_BITS), Signal(BEAT_BITS)
        busy, looked_up, refused = Signal(), Signal(), Signal()
        held: Any = Signal(beat_access())
        settings = held.write & (held.address == SETTINGS_BEAT)
        m.d.comb += [
            self.access.ready.eq(~busy),
            self.answer.valid.eq(looked_up),
            self.answer.payload.data.eq(beat),
        ]
        with m.If(refused):
            m.d.comb += self.answer.payload.error.eq(ErrorCode.ACCESS)
        with m.If(~busy):
            m.d.sync += [busy.eq(self.access.valid), held.eq(self.access.payload)]
        with m.Elif(~looked_up):
            m.d.sync += [
                looked_up.eq(1),
                beat.eq(chosen),
                refused.eq(held.write & ~settings),
            ]
            with m.If(settings):
                m.d.sync += [
                    self.watchdog.eq(held.data[:32]),
                    self.refresh.eq(RefreshMode(held.data[32:34])),
                    self.hold.eq(held.data[64]),
                ]
        with m.Elif(self.answer.ready):
            m.d.sync += [busy.eq(0), looked_up.eq(0)]
        with m.Switch(held.address[: self.beats.bit_length()]):
            for number, content in enumerate(self._beats()):
                with m.Case(number):
                    m.d.comb += chosen.eq(content)
        return m

    def _beats(self) -> list[Value]:
        c = self._params.config
        sizes = (c.columns, c.lanes, c.vector_elements, c.kv_beats, c.program_words)
        identity = (MAGIC, VERSION, *sizes, self._counters)
        settings = Cat(self.watchdog, self.refresh.as_value(), Const(0, 30), self.hold)
        wide = [Cat(count, Const(0, 64 - COUNTER_BITS)) for count in self.counter]
        return [
            Cat(Const(word, 32) for word in identity),
            Cat(self.status[i] for i in range(len(STATUS))),
            Cat(self.semaphores[i] for i in range(SEMAPHORES)),
            settings,
            *(Cat(wide[i : i + 4]) for i in range(0, len(wide), 4)),
        ]
