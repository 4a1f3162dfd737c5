"""Microscaling (MX) number formats as Amaranth shapes, after the OCP specification v1.0."""

# A Struct's annotations are shapes, which are values rather than types.
# mypy: disable-error-code="valid-type"

from amaranth.hdl import Cat, Mux, Value, signed
from amaranth.lib import data

from pequin.config import BEAT_BYTES, BLOCK


class E2M1(data.Struct):
    """A 4-bit float, the element of MXFP4: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, and a sign.

    Members
    -------
    mantissa
        One fraction bit, with a hidden 1 unless the exponent is 0.
    exponent
        Bias 1; 0 is subnormal.
    sign
        1 is negative. Minus zero (code 8) is legal and counts as zero.
    """

    mantissa: 1
    exponent: 2
    sign: 1

    @property
    def magnitude(self) -> Value:
        """Twice the absolute value, combinational: unsigned(4), 0..12."""
        significand = Cat(self.mantissa, self.exponent.any())
        scaled = Mux(self.exponent[0], significand.shift_left(2), significand.shift_left(1))
        return Mux(self.exponent[1], scaled, significand)

    @property
    def integer(self) -> Value:
        """Twice the value, combinational: signed(5), -12..12."""
        return Mux(self.sign, -self.magnitude, self.magnitude)


class E8M0(data.Struct):
    """A block's scale, 2**(exponent - 127); 0xFF is NaN. There is no zero.

    Members
    -------
    exponent
        Biased exponent.
    """

    BIAS = 127
    """Exponent of 1.0."""

    NAN = 0xFF
    """The code that makes the whole block NaN."""

    exponent: 8

    @property
    def is_nan(self) -> Value:
        """1 when the block is NaN, combinational."""
        return self.exponent == self.NAN


class MXINT8(data.Struct):
    """An 8-bit two's complement element; n has the value n / 64.

    Its two nibbles pass the multiplier array by themselves: n = 16 * high + low.

    Members
    -------
    low
        Low nibble, 0..15.
    high
        High nibble, -8..7.
    """

    FRACTION_BITS = 6
    """Fraction bits of the value."""

    low: 4
    high: signed(4)

    @property
    def integer(self) -> Value:
        """64 times the value: signed(8)."""
        return self.as_value().as_signed()


MXFP4_BEAT = data.ArrayLayout(data.ArrayLayout(E2M1, BLOCK), 2)
"""A payload beat of MXFP4: one block of an even row, then one of the odd row after it."""

MXINT8_BEAT = data.ArrayLayout(MXINT8, BLOCK)
"""A payload beat of MXINT8: one block of one row."""

SCALE_BEAT = data.ArrayLayout(E8M0, BEAT_BYTES)
"""A scale beat: the scales of a chunk's blocks in the order of the payload."""
