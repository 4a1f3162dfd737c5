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

_LOWS = 8
"""Semaphores that are decoded together."""


class Semaphores(wiring.Component):
    """Counting semaphores that several users take from and add to in every clock.

    A request for two semaphores takes both or none; one that names a semaphore twice takes two.
    One request is served in a clock, of those that can be served the lowest user's. A semaphore can
    be taken from in every second clock.

    *Timing*: `taken` depends on the requests of this clock and on registers, not on signals of
    this clock: a signal can be taken in the clock after it. `counts` follow what is taken a clock
    late. `overflow` comes a clock after the signal that was one too many; that semaphore keeps
    its count. A reset sets all counts to zero.

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
        self._some, self._two = Signal(SEMAPHORES, name="some"), Signal(SEMAPHORES, name="two")
        self._over = Signal(SEMAPHORES, name="over")
        # What was taken in the clock before, and is about to leave the counts.
        self._gone: Any = Signal(TakeRequest, name="gone")
        self._grant(m)
        self._count(m)
        self._tell_overflow(m)
        return m

    def _grant(self, m: Module) -> None:
        """Serve the lowest user whose request can be served."""
        free = Signal(self._units, name="free")
        served: Any = Signal(TakeRequest, name="served")
        m.d.sync += self._gone.eq(served)
        for u in range(self._units):
            take: Any = self.take[u]
            no_first = take.use_first & ~self._there(m, f"first_{u}", take.first)
            no_second = take.use_second & ~self._there(m, f"second_{u}", take.second)
            twice = take.use_first & take.use_second & (take.first == take.second)
            single = twice & ~self._two.bit_select(take.first, 1)
            m.d.comb += [
                free[u].eq(self.take_valid[u] & ~(no_first | no_second | single)),
                self.taken[u].eq(free[u] & ~free[:u].any() if u else free[u]),
                self.lacks[u].eq(Mux(no_first | ~no_second, take.first, take.second)),
            ]
        m.d.comb += Value.cast(served).eq(_lowest(free, self.take))

    def _there(self, m: Module, name: str, number: Value) -> Signal:
        """Return whether there is one of a semaphore that none was taken from just now."""
        gone, there = self._gone, Signal(name=f"there_{name}")
        m.d.comb += there.eq(
            self._some.bit_select(number, 1)
            & ~(gone.use_first & (gone.first == number))
            & ~(gone.use_second & (gone.second == number))
        )
        return there

    def _count(self, m: Module) -> None:
        """Add the signals, subtract what was taken in the clock before."""
        gone = self._gone
        signals = [
            _mark(m, f"signal_{u}", self.signal_valid[u], self.signal[u])
            for u in range(self._units)
        ]
        first = _mark(m, "first_gone", gone.use_first, gone.first)
        second = _mark(m, "second_gone", gone.use_second, gone.second)
        change = _difference(m, _column_sums(m, signals), [first ^ second, first & second])
        for s, count in enumerate(self.counts):
            after = Signal(COUNT_BITS + 1, name=f"after_{s}")
            m.d.comb += after.eq(count + Cat(plane[s] for plane in change).as_signed())
            m.d.sync += self._over[s].eq(after[-1])
            with m.If(~after[-1]):
                m.d.sync += [
                    count.eq(after[:-1]),
                    self._some[s].eq(after[:-1].any()),
                    self._two[s].eq(after[1:-1].any()),
                ]

    def _tell_overflow(self, m: Module) -> None:
        """Find who signalled, a clock later."""
        for u in reversed(range(self._units)):
            number = Signal.like(self.signal[u], name=f"number_{u}")
            valid = Signal(name=f"by_{u}")
            m.d.sync += [number.eq(self.signal[u]), valid.eq(self.signal_valid[u])]
            with m.If(valid & self._over.bit_select(number, 1)):
                m.d.comb += [
                    self.overflow.eq(1),
                    self.overflow_number.eq(number),
                    self.overflow_unit.eq(u),
                ]


def _mark(m: Module, name: str, valid: Value, number: Value) -> Signal:
    """Return the bit of a semaphore, or zeros."""
    low, high = Signal(_LOWS, name=f"{name}_low"), Signal(SEMAPHORES // _LOWS, name=f"{name}_high")
    mark = Signal(SEMAPHORES, name=f"{name}_mark")
    low_bits = (_LOWS - 1).bit_length()
    m.d.comb += [
        low.eq(Cat(number[:low_bits] == i for i in range(_LOWS))),
        high.eq(Cat(valid & (number[low_bits:] == i) for i in range(len(high)))),
        mark.eq(low.replicate(len(high)) & Cat(bit.replicate(_LOWS) for bit in high)),
    ]
    return mark


def _lowest(free: Signal, takes: Any) -> Value:
    """Return the request of the lowest free user, or zeros, by a tree of pairs."""
    nodes = []
    for u, take in enumerate(takes):
        idle = Value.cast(take) & Cat(
            free[u], Const(-1, len(take.first)), free[u], Const(-1, len(take.second))
        )
        nodes.append((free[u], idle))
    while len(nodes) > 1:
        pairs = [nodes[i : i + 2] for i in range(0, len(nodes), 2)]
        nodes = [
            (pair[0][0] | pair[1][0], Mux(pair[0][0], pair[0][1], pair[1][1]))
            if len(pair) == 2
            else pair[0]
            for pair in pairs
        ]
    return nodes[0][1]


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


def _difference(m: Module, more: list[Signal], less: list[Value]) -> list[Signal]:
    """Subtract in each column: two's complement with a sign."""
    planes = []
    borrow: Value = Const(0, SEMAPHORES)
    for place in range(max(len(more), len(less)) + 1):
        a = more[place] if place < len(more) else Const(0, SEMAPHORES)
        b = less[place] if place < len(less) else Const(0, SEMAPHORES)
        plane = Signal(SEMAPHORES, name=f"change_{place}")
        m.d.comb += plane.eq(a ^ b ^ borrow)
        borrow = (~a & (b | borrow)) | (b & borrow)
        planes.append(plane)
    return planes
