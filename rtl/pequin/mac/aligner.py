"""From a block's exact sum and its two scales to a term on the accumulator's grid."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import LSB_EXPONENT, TERM_BITS
from pequin.formats import E8M0
from pequin.mac.delay import delay, register
from pequin.mac.dot_product import SUM_BITS
from pequin.mac.types import WeightFormat

_BIAS = {
    # E8M0 bias twice, and the binary places of the products: 2**-1 * 2**-6 and 2**-6 * 2**-6.
    WeightFormat.MXFP4: 2 * E8M0.BIAS + 7 + LSB_EXPONENT,
    WeightFormat.MXINT8: 2 * E8M0.BIAS + 12 + LSB_EXPONENT,
}

_MAX_RIGHT = SUM_BITS
"""A right shift by this many places or more rounds every sum to zero."""

_MAX_LEFT = TERM_BITS
"""A left shift by this many places or more overflows for every non-zero sum."""

_SAFE_LEFT = TERM_BITS - SUM_BITS - 1
"""A rounded sum of `SUM_BITS` + 1 bits shifted by this many places still fits."""


class Aligner(wiring.Component):
    """Shift a block sum onto the grid of 2**-24, round half up, clamp to 48 bits.

    term = sum * 2**(weight_scale + act_scale - bias), bias 237 for MXFP4 and 242 for MXINT8.
    The shift is clamped before it is applied.

    Timing: scales, format and enable are wanted one clock before `sum`; the outputs follow
    `sum` by two clocks. One block per clock.

    Members
    -------
    weight_scale, act_scale : In(8)
        E8M0; 0xFF marks the block NaN.
    format : In(WeightFormat)
    enable : In(1)
        Low: the term is zero and raises no flag.
    sum : In(signed(21))
    term : Out(signed(48))
        LSB 2**-24.
    nan : Out(1)
        A scale was NaN; `term` is zero.
    clamped : Out(1)
        The exact term does not fit 48 bits.
    zeroed : Out(1)
        A non-zero sum rounded to zero.
    """

    weight_scale: In(8)
    act_scale: In(8)
    format: In(WeightFormat)
    enable: In(1)
    sum: In(signed(SUM_BITS))
    term: Out(signed(TERM_BITS))
    nan: Out(1)
    clamped: Out(1)
    zeroed: Out(1)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        right, left, enable, nan = self._shift_amounts(m)
        with_half, rounded = Signal(signed(SUM_BITS + 1)), Signal(signed(SUM_BITS + 1))
        m.d.comb += [
            with_half.eq(Cat(0, self.sum).as_signed() >> right),
            rounded.eq(Mux(enable, (with_half >> 1) + with_half[0], 0)),
        ]
        rounded_1 = register(m, rounded, name="rounded_1")
        present = register(m, enable & (self.sum != 0), name="present")
        zeroed = present & (rounded_1 == 0)
        places = Mux(left > _SAFE_LEFT, _MAX_LEFT - left, SUM_BITS + 1)
        self._shift_left(
            m,
            rounded_1,
            register(m, left, name="left_1"),
            register(m, places, name="places", shape=range(SUM_BITS + 2)),
        )
        m.d.comb += [
            self.nan.eq(delay(m, nan, 2, name="nan")),
            self.zeroed.eq(register(m, zeroed, name="zeroed_1")),
        ]
        return m

    def _shift_amounts(self, m: Module) -> tuple[Signal, Signal, Signal, Signal]:
        """Register both shift amounts, whether to add the block, and whether it is NaN."""
        shift = Signal(signed(10))
        right, left = Signal(range(_MAX_RIGHT + 1)), Signal(range(_MAX_LEFT + 1))
        is_nan = Signal()
        bias = Mux(
            self.format == WeightFormat.MXINT8,
            _BIAS[WeightFormat.MXINT8],
            _BIAS[WeightFormat.MXFP4],
        )
        m.d.comb += [
            shift.eq(self.weight_scale + self.act_scale - bias),
            is_nan.eq(E8M0(self.weight_scale).is_nan | E8M0(self.act_scale).is_nan),
            right.eq(Mux(shift >= 0, 0, Mux(shift < -_MAX_RIGHT, _MAX_RIGHT, -shift))),
            left.eq(Mux(shift < 0, 0, Mux(shift > _MAX_LEFT, _MAX_LEFT, shift))),
        ]
        return (
            register(m, right, name="right"),
            register(m, left, name="left"),
            register(m, self.enable & ~is_nan, name="enabled"),
            register(m, self.enable & is_nan, name="is_nan_1"),
        )

    def _shift_left(self, m: Module, rounded: Signal, left: Signal, places: Signal) -> None:
        """Register the clamped term."""
        negative = rounded[-1]
        # |rounded| fits n bits exactly when this, with a marker bit below, is under 2**n.
        excess = Cat(1, Mux(negative, ~rounded, rounded)[:-1])
        overflow = Signal()
        shifted = Signal(signed(TERM_BITS))
        m.d.comb += [
            overflow.eq((rounded != 0) & ((excess >> places) != 0)),
            shifted.eq(rounded << left),
        ]
        limit = Mux(negative, -(1 << (TERM_BITS - 1)), (1 << (TERM_BITS - 1)) - 1)
        term = register(m, Mux(overflow, limit, shifted), name="term_1", shape=signed(TERM_BITS))
        m.d.comb += [
            self.term.eq(term),
            self.clamped.eq(register(m, overflow, name="clamped_1")),
        ]
