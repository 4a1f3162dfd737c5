"""The semaphores that join the units."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.tile.types import SEMAPHORE_MAX, SEMAPHORES, TakeRequest, UnitId

COUNT_BITS = SEMAPHORE_MAX.bit_length()
"""Bits of a count."""


class Semaphores(wiring.Component):
    """Counting semaphores that several users take from and add to in every clock.

    A request for two semaphores takes both or none; one that names a semaphore twice takes two.
    Of requests in one clock for the same semaphore the lowest user's is served.

    *Timing*: `taken` depends on the requests of this clock and on registers, not on signals of
    this clock: a signal can be taken in the clock after it. `overflow` comes a clock after the
    signal that was one too many; that semaphore stays at 255. A reset sets all counts to zero.

    Parameters
    ----------
    units
        Users, numbered as `UnitId`.

    Members
    -------
    take : In(TakeRequest).array(units), take_valid : In(1).array(units)
        What a user wants to take; it may change its mind in any clock.
    taken : Out(1).array(units)
        It has been taken at the end of this clock.
    lacks : Out(5).array(units)
        A semaphore that the user's request finds too low; meaningless when there is none.
    signal : In(5).array(units), signal_valid : In(1).array(units)
        Add one.
    counts : Out(8).array(32)
    overflow : Out(1), overflow_number : Out(5), overflow_unit : Out(range(units))
        Pulse; the lowest user of several.

    Raises
    ------
    ConfigError
        The number of users is out of range.
    """

    take: Any
    take_valid: Any
    taken: Any
    lacks: Any
    signal: Any
    signal_valid: Any
    counts: Any
    overflow: Any
    overflow_number: Any
    overflow_unit: Any

    def __init__(self, *, units: int = len(UnitId)) -> None:
        if not 1 <= units <= 16:
            raise ConfigError(f"semaphores have 1 to 16 users, not {units}")
        self._units = units
        number = range(SEMAPHORES)
        super().__init__(
            {
                "take": In(TakeRequest).array(units),
                "take_valid": In(1).array(units),
                "taken": Out(1).array(units),
                "lacks": Out(number).array(units),
                "signal": In(number).array(units),
                "signal_valid": In(1).array(units),
                "counts": Out(COUNT_BITS).array(SEMAPHORES),
                "overflow": Out(1),
                "overflow_number": Out(number),
                "overflow_unit": Out(range(units)),
            }
        )

    @property
    def units(self) -> int:
        """Users."""
        return self._units

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        # One bit for each semaphore: there is one to take, there are two.
        some, two = Signal(SEMAPHORES, name="some"), Signal(SEMAPHORES, name="two")
        self._grant(m, some, two)
        over = Signal(SEMAPHORES)
        self._count(m, some, two, over)
        self._tell_overflow(m, over)
        return m

    def _grant(self, m: Module, some: Signal, two: Signal) -> None:
        """Serve every request whose semaphores are there and wanted by no lower such user."""
        served: list[tuple[Signal, Any]] = []
        for u in range(self._units):
            take: Any = self.take[u]
            free = Signal(name=f"free_{u}")
            twice = take.use_first & take.use_second & (take.first == take.second)
            no_first = take.use_first & ~some.bit_select(take.first, 1)
            no_second = take.use_second & ~some.bit_select(take.second, 1)
            single = twice & ~two.bit_select(take.first, 1)
            blocked = [higher & _overlap(take, other) for higher, other in served]
            m.d.comb += [
                free.eq(self.take_valid[u] & ~(no_first | no_second | single)),
                self.taken[u].eq(free & ~Cat(blocked).any() if blocked else free),
                self.lacks[u].eq(Mux(no_first | ~no_second, take.first, take.second)),
            ]
            served.append((free, take))

    def _count(self, m: Module, some: Signal, two: Signal, over: Signal) -> None:
        """Add the signals, subtract what was taken."""
        first, second, signals = [], [], []
        for u in range(self._units):
            take: Any = self.take[u]
            first.append(_marks(m, f"first_{u}", self.taken[u] & take.use_first, take.first))
            second.append(_marks(m, f"second_{u}", self.taken[u] & take.use_second, take.second))
            signals.append(_marks(m, f"signals_{u}", self.signal_valid[u], self.signal[u]))
        less_first, less_second = (
            Signal(SEMAPHORES, name="less_first"),
            Signal(SEMAPHORES, name="less_second"),
        )
        m.d.comb += [less_first.eq(_any(first)), less_second.eq(_any(second))]
        more = _column_sums(m, signals)
        for s, count in enumerate(self.counts):
            after = Signal(COUNT_BITS + 1, name=f"after_{s}")
            up = Cat(plane[s] for plane in more)
            m.d.comb += after.eq(count + up - (less_first[s] + less_second[s]))
            m.d.sync += [
                over[s].eq(after[-1]),
                count.eq(Mux(after[-1], SEMAPHORE_MAX, after[:-1])),
                some[s].eq(after.any()),
                two[s].eq(after[1:].any()),
            ]

    def _tell_overflow(self, m: Module, over: Signal) -> None:
        """Find who signalled, a clock later."""
        for u in reversed(range(self._units)):
            number, valid = Signal.like(self.signal[u], name=f"number_{u}"), Signal(name=f"by_{u}")
            m.d.sync += [number.eq(self.signal[u]), valid.eq(self.signal_valid[u])]
            with m.If(valid & over.bit_select(number, 1)):
                m.d.comb += [
                    self.overflow.eq(1),
                    self.overflow_number.eq(number),
                    self.overflow_unit.eq(u),
                ]


def _overlap(one: Any, other: Any) -> Value:
    """Return whether two requests name the same semaphore."""
    return Cat(
        a_used & b_used & (a == b)
        for a_used, a in ((one.use_first, one.first), (one.use_second, one.second))
        for b_used, b in ((other.use_first, other.first), (other.use_second, other.second))
    ).any()


def _marks(m: Module, name: str, valid: Value, number: Value) -> Signal:
    """Return the bit of a semaphore, or zeros."""
    marks = Signal(SEMAPHORES, name=name)
    with m.If(valid):
        m.d.comb += marks.eq(Const(1, SEMAPHORES) << number)
    return marks


def _any(vectors: list[Signal]) -> Value:
    result: Value = vectors[0]
    for vector in vectors[1:]:
        result = result | vector
    return result


def _column_sums(m: Module, vectors: list[Signal]) -> list[Signal]:
    """Count the ones in each column; the sums' bits are vectors, least significant first.

    Whole vectors are added, which a compiled simulation does in one operation each.
    """
    planes: list[Signal] = []
    for u, vector in enumerate(vectors):
        carry: Value = vector
        sums = []
        for place in range((u + 1).bit_length()):
            plane = Signal(SEMAPHORES, name=f"sum_{u}_{place}")
            if place < len(planes):
                m.d.comb += plane.eq(planes[place] ^ carry)
                carry = planes[place] & carry
            else:
                m.d.comb += plane.eq(carry)
            sums.append(plane)
        planes = sums
    return planes
