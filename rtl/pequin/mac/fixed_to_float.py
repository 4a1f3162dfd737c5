"""Fixed point to IEEE-754 binary32."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import LSB_EXPONENT, TERM_BITS

_FRACTION = 23
_BIAS = 127


class FixedToFloat(wiring.Component):
    """Convert a 48-bit fixed-point number to fp32, rounding to nearest even.

    No result is subnormal or infinite: magnitudes lie between 2**-24 and 2**23. Zero gives +0.

    Timing: latency 4 clocks, one number per clock.

    Members
    -------
    fixed : In(signed(48))
        LSB 2**-24.
    value : Out(32)
        IEEE-754 binary32 bits.
    """

    LATENCY = 4

    fixed: In(signed(TERM_BITS))
    value: Out(32)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        magnitude, sign = Signal(TERM_BITS), [Signal(name=f"sign_{i}") for i in range(3)]
        m.d.sync += [
            magnitude.eq(abs(self.fixed)),
            sign[0].eq(self.fixed < 0),
            sign[1].eq(sign[0]),
            sign[2].eq(sign[1]),
        ]
        coarse, coarse_zeros = self._normalize(m, magnitude, 8, "coarse")
        fine, fine_zeros = self._normalize(m, coarse, 1, "fine")
        zeros = Signal(3)
        m.d.sync += zeros.eq(coarse_zeros)
        self._round(m, fine, Cat(fine_zeros, zeros), sign[2])
        return m

    def _normalize(self, m: Module, value: Signal, unit: int, name: str) -> tuple[Signal, Signal]:
        """Register `value` shifted left by its leading empty units, at most 7, and their number.

        The units are looked at side by side: the count does not wait for a shift.
        """
        empty = Signal(3, name=f"{name}_empty")
        for place in reversed(range(min(8, TERM_BITS // unit))):  # the last that is set wins
            top = TERM_BITS - place * unit
            with m.If(value[top - unit : top].any()):
                m.d.comb += empty.eq(place)
        result, shifts = Signal(TERM_BITS, name=name), Signal(3, name=f"{name}_shifts")
        places = Cat(Const(0, unit.bit_length() - 1), empty)
        m.d.sync += [result.eq(value << places), shifts.eq(empty)]
        return result, shifts

    def _round(self, m: Module, normal: Signal, zeros: Cat, sign: Signal) -> None:
        """Register the rounded number; a carry out of the fraction raises the exponent."""
        cut = TERM_BITS - _FRACTION - 1
        up = normal[cut - 1] & (normal[: cut - 1].any() | normal[cut])
        top = _BIAS + LSB_EXPONENT + TERM_BITS - 1
        packed = Signal(31)
        m.d.comb += packed.eq(Cat(normal[cut:-1], (top - zeros)[:8]) + up)
        m.d.sync += self.value.eq(Mux(normal[-1], Cat(packed, sign), 0))
