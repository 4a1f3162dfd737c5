"""Fixed point to IEEE-754 binary32."""

from amaranth import Cat, Module, Mux, Signal, signed
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
        coarse, coarse_zeros = self._normalize(m, magnitude, (32, 16, 8), "coarse")
        fine, fine_zeros = self._normalize(m, coarse, (4, 2, 1), "fine")
        zeros = Signal(3)
        m.d.sync += zeros.eq(coarse_zeros)
        self._round(m, fine, Cat(fine_zeros, zeros), sign[2])
        return m

    def _normalize(
        self, m: Module, value: Signal, steps: tuple[int, ...], name: str
    ) -> tuple[Signal, Signal]:
        """Register `value` shifted left by the largest sum of steps that loses no one bit."""
        shifts = Signal(len(steps), name=f"{name}_shifts")
        flags: list[Signal] = []
        stage = value
        for step in steps:
            empty = Signal(name=f"{name}_empty_{step}")
            shifted = Signal(TERM_BITS, name=f"{name}_by_{step}")
            m.d.comb += [
                empty.eq(stage[TERM_BITS - step :] == 0),
                shifted.eq(Mux(empty, stage << step, stage)),
            ]
            flags.insert(0, empty)
            stage = shifted
        result = Signal(TERM_BITS, name=name)
        m.d.sync += [result.eq(stage), shifts.eq(Cat(flags))]
        return result, shifts

    def _round(self, m: Module, normal: Signal, zeros: Cat, sign: Signal) -> None:
        """Register the rounded number; a carry out of the fraction raises the exponent."""
        cut = TERM_BITS - _FRACTION - 1
        up = normal[cut - 1] & (normal[: cut - 1].any() | normal[cut])
        top = _BIAS + LSB_EXPONENT + TERM_BITS - 1
        packed = Signal(31)
        m.d.comb += packed.eq(Cat(normal[cut:-1], (top - zeros)[:8]) + up)
        m.d.sync += self.value.eq(Mux(normal[-1], Cat(packed, sign), 0))
