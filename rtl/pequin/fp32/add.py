"""fp32 addition and subtraction."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.fp32.types import (
    CANONICAL_NAN,
    INFINITY,
    Float32,
    add_or_subtract,
    leading_zeros,
    named,
    out_of_range,
    registered,
    rounded,
)

_GUARD = 3
_MAX_SHIFT = 27


class FloatAdd(wiring.Component):
    """Add or subtract two fp32 values.

    *Timing*: one result per clock, `LATENCY` clocks after its operands.

    Members
    -------
    a, b : In(Float32)
        Operands.
    subtract : In(1)
        Compute a - b instead of a + b.
    result : Out(Float32)
        Nearest even; an exact zero from non-zero operands is +0; infinity - infinity is NaN.
    """

    a: Any
    b: Any
    subtract: Any
    result: Any

    LATENCY = 7

    def __init__(self) -> None:
        super().__init__(
            {"a": In(Float32), "b": In(Float32), "subtract": In(1), "result": Out(Float32)}
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        flags, exponent, big, small, distance, effective = self._order(m)
        total, exponent = self._align_and_add(m, exponent, big, small, distance, effective)
        for stage in range(3, 7):
            flags = registered(m, f"flags_{stage}", flags)
        shift = registered(m, "shift", leading_zeros(m, "total", Cat(Const(0, 4), total))[:5])
        empty = registered(m, "empty", ~total.any())
        total = registered(m, "total_5", total)
        exponent = registered(m, "exponent_5", exponent)
        mantissa = registered(m, "mantissa", (total << shift)[:28])
        empty = registered(m, "empty_6", empty)
        exponent = registered(m, "exponent_6", exponent + 1 - shift)
        self._round(m, mantissa, exponent, empty, flags)
        return m

    def _order(self, m: Module) -> tuple[Value, Value, Value, Value, Value, Value]:
        """Compare magnitudes (clock 1), then swap and take the exponents' distance (clock 2)."""
        a, b = self.a, self.b
        sign_b = b.sign ^ self.subtract
        nan = a.is_nan | b.is_nan | (a.is_infinite & b.is_infinite & (a.sign ^ sign_b))
        infinite = a.is_infinite | b.is_infinite
        # The sign of a sum of two zeros.
        zero_sign = a.sign & sign_b
        flags = registered(m, "flags_1", Cat(nan, infinite, zero_sign))
        swap = registered(m, "swap", a.as_value()[:31] < b.as_value()[:31])
        signs = registered(m, "signs", Cat(a.sign, sign_b))
        sig_a, sig_b = (
            registered(m, f"significand_{n}", v.significand) for n, v in (("a", a), ("b", b))
        )
        exp_a, exp_b = (registered(m, f"exponent_{n}", v.exponent) for n, v in (("a", a), ("b", b)))
        big, small = Mux(swap, sig_b, sig_a), Mux(swap, sig_a, sig_b)
        larger = Mux(swap, exp_b, exp_a)
        difference = named(m, "difference", Mux(swap, exp_b - exp_a, exp_a - exp_b)[:8])
        distance = Mux(difference > _MAX_SHIFT, _MAX_SHIFT, difference)[:5]
        sign = Mux(swap, signs[1], signs[0])
        return (
            registered(m, "flags_2", Cat(flags, sign)),
            registered(m, "exponent_2", larger),
            registered(m, "big", big),
            registered(m, "small", small),
            registered(m, "distance", distance),
            registered(m, "effective", signs[0] ^ signs[1]),
        )

    def _align_and_add(
        self, m: Module, exponent: Value, big: Value, small: Value, distance: Value, minus: Value
    ) -> tuple[Value, Value]:
        """Shift the smaller operand right, keeping a sticky bit (clock 3), and add (clock 4)."""
        wide = Cat(Const(0, _GUARD), small)
        shifted = wide >> distance
        lost = (wide & ((Const(1, 1) << distance) - 1)[:27]).any()
        aligned = registered(m, "aligned", shifted | lost)
        big = registered(m, "big_3", Cat(Const(0, _GUARD), big))
        minus = registered(m, "effective_3", minus)
        exponent = registered(m, "exponent_3", exponent)
        total = add_or_subtract(Cat(big, Const(0, 1)), aligned, minus)
        return registered(m, "total", total), registered(m, "exponent_4", exponent)

    def _round(
        self, m: Module, mantissa: Value, exponent: Value, empty: Value, flags: Value
    ) -> None:
        """Round a value whose highest bit is bit 27."""
        nan, infinite, zero_sign, sign = flags
        up = mantissa[3] & (mantissa[:3].any() | mantissa[4])
        magnitude: Value = rounded(m, exponent, mantissa[4:27], up)
        # The exponent before rounding decides about flushing.
        below, above = out_of_range(exponent)
        magnitude = Mux(empty | below, 0, magnitude)
        magnitude = Mux(infinite | (above & ~empty), INFINITY, magnitude)
        result = Cat(magnitude[:31], Mux(empty, zero_sign, sign))
        m.d.sync += self.result.as_value().eq(Mux(nan, CANONICAL_NAN, result))
