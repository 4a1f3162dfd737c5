"""Elements of MX blocks: E2M1 codes and MXINT8 integers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

E2M1_VALUES: npt.NDArray[np.float64] = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
)
"""Value of each E2M1 code; bit 3 is the sign, so code 8 is minus zero."""
E2M1_VALUES.setflags(write=False)

E2M1_MAX = 6.0
"""Largest E2M1 magnitude."""

E2M1_EMAX = 2
"""Exponent of the largest E2M1 magnitude."""

MXINT8_FRACTION_BITS = 6
"""An MXINT8 element n has the value n / 2**6."""

MXINT8_LIMIT = 127
"""Quantizers clamp MXINT8 elements to +-127; -128 is a legal code that they never write."""

MXINT8_EMAX = 0
"""Exponent of the largest power of two that is an MXINT8 element."""

_E2M1_INTEGERS = (2 * E2M1_VALUES).astype(np.int8)

# Midpoints between neighbouring magnitudes. A value on a midpoint goes to the neighbour whose
# mantissa bit is 0, so the comparison alternates between > and >=.
_TIES_DOWN = (0.25, 1.25, 2.5, 5.0)
_TIES_UP = (0.75, 1.75, 3.5)


def encode_e2m1(x: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Round values to E2M1 codes: nearest even, saturated at +-6, sign of zero kept.

    Parameters
    ----------
    x
        Finite or infinite values in units of the block's scale, any shape. A NaN has no E2M1
        code; the quantizers reject it before they come here.

    Returns
    -------
    numpy.ndarray
        Codes 0..15, uint8, the shape of `x`.
    """
    values = np.asarray(x)
    magnitude = np.abs(values)
    code = np.signbit(values).astype(np.uint8) << 3
    for midpoint in _TIES_DOWN:
        code += magnitude > midpoint
    for midpoint in _TIES_UP:
        code += magnitude >= midpoint
    return code


def decode_e2m1(codes: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the values of E2M1 codes 0..15 (float64, the shape of `codes`)."""
    return E2M1_VALUES[np.asarray(codes)]


def e2m1_integers(codes: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """Return twice the values of E2M1 codes 0..15: exact integers in -12..12."""
    return _E2M1_INTEGERS[np.asarray(codes)]


def encode_mxint8(x: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """Round values to MXINT8 elements: nearest even, clamped to +-127.

    Parameters
    ----------
    x
        Values in units of the block's scale, any shape, no NaN.

    Returns
    -------
    numpy.ndarray
        Elements n, each of the value n / 64; int8, the shape of `x`.
    """
    scaled = np.asarray(x, dtype=np.float64) * 2.0**MXINT8_FRACTION_BITS
    return np.clip(np.rint(scaled), -MXINT8_LIMIT, MXINT8_LIMIT).astype(np.int8)


def decode_mxint8(elements: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the values n / 64 of MXINT8 elements n (float64, the shape of `elements`)."""
    return np.asarray(elements) * 2.0**-MXINT8_FRACTION_BITS


def pack_nibbles(codes: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Pack 4-bit codes [..., 2n] into bytes [..., n]; the low nibble is the even element."""
    pairs = np.asarray(codes, dtype=np.uint8)
    return pairs[..., 0::2] | (pairs[..., 1::2] << np.uint8(4))


def unpack_nibbles(data: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Unpack bytes [..., n] into 4-bit codes [..., 2n]; inverse of `pack_nibbles`."""
    packed = np.asarray(data, dtype=np.uint8)
    codes = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), dtype=np.uint8)
    codes[..., 0::2] = packed & 0xF
    codes[..., 1::2] = packed >> 4
    return codes
