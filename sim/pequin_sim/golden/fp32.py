"""Golden fp32 arithmetic: IEEE-754 binary32, nearest even, subnormals flushed, one NaN.

Subnormal operands count as zeros of their sign. A result becomes a zero of its sign exactly when
its exact magnitude, before rounding, is below 2**-126. All functions are vectorised, take and
return float32 arrays, and never warn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

CANONICAL_NAN = 0x7FC00000
"""Bits of the one NaN that arithmetic produces."""

MIN_NORMAL = 2.0**-126
"""Smallest magnitude that is not flushed."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _quiet(function: _Function) -> _Function:
    return np.errstate(all="ignore")(function)


def to_bits(x: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """Return the bits of float32 values."""
    return np.array(x, dtype=np.float32, order="C").view(np.uint32)


def from_bits(bits: npt.ArrayLike) -> F32:
    """Return the float32 values of uint32 bits."""
    return np.array(bits, dtype=np.uint32, order="C").view(np.float32)


def flush(x: npt.ArrayLike) -> F32:
    """Return float32 values with subnormals made zero (sign kept) and every NaN canonical."""
    bits = np.array(x, dtype=np.float32, order="C", ndmin=1).view(np.uint32)
    bits = np.where(bits & 0x7F800000 == 0, bits & np.uint32(0x80000000), bits)
    bits = np.where(bits & 0x7FFFFFFF > 0x7F800000, np.uint32(CANONICAL_NAN), bits)
    return bits.astype(np.uint32).view(np.float32).reshape(np.shape(x))


@_quiet
def add(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """Return a + b. A sum in the subnormal range is exact, so flushing it afterwards is right."""
    return flush(flush(a) + flush(b))


@_quiet
def sub(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """Return a - b."""
    return flush(flush(a) - flush(b))


@_quiet
def mul(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """Return a * b; the product is exact in float64, so it is flushed before it is rounded."""
    exact = np.asarray(flush(a).astype(np.float64) * flush(b).astype(np.float64))
    small = np.abs(exact) < MIN_NORMAL
    return flush(np.where(small, np.copysign(0.0, exact), exact).astype(np.float32))


def order_key(x: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return integers that order float32 values: -0 below +0, NaN above infinity."""
    bits = to_bits(flush(x)).astype(np.int64)
    return np.where(bits >> 31 == 1, 0xFFFFFFFF - bits, bits + 0x80000000)


def from_order_key(key: npt.ArrayLike) -> F32:
    """Return the float32 values of `order_key`'s integers."""
    k = np.asarray(key, dtype=np.int64)
    return from_bits(np.where(k < 0x80000000, 0xFFFFFFFF - k, k - 0x80000000))


def maximum(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """Return the larger of two; NaN when either is NaN; +0 is larger than -0."""
    return from_order_key(np.maximum(order_key(a), order_key(b)))


@_quiet
def compare(a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Return 1 for a < b, 2 for a == b, 4 for a > b, 8 for unordered; the two zeros are equal."""
    x, y = flush(a), flush(b)
    unordered = np.isnan(x) | np.isnan(y)
    code = (x < y) * 1 + (x == y) * 2 + (x > y) * 4 + unordered * 8
    return np.asarray(code, dtype=np.uint8)


def from_int(x: npt.ArrayLike) -> F32:
    """Return int32 values rounded to float32, nearest even."""
    return np.asarray(np.asarray(x, dtype=np.int32).astype(np.float64).astype(np.float32))


@_quiet
def to_int(x: npt.ArrayLike) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Round to int32, nearest even.

    Returns
    -------
    values
        int32; values out of range and infinities saturate, NaN gives 0.
    invalid
        True where the input was NaN or did not fit.
    """
    exact = flush(x).astype(np.float64)
    nan = np.isnan(exact)
    rounded = np.rint(np.where(nan, 0.0, exact))
    invalid = nan | (rounded > 2**31 - 1) | (rounded < -(2**31))
    return np.clip(rounded, -(2**31), 2**31 - 1).astype(np.int32), invalid
