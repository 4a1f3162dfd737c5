"""The binary32 format and helpers that several units share."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

CANONICAL_NAN = 0x7FC00000
"""Bits of the one NaN that arithmetic produces."""

INFINITY = 0x7F800000
"""Bits of plus infinity."""

BIAS = 127
"""Exponent field of 1.0."""

ONE = 0x3F800000
"""Bits of 1.0."""

MINUS_ZERO = 0x80000000
"""Bits of -0.0, which leaves every value as it is when added."""


class Float32(data.Struct):
    """IEEE-754 binary32.

    Members
    -------
    fraction
        Bits below the hidden one.
    exponent
        Bias 127; 0 counts as zero whatever the fraction (subnormals are flushed).
    sign
        1 is negative.
    """

    fraction: 23
    exponent: 8
    sign: 1

    @property
    def is_zero(self) -> Value:
        """1 for zeros and subnormals, combinational."""
        return self.exponent == 0

    @property
    def is_nan(self) -> Value:
        """1 for every NaN, combinational."""
        return (self.exponent == 0xFF) & self.fraction.any()

    @property
    def is_infinite(self) -> Value:
        """1 for both infinities, combinational."""
        return (self.exponent == 0xFF) & ~self.fraction.any()

    @property
    def is_finite(self) -> Value:
        """0 for NaN and infinity, combinational."""
        return self.exponent != 0xFF

    @property
    def significand(self) -> Value:
        """24 bits with the hidden one; 0 for zeros, combinational."""
        hidden = self.exponent != 0
        return Cat(Mux(hidden, self.fraction, 0), hidden)


def as_float(bits: Any) -> Any:
    """Return a `Float32` view of 32 bits."""
    view: Any = Float32
    return view(bits)


def pack(sign: Value, exponent: Value, fraction: Value) -> Value:
    """Join the fields of a Float32 to 32 bits."""
    return Cat(fraction[:23], exponent[:8], sign)


def rounded(m: Module, exponent: Value, fraction: Value, up: Value) -> Signal:
    """Return exponent and fraction field after rounding, combinational.

    One addition does it: a carry out of the fraction leaves it zero and goes into the exponent,
    from 254 to infinity.

    Parameters
    ----------
    m
        Where to add it.
    exponent
        Exponent field before rounding.
    fraction
        23 bits below the hidden one.
    up
        Add a unit in the last place.
    """
    return named(m, "rounded", (Cat(fraction[:23], exponent[:8]) + up)[:31])


def out_of_range(exponent: Value) -> tuple[Value, Value]:
    """Tell of a signed exponent field whether it is below 1, and whether it is above 254."""
    negative = exponent[-1]
    small = ~exponent[:-1].any()
    large = exponent[8:-1].any() | exponent[:8].all()
    return negative | small, ~negative & large


def add_or_subtract(a: Value, b: Value, subtract: Value) -> Value:
    """Return a + b or a - b modulo 2**len(a) with one carry chain, combinational."""
    inverted = Cat(b, Const(0, len(a) - len(b))) ^ subtract.replicate(len(a))
    return (Cat(subtract, a) + Cat(subtract, inverted))[1 : len(a) + 1]


def negated(value: Value, negative: Value, width: int) -> Value:
    """Return value or -value in `width` bits, combinational: one carry chain."""
    inverted = Cat(value, Const(0, max(0, width - len(value))))[:width]
    return ((inverted ^ negative.replicate(width)) + negative)[:width]


def leading_zeros(m: Module, name: str, value: Value) -> Value:
    """Count the zeros above the highest one; `len(value)` must be a power of two.

    Counts of neighbouring groups are joined in a tree, which is about as deep as it has levels. A
    value of zero gives `len(value)` - 1.
    """
    whole = named(m, f"{name}_in", value)
    groups: list[tuple[Any, Any]] = [(Const(0, 0), bit) for bit in reversed(whole)]
    level = 0
    while len(groups) > 1:
        level += 1
        joined: list[tuple[Any, Any]] = []
        for i, (high, low) in enumerate(zip(groups[::2], groups[1::2], strict=True)):
            count = Cat(Mux(high[1], high[0], low[0]), ~high[1])[:level]
            joined.append(
                (
                    named(m, f"{name}_count_{level}_{i}", count),
                    named(m, f"{name}_any_{level}_{i}", high[1] | low[1]),
                )
            )
        groups = joined
    return groups[0][0]


def named(m: Module, name: str, value: Value) -> Signal:
    """Give a combinational value a name and its own wire.

    Amaranth writes an expression out again at each of its uses; a wire is written once.
    """
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def registered(m: Module, name: str, value: Value) -> Signal:
    """Register a value for one clock, without reset."""
    signal = Signal(value.shape(), name=name, reset_less=True)
    m.d.sync += signal.eq(value)
    return signal
