"""Conversion between fp32 and 32-bit integers."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.fp32.fixed import FixedToFloat
from pequin.fp32.types import BIAS, Float32, named, registered


class IntToFloat(wiring.Component):
    """Round a 32-bit signed integer to fp32, nearest even.

    *Timing*: one result per clock, `LATENCY` clocks after its operand.

    Members
    -------
    a : In(signed(32))
        Operand.
    result : Out(Float32)
        Its value.
    """

    a: Any
    result: Any

    LATENCY = FixedToFloat.LATENCY

    def __init__(self) -> None:
        super().__init__({"a": In(signed(32)), "result": Out(Float32)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.fixed = fixed = FixedToFloat(width=32, lsb_exponent=0)
        m.d.comb += [fixed.a.eq(self.a), self.result.eq(fixed.result)]
        return m


class FloatToInt(wiring.Component):
    """Round an fp32 value to a 32-bit signed integer, nearest even.

    *Timing*: one result per clock, `LATENCY` clocks after its operand.

    Members
    -------
    a : In(Float32)
        Operand.
    result : Out(signed(32))
        Its value; out of range or infinite saturates, NaN gives 0.
    invalid : Out(1)
        The operand was NaN or did not fit.
    """

    a: Any
    result: Any
    invalid: Any

    LATENCY = 3

    def __init__(self) -> None:
        super().__init__({"a": In(Float32), "result": Out(signed(32)), "invalid": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        a = self.a
        # Bit 32 of the magnitude catches the shift that leaves the range; two bits below are
        # guard and sticky.
        distance = Const(BIAS + 33, 9) - a.exponent
        far = (a.exponent < BIAS - 2) | a.is_zero
        too_big = a.exponent > BIAS + 31
        shift = registered(m, "shift", Mux(too_big, 2, Mux(far, 63, distance))[:6])
        wide = Cat(Const(0, 10), registered(m, "significand", a.significand))
        flags = registered(m, "flags_1", Cat(a.sign, a.is_nan, too_big))
        shifted, sticky = self._shift(wide, shift)
        value = registered(m, "value", shifted)
        below = registered(m, "below", sticky)
        flags = registered(m, "flags_2", flags)
        self._finish(m, value, below, flags)
        return m

    def _shift(self, wide: Value, shift: Value) -> tuple[Value, Value]:
        """Shift right by `shift`, keeping one guard bit; the rest becomes sticky."""
        padded = Cat(Const(0, 36), wide)
        moved = padded >> shift
        return moved[36 - 1 :][:34], moved[: 36 - 1].any()

    def _finish(self, m: Module, value: Value, below: Value, flags: Value) -> None:
        sign, nan, too_big = flags
        up = value[0] & (below | value[1])
        magnitude = named(m, "magnitude", (value[1:] + up)[:34])
        over = too_big | Mux(sign, magnitude > (1 << 31), magnitude > (1 << 31) - 1)
        limit = Mux(sign, Const(1 << 31, 32), Const((1 << 31) - 1, 32))
        result = Mux(over, limit, Mux(sign, -magnitude, magnitude)[:32])
        m.d.sync += [
            self.result.eq(Mux(nan, 0, result).as_signed()),
            self.invalid.eq(nan | over),
        ]
