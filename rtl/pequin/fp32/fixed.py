"""Conversion between fp32 and fixed point of any width."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.fp32.types import BIAS, Float32, leading_zeros, named, registered, rounded

_SIGNIFICAND = 24


class FixedToFloat(wiring.Component):
    """Round a fixed-point number to fp32, nearest even.

    *Timing*: one result per clock, `LATENCY` clocks after its operand.

    Parameters
    ----------
    width
        Bits of the number, two's complement; 26 to 128.
    lsb_exponent
        The least significant bit is 2**lsb_exponent.

    Members
    -------
    a : In(signed(width))
        Operand.
    result : Out(Float32)
        Its value; zero is +0.

    Raises
    ------
    ConfigError
        The width is out of range, or a value could leave fp32's normal range.
    """

    a: Any
    result: Any

    LATENCY = 4

    def __init__(self, *, width: int, lsb_exponent: int) -> None:
        if not 26 <= width <= 128:
            raise ConfigError(f"width must be 26 to 128 bits, not {width}")
        if lsb_exponent < -126 or width + lsb_exponent > 128:
            raise ConfigError(
                f"a {width}-bit number with LSB 2**{lsb_exponent} leaves fp32's range 2**-126 to "
                "2**128; choose another lsb_exponent"
            )
        self._width = width
        self._lsb = lsb_exponent
        super().__init__({"a": In(signed(width)), "result": Out(Float32)})

    @property
    def width(self) -> int:
        """Bits of the operand."""
        return self._width

    @property
    def lsb_exponent(self) -> int:
        """Exponent of the operand's least significant bit."""
        return self._lsb

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        span = 1 << (self._width - 1).bit_length()
        sign = registered(m, "sign_1", self.a[-1])
        magnitude = registered(m, "magnitude", Mux(self.a[-1], -self.a, self.a)[: self._width])
        padded = Cat(Const(0, span - self._width), magnitude)
        zeros = registered(m, "zeros", leading_zeros(m, "zeros", padded))
        magnitude = registered(m, "magnitude_2", magnitude)
        normal = registered(m, "normal", (magnitude << zeros)[: self._width])
        exponent = registered(m, "exponent", BIAS + self._width - 1 + self._lsb - zeros)
        sign = registered(m, "sign_3", registered(m, "sign_2", sign))
        self._round(m, normal, exponent, sign)
        return m

    def _round(self, m: Module, normal: Value, exponent: Value, sign: Value) -> None:
        below = self._width - _SIGNIFICAND
        mantissa = normal[below:]
        up = normal[below - 1] & (normal[: below - 1].any() | mantissa[0])
        magnitude = rounded(m, exponent, mantissa[: _SIGNIFICAND - 1], up)
        m.d.sync += self.result.as_value().eq(Mux(normal[-1], Cat(magnitude, sign), 0))


class FloatToFixed(wiring.Component):
    """Round an fp32 value half up (towards plus infinity) to fixed point.

    *Timing*: one result per clock, `LATENCY` clocks after its operand.

    Parameters
    ----------
    width
        Bits of the result, two's complement; 26 to 128.
    lsb_exponent
        The least significant bit is 2**lsb_exponent.

    Members
    -------
    a : In(Float32)
        Operand.
    result : Out(signed(width))
        Its value; 0 on overflow.
    overflow : Out(1)
        The operand was NaN, or its magnitude at least 2**(width - 1 + lsb_exponent).

    Raises
    ------
    ConfigError
        The width or the exponent is out of range.
    """

    a: Any
    result: Any
    overflow: Any

    LATENCY = 3

    def __init__(self, *, width: int, lsb_exponent: int) -> None:
        if not 26 <= width <= 128:
            raise ConfigError(f"width must be 26 to 128 bits, not {width}")
        if not -100 <= lsb_exponent <= 0:
            raise ConfigError(f"lsb_exponent must be -100 to 0, not {lsb_exponent}")
        self._width = width
        self._lsb = lsb_exponent
        super().__init__({"a": In(Float32), "result": Out(signed(width)), "overflow": Out(1)})

    @property
    def width(self) -> int:
        """Bits of the result."""
        return self._width

    @property
    def lsb_exponent(self) -> int:
        """Exponent of the result's least significant bit."""
        return self._lsb

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        a = self.a
        # The exponent field at which the significand needs no shift.
        origin = BIAS + _SIGNIFICAND - 1 + self._lsb
        limit = self._width - 1 - _SIGNIFICAND
        left = named(m, "to_left", (a.exponent - Const(origin, 8)).as_signed())
        right = named(m, "to_right", (Const(origin, 8) - a.exponent).as_signed())
        over = registered(m, "over_1", left > limit)
        shift_left = registered(m, "shift_left", Mux((left < 0) | (left > limit), 0, left)[:7])
        far = Mux(right > _SIGNIFICAND + 1, _SIGNIFICAND + 1, right)
        shift_right = registered(m, "shift_right", Mux(right < 0, 0, far)[:5])
        sign = registered(m, "sign_1", a.sign)
        significand = registered(m, "significand", a.significand)
        large = (significand << shift_left)[: self._width - 1]
        small = named(m, "small", Cat(Const(0, _SIGNIFICAND + 1), significand) >> shift_right)
        whole, guard = small[_SIGNIFICAND + 1 :], small[_SIGNIFICAND]
        value = Mux(shift_right.any(), whole, large)
        # Half up: a negative number rounds its magnitude up only beyond the half.
        up = guard & (~sign | small[:_SIGNIFICAND].any())
        value = registered(m, "value", value)
        # -(value + up) is ~value + (1 - up).
        up = registered(m, "round_up", sign ^ up)
        sign = registered(m, "sign_2", sign)
        over = registered(m, "over_2", over)
        padded = Cat(value, Const(0, 1)) ^ sign.replicate(self._width)
        result = named(m, "rounded", (padded + up)[: self._width])
        m.d.sync += [
            self.result.eq(Mux(over, 0, result).as_signed()),
            self.overflow.eq(over),
        ]
        return m
