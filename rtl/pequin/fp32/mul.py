"""fp32 multiplication."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.fp32.types import (
    BIAS,
    CANONICAL_NAN,
    INFINITY,
    Float32,
    named,
    out_of_range,
    registered,
    rounded,
)


class FloatMul(wiring.Component):
    """Multiply two fp32 values.

    *Timing*: one result per clock, `LATENCY` clocks after its operands.

    Members
    -------
    a, b : In(Float32)
        Operands.
    result : Out(Float32)
        a * b, nearest even; 0 * infinity is NaN.
    """

    a: Any
    b: Any
    result: Any

    LATENCY = 5

    def __init__(self) -> None:
        super().__init__({"a": In(Float32), "b": In(Float32), "result": Out(Float32)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        a, b = self.a, self.b
        sig_a = registered(m, "significand_a", a.significand)
        sig_b = registered(m, "significand_b", b.significand)
        exponent: Value = registered(m, "exponent_1", a.exponent + b.exponent)
        nan = a.is_nan | b.is_nan | (a.is_infinite & b.is_zero) | (a.is_zero & b.is_infinite)
        infinite = a.is_infinite | b.is_infinite
        flags: Value = Cat(a.sign ^ b.sign, nan, infinite, a.is_zero | b.is_zero)
        for stage in range(1, 5):
            flags = registered(m, f"flags_{stage}", flags)
        # Partial products of 12 x 24 bits fit pairs of 18 x 18 multipliers.
        low = registered(m, "product_low", sig_a * sig_b[:12])
        high = registered(m, "product_high", sig_a * sig_b[12:])
        exponent = registered(m, "exponent_2", exponent)
        product = registered(m, "product", (low + (high << 12))[:48])
        exponent = registered(m, "exponent_3", exponent)
        mantissa, up, exponent = self._normalise(m, product, exponent)
        self._round(m, mantissa, up, exponent, flags)
        return m

    def _normalise(self, m: Module, product: Value, exponent: Value) -> tuple[Value, Value, Value]:
        """Bring the product into [1, 2) and decide the rounding."""
        top = product[47]
        mantissa = named(m, "normal", Mux(top, product[24:48], product[23:47]))
        guard = Mux(top, product[23], product[22])
        sticky = product[:22].any() | (top & product[22])
        up = guard & (sticky | mantissa[0])
        biased = (exponent + top - Const(BIAS, 8)).as_signed()
        return (
            registered(m, "mantissa", mantissa),
            registered(m, "round_up", up),
            registered(m, "exponent_4", biased),
        )

    def _round(self, m: Module, mantissa: Value, up: Value, exponent: Value, flags: Value) -> None:
        sign, nan, infinite, zero = flags
        magnitude: Value = rounded(m, exponent, mantissa[:23], up)
        # The exponent before rounding decides about flushing.
        below, above = out_of_range(exponent)
        magnitude = Mux(zero | below, 0, magnitude)
        magnitude = Mux(infinite | (above & ~zero), INFINITY, magnitude)
        result = Cat(magnitude[:31], sign)
        m.d.sync += self.result.as_value().eq(Mux(nan, CANONICAL_NAN, result))
