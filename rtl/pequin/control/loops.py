"""The loops of a launch: how often, and what a command's strided words are."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from pequin.control.isa import LEVELS
from pequin.errors import ConfigError

_PLACES = LEVELS + 1
"""Level 0, the launch itself, and the loop levels."""


class LoopCounter(wiring.Component):
    """Count the commands of a launch with up to three loop levels.

    *Timing*: `level` and `none` are functions of registers; `load` and `step` take effect at the
    end of the clock. After a reset the iterations are 1.

    Members
    -------
    write : In(1), write_level : In(2), value : In(32)
        Set the iterations of a level, 1 to 3.
    load : In(1), levels : In(2)
        Begin with the first command.
    step : In(1)
        Go on to the next command.
    level : Out(2)
        The loop that goes on with the next command; 0: this is the last command, or there is none.
    none : Out(1)
        A level of the launch has no iterations.
    """

    write: Any
    write_level: Any
    value: Any
    load: Any
    levels: Any
    step: Any
    level: Any
    none: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "write": In(1),
                "write_level": In(range(_PLACES)),
                "value": In(32),
                "load": In(1),
                "levels": In(range(_PLACES)),
                "step": In(1),
                "level": Out(range(_PLACES)),
                "none": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        empties, lasts = [], []
        for level in range(1, _PLACES):
            limit = Signal(32, name=f"limit_{level}")
            single, empty = Signal(init=1, name=f"single_{level}"), Signal(name=f"empty_{level}")
            left = Signal(32, name=f"left_{level}")
            last = Signal(init=1, name=f"last_{level}")
            with m.If(self.write & (self.write_level == level)):
                m.d.sync += [
                    limit.eq(self.value - 1),
                    single.eq(self.value == 1),
                    empty.eq(self.value == 0),
                ]
            with m.If(self.load):
                m.d.sync += [left.eq(limit), last.eq(single | (self.levels < level))]
            with m.Elif(self.step & (self.level == level)):
                m.d.sync += [left.eq(left - 1), last.eq(left == 1)]
            if level < LEVELS:
                with m.Elif(self.step & (self.level > level)):
                    m.d.sync += [left.eq(limit), last.eq(single)]
            empties.append(empty & (self.levels >= level))
            lasts.append(last)
        with m.If(self.load):
            m.d.sync += self.none.eq(Cat(empties).any())
        outermost: Any = 0
        for level in range(LEVELS, 0, -1):
            outermost = Mux(lasts[level - 1], outermost, level)
        m.d.comb += self.level.eq(outermost)
        return m


class StridedWords(wiring.Component):
    """Words of a command that loops step: base, strides, and the present value.

    The values at the start of each running loop are kept in a memory beside the bases. A start
    that equals that of a loop further out is not copied: `start_of` says where it is.

    *Timing*: one step per clock. A written base or stride counts from the next clock on. After a
    reset the first four clocks set everything to zero; `cleared` tells the end of it.

    Parameters
    ----------
    words
        Number of words, at least 1.

    Members
    -------
    write : In(words), place : In(2), value : In(32)
        A bit for each word: set its base (place 0) or the stride of a level (1 to 3). Not while a
        loop goes on.
    advance : In(1), level : In(2)
        Go on: level 0 loads the bases, levels 1 to 3 step that loop and restart the inner ones.
    current : Out(32).array(words)
    cleared : Out(1)

    Raises
    ------
    ConfigError
        There is no word.
    """

    write: Any
    place: Any
    value: Any
    advance: Any
    level: Any
    current: Any
    cleared: Any

    def __init__(self, *, words: int) -> None:
        if words < 1:
            raise ConfigError(f"strided words must be at least one, not {words}")
        self._words = words
        super().__init__(
            {
                "write": In(words),
                "place": In(range(_PLACES)),
                "value": In(32),
                "advance": In(1),
                "level": In(range(_PLACES)),
                "current": Out(32).array(words),
                "cleared": Out(1),
            }
        )

    @property
    def words(self) -> int:
        """Number of words."""
        return self._words

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        row = data.ArrayLayout(32, self._words)
        starts: Any = memory.Memory(shape=row, depth=_PLACES, init=[])
        strides: Any = memory.Memory(shape=row, depth=_PLACES, init=[])
        m.submodules.starts, m.submodules.strides = starts, strides
        start, stride = starts.read_port(domain="comb"), strides.read_port(domain="comb")
        put_start, put_stride = starts.write_port(granularity=1), strides.write_port(granularity=1)
        after: Any = Signal(row)
        m.d.comb += stride.addr.eq(self.level)
        for w in range(self._words):
            # Level 1 counts on from the present word; row 0 of the strides is always zero.
            origin = Mux(self.level == 1, self.current[w], start.data[w])
            m.d.comb += [
                after[w].eq(origin + stride.data[w]),
                put_stride.data[w].eq(self.value),
                put_start.data[w].eq(Mux(self.write.any(), self.value, after[w])),
            ]
            with m.If(self.advance):
                m.d.sync += self.current[w].eq(after[w])
        self._follow(m, start)
        clearing = Signal(range(_PLACES))
        m.d.comb += [
            put_stride.addr.eq(self.place),
            put_stride.en.eq(Mux(self.place != 0, self.write, 0)),
            put_start.addr.eq(Mux(self.write.any(), 0, self.level)),
            put_start.en.eq(Mux(self.place == 0, self.write, 0)),
        ]
        with m.If(self.advance & (self.level > 1)):
            m.d.comb += put_start.en.eq(~0)
        with m.If(~self.cleared):
            m.d.sync += [clearing.eq(clearing + 1), self.cleared.eq(clearing == _PLACES - 1)]
            for port in (put_start, put_stride):
                m.d.comb += [port.addr.eq(clearing), port.en.eq(~0), port.data.eq(0)]
        return m

    def _follow(self, m: Module, start: Any) -> None:
        """Keep in which row the start of each loop is."""
        start_of = [Signal(range(_PLACES), name=f"start_of_{level}") for level in (2, 3)]
        with m.Switch(self.level):
            with m.Case(2):
                m.d.comb += start.addr.eq(start_of[0])
            with m.Case(3):
                m.d.comb += start.addr.eq(start_of[1])
        with m.If(self.advance), m.Switch(self.level):
            with m.Case(0):
                m.d.sync += [start_of[0].eq(0), start_of[1].eq(0)]
            with m.Case(2):
                m.d.sync += start_of[0].eq(2)
            with m.Case(3):
                m.d.sync += [start_of[0].eq(3), start_of[1].eq(3)]
