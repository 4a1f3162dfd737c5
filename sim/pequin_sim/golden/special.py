"""Golden exp2, reciprocal and reciprocal square root: the hardware's sequence in numpy.

Each function reduces its argument to x in [0, 1), takes the chord of one of 1,024 segments in
units of 2**-26, and rounds half up to 24 bits. docs/numerics.md states the steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin_sim.golden.fp32 import CANONICAL_NAN, F32, flush, from_bits, to_bits

SEGMENTS = 1024
"""Chords per reduced range."""

GRID_BITS = 26
"""Fraction bits of table values, and of exp2's argument."""

MAX_RELATIVE_ERROR = 2.0**-21
"""Stated bound of all three functions; tests measure it."""

_I64 = npt.NDArray[np.int64]

_REAL: dict[str, Callable[[Any], Any]] = {
    "exp2": np.exp2,
    "reciprocal": lambda x: 1 / (1 + x),
    "rsqrt": lambda x: 1 / np.sqrt(1 + x),
    "rsqrt_odd": lambda x: 1 / np.sqrt(2 * (1 + x)),
}


@functools.lru_cache(maxsize=4)
def points(name: str) -> _I64:
    """Return the 1,025 end points of a function's chords, in units of 2**-26, as int64."""
    x = np.arange(SEGMENTS + 1, dtype=np.longdouble) / SEGMENTS
    return np.floor(_REAL[name](x) * 2.0**GRID_BITS + 0.5).astype(np.int64)


def _chord(name: str, segment: _I64, offset: _I64) -> _I64:
    """Interpolate; `offset` is the place in the segment in units of 2**-16 of it."""
    table = points(name)
    low, high = table[segment], table[segment + 1]
    change = (np.abs(high - low) * offset) >> 16
    return np.where(high >= low, low + change, low - change)


def _assemble(total: _I64, exponent: _I64, sign: _I64) -> npt.NDArray[np.uint32]:
    """Round totals in [2**25, 2**27) to fp32; `exponent` is the field for totals from 2**26.

    Results below 2**-126 before rounding become zero, those of 2**128 or more infinite.
    """
    low = total < 1 << GRID_BITS
    field = exponent - low
    mantissa = (np.where(low, total >> 1, total >> 2) + 1) >> 1
    carried = field + (mantissa >> 24)
    fraction = np.where(mantissa >> 24 == 1, 0, mantissa & 0x7FFFFF)
    bits = np.where(field < 1, 0, np.where(carried > 254, 0x7F800000, carried << 23 | fraction))
    return (bits | sign << 31).astype(np.uint32)


def _fields(x: F32) -> tuple[_I64, _I64, _I64]:
    bits = to_bits(x).astype(np.int64)
    return bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF


def exp2(x: npt.ArrayLike) -> F32:
    """Return 2**x."""
    value = flush(np.atleast_1d(x))
    sign, exponent, fraction = _fields(value)
    significand = np.where(exponent > 0, fraction | 1 << 23, 0) << 10
    magnitude = significand >> np.clip(134 - exponent, 0, 63)
    fixed = np.where(sign == 1, -magnitude, magnitude)
    whole, place = fixed >> GRID_BITS, fixed & ((1 << GRID_BITS) - 1)
    bits = _assemble(_chord("exp2", place >> 16, place & 0xFFFF), whole + 127, np.zeros_like(sign))
    huge = exponent > 134
    bits = np.where(huge, np.where(sign == 1, 0, 0x7F800000), bits)
    bits = np.where(np.isnan(value), CANONICAL_NAN, bits)
    return from_bits(bits).reshape(np.shape(x))


def reciprocal(x: npt.ArrayLike) -> F32:
    """Return 1 / x; a zero gives infinity of its sign and an infinity zero of its sign."""
    value = flush(np.atleast_1d(x))
    sign, exponent, fraction = _fields(value)
    total = _chord("reciprocal", fraction >> 13, (fraction & 0x1FFF) << 3)
    bits = _assemble(total, 254 - exponent, sign)
    bits = np.where(exponent == 0, 0x7F800000 | sign << 31, bits)
    bits = np.where(np.isinf(value), sign << 31, bits)
    bits = np.where(np.isnan(value), CANONICAL_NAN, bits)
    return from_bits(bits).reshape(np.shape(x))


def rsqrt(x: npt.ArrayLike) -> F32:
    """Return 1 / sqrt(x); either zero gives +infinity, a negative number NaN."""
    value = flush(np.atleast_1d(x))
    sign, exponent, fraction = _fields(value)
    odd = exponent & 1 == 0
    segment, offset = fraction >> 13, (fraction & 0x1FFF) << 3
    total = np.where(odd, _chord("rsqrt_odd", segment, offset), _chord("rsqrt", segment, offset))
    bits = _assemble(total, (381 - exponent + odd) >> 1, np.zeros_like(sign))
    bits = np.where(np.isinf(value), 0, bits)
    bits = np.where((sign == 1) | np.isnan(value), CANONICAL_NAN, bits)
    bits = np.where(exponent == 0, 0x7F800000, bits)
    return from_bits(bits).reshape(np.shape(x))
