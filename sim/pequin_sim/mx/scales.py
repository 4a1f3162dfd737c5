"""E8M0 block scales, and the rules that choose them."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

SCALE_BIAS = 127
"""An E8M0 scale byte s below 255 is 2**(s - 127)."""

SCALE_ZERO = 0x00
"""2**-127, the smallest scale. E8M0 has no zero; an all-zero block gets this one."""

SCALE_ONE = 0x7F
"""2**0."""

SCALE_MAX = 0xFE
"""2**127, the largest scale."""

SCALE_NAN = 0xFF
"""Marks every element of the block as not a number."""


class ScaleRule(enum.StrEnum):
    """How the weight quantizer chooses a block's scale exponent.

    `emax` is the exponent of the format's largest power of two (E2M1 2, MXINT8 0).
    """

    FLOOR = "floor"
    """floor(log2(amax)) - emax: the conversion of the OCP specification. Elements may saturate."""

    EVEN = "even"
    """As `floor`, after amax is rounded to nearest even at the format's significand width."""

    MSE = "mse"
    """The exponent with the least squared error over the block; the lowest one on a tie."""


def floor_log2(x: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return floor(log2(|x|)), taken from the exponent bits of the float64 value.

    Zero and float64 subnormals give -1023, NaN and infinity 1024.
    """
    bits = np.asarray(x, dtype=np.float64).view(np.int64)
    return ((bits >> 52) & 0x7FF) - 1023


def encode_scale(exponent: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Return the scale bytes of 2**exponent, clamped to 0x00..0xFE."""
    return np.clip(np.asarray(exponent) + SCALE_BIAS, SCALE_ZERO, SCALE_MAX).astype(np.uint8)


def decode_scale(scales: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the values of scale bytes; 0xFF gives NaN."""
    codes = np.asarray(scales, dtype=np.uint8)
    values = np.ldexp(1.0, codes.astype(np.int32) - SCALE_BIAS)
    return np.where(codes == SCALE_NAN, np.nan, values)
