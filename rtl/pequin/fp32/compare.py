"""fp32 comparison and maximum."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.fp32.types import CANONICAL_NAN, Float32, registered


def order_key(value: Float32) -> Value:
    """Return 32 bits that order fp32 values as unsigned numbers, combinational.

    Subnormals count as zeros, -0 is below +0, and a NaN is above infinity.
    """
    bits = Cat(Mux(value.is_zero, 0, value.fraction), value.exponent)
    key = Mux(value.sign, Cat(~bits, Const(0, 1)), Cat(bits, Const(1, 1)))
    return Mux(value.is_nan, Const(CANONICAL_NAN | 1 << 31, 32), key)


def from_order_key(key: Value) -> Value:
    """Return the fp32 bits of an `order_key`."""
    return Mux(key[31], Cat(key[:31], Const(0, 1)), Cat(~key[:31], Const(1, 1)))


class FloatMax(wiring.Component):
    """The larger of two fp32 values: NaN when either is NaN, and +0 is larger than -0.

    *Timing*: one result per clock, `LATENCY` clocks after its operands.

    Members
    -------
    a, b : In(Float32)
        Operands.
    result : Out(Float32)
        Their maximum.
    """

    a: Any
    b: Any
    result: Any

    LATENCY = 2

    def __init__(self) -> None:
        super().__init__({"a": In(Float32), "b": In(Float32), "result": Out(Float32)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        a = registered(m, "key_a", order_key(self.a))
        b = registered(m, "key_b", order_key(self.b))
        m.d.sync += self.result.as_value().eq(from_order_key(Mux(a > b, a, b)))
        return m


class FloatCompare(wiring.Component):
    """Compare two fp32 values; exactly one of the outputs is 1.

    *Timing*: one result per clock, `LATENCY` clocks after its operands.

    Members
    -------
    a, b : In(Float32)
        Operands.
    less, equal, greater : Out(1)
        a < b, a == b (the two zeros are equal), a > b.
    unordered : Out(1)
        One is NaN.
    """

    a: Any
    b: Any
    less: Any
    equal: Any
    greater: Any
    unordered: Any

    LATENCY = 2

    def __init__(self) -> None:
        super().__init__(
            {
                "a": In(Float32),
                "b": In(Float32),
                "less": Out(1),
                "equal": Out(1),
                "greater": Out(1),
                "unordered": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        zeros = self.a.is_zero & self.b.is_zero
        a = registered(m, "key_a", order_key(self.a))
        b = registered(m, "key_b", order_key(self.b))
        equal = registered(m, "zeros", zeros) | (a == b)
        nan = registered(m, "nan", self.a.is_nan | self.b.is_nan)
        m.d.sync += [
            self.unordered.eq(nan),
            self.equal.eq(equal & ~nan),
            self.less.eq((a < b) & ~equal & ~nan),
            self.greater.eq((a > b) & ~equal & ~nan),
        ]
        return m
