"""Golden model of the MAC array: exact block sums on a fixed grid, read out as fp32."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK, LSB_EXPONENT, TERM_BITS
from pequin.errors import InputError
from pequin_sim.mx import SCALE_BIAS, SCALE_NAN, Format, MxTensor

CANONICAL_NAN = 0x7FC00000
"""The one fp32 NaN that a NaN result reads out as."""

TERM_MAX = (1 << (TERM_BITS - 1)) - 1
"""Largest term and result, in units of 2**-24."""

TERM_MIN = -(1 << (TERM_BITS - 1))
"""Smallest term and result, in units of 2**-24."""

# Fraction bits of an element product: E2M1 integers are 2 * value and MXINT8 ones 64 * value.
_PRODUCT_FRACTION_BITS = {Format.MXFP4: 1 + 6, Format.MXINT8: 6 + 6}

_MAX_BLOCKS = 1 << 15
"""Terms of 48 bits whose sum is certain to fit an int64 (2**15 of them, both planes)."""

_SLAB_TERMS = 1 << 17
"""Terms computed at a time, so that the temporaries stay in a cache."""


class MacFlag(enum.IntFlag):
    """Conditions that the array reports with each result."""

    NAN = 1
    """A block with scale 0xFF took part; the value is the canonical NaN."""

    TERM_CLAMPED = 2
    """A term did not fit 48 bits and was clamped."""

    RESULT_CLAMPED = 4
    """The sum of the terms did not fit 48 bits and was clamped at read-out."""


@dataclass(frozen=True, eq=False)
class MacResult:
    """What the array delivers for every row and vector.

    Parameters
    ----------
    values_u32
        uint32 [rows, vectors]: fp32 bits.
    flags
        uint8 [rows, vectors]: `MacFlag` bits.
    zero_counts
        int64 [rows, vectors]: block sums that were not zero but rounded to a term of zero.
    fixed
        int64 [rows, vectors]: the clamped sums in units of 2**-24. NaN blocks add nothing.
    """

    values_u32: npt.NDArray[np.uint32]
    flags: npt.NDArray[np.uint8]
    zero_counts: npt.NDArray[np.int64]
    fixed: npt.NDArray[np.int64]

    @property
    def values(self) -> npt.NDArray[np.float32]:
        """The values as float32 [rows, vectors]."""
        return self.values_u32.view(np.float32)

    @property
    def zero_count(self) -> int:
        """Rounded-to-zero terms of all results."""
        return int(self.zero_counts.sum())

    @property
    def error(self) -> bool:
        """True when any result has any flag set."""
        return bool(self.flags.any())


@dataclass(frozen=True, eq=False)
class Terms:
    """Aligned block sums, each array [blocks, rows, vectors]."""

    values: npt.NDArray[np.int64]
    clamped: npt.NDArray[np.bool_]
    nan: npt.NDArray[np.bool_]
    rounded_to_zero: npt.NDArray[np.bool_]


def mac_array(weights: MxTensor, acts: MxTensor) -> MacResult:
    """Multiply weights by activation vectors as the MAC array does.

    Parameters
    ----------
    weights
        [planes, rows, K] in either format; the planes' products are added.
    acts
        MXINT8 [1, vectors, K].

    Raises
    ------
    InputError
        Activations are not MXINT8, the two K differ, or K is beyond exact summation.
    """
    _check_operands(weights, acts)
    shape = (weights.rows, acts.rows)
    total = np.zeros(shape, dtype=np.int64)
    flags = np.zeros(shape, dtype=np.uint8)
    zeros = np.zeros(shape, dtype=np.int64)
    step = max(1, _SLAB_TERMS // (weights.blocks * max(1, acts.rows)))
    for start in range(0, weights.rows, step):
        rows = slice(start, start + step)
        for plane in range(weights.planes):
            terms = _slab_terms(weights, plane, rows, acts)
            total[rows] += terms.values.sum(axis=0)
            zeros[rows] += np.count_nonzero(terms.rounded_to_zero, axis=0)
            flags[rows] |= terms.clamped.any(axis=0) * np.uint8(MacFlag.TERM_CLAMPED)
            flags[rows] |= terms.nan.any(axis=0) * np.uint8(MacFlag.NAN)
    fixed = np.clip(total, TERM_MIN, TERM_MAX)
    flags |= (fixed != total) * np.uint8(MacFlag.RESULT_CLAMPED)
    bits = fixed_to_fp32(fixed)
    bits[(flags & MacFlag.NAN) != 0] = CANONICAL_NAN
    return MacResult(bits, flags, zeros, fixed)


def block_sums(weights: npt.NDArray[np.int8], acts: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Return the exact dot products of blocks.

    Parameters
    ----------
    weights
        Integer elements [rows, K].
    acts
        Integer elements [vectors, K].

    Returns
    -------
    numpy.ndarray
        int64 [K / 32, rows, vectors].
    """
    w = weights.reshape(weights.shape[0], -1, BLOCK).transpose(1, 0, 2)
    a = acts.reshape(acts.shape[0], -1, BLOCK).transpose(1, 2, 0)
    # float32 holds every partial sum exactly (at most 32 * 128 * 128 = 2**19), so the matrix
    # library may add in any order.
    return np.matmul(w.astype(np.float32), a.astype(np.float32)).astype(np.int64)


def align(
    sums: npt.NDArray[np.int64],
    weight_scales: npt.NDArray[np.uint8],
    act_scales: npt.NDArray[np.uint8],
    fmt: Format,
) -> Terms:
    """Shift block sums onto the accumulator's grid, round half up and clamp to 48 bits.

    Parameters
    ----------
    sums
        Exact block sums S, |S| below 2**20.
    weight_scales, act_scales
        Scale bytes that broadcast against `sums`.
    fmt
        Format of the weights.
    """
    sw, sa = weight_scales.astype(np.int64), act_scales.astype(np.int64)
    nan = (sw == SCALE_NAN) | (sa == SCALE_NAN)
    shift = sw + sa - (2 * SCALE_BIAS + _PRODUCT_FRACTION_BITS[fmt] + LSB_EXPONENT)
    live = np.where(nan, 0, sums)
    # Beyond these limits the outcome no longer changes: every non-zero sum clamps at 48, and
    # every sum below 2**20 rounds to zero at -22.
    left = np.clip(shift, 0, TERM_BITS)
    right = np.clip(-shift, 0, 22)
    above, below = live > TERM_MAX >> left, live < -(-TERM_MIN >> left)
    half = (np.int64(1) << right) >> 1
    terms = ((live << left) + half) >> right
    terms = np.where(above, TERM_MAX, np.where(below, TERM_MIN, terms))
    return Terms(
        terms, above | below, np.broadcast_to(nan, terms.shape), (live != 0) & (terms == 0)
    )


def fixed_to_fp32(fixed: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the fp32 bits of fixed-point results in units of 2**-24, nearest even; 0 is +0."""
    # 48 bits are exact in float64, and so is the product with a power of two: one rounding.
    exact = fixed.astype(np.float64) * 2.0**LSB_EXPONENT
    return exact.astype(np.float32).view(np.uint32)


def _slab_terms(weights: MxTensor, plane: int, rows: slice, acts: MxTensor) -> Terms:
    slab = MxTensor(
        weights.fmt,
        weights.elements[plane : plane + 1, rows],
        weights.scales[plane : plane + 1, rows],
    )
    sums = block_sums(slab.integers()[0], acts.elements[0])
    sw = slab.scales[0].T[:, :, np.newaxis]
    sa = acts.scales[0].T[:, np.newaxis, :]
    return align(sums, sw, sa, weights.fmt)


def _check_operands(weights: MxTensor, acts: MxTensor) -> None:
    if acts.fmt is not Format.MXINT8:
        raise InputError(f"activations must be mxint8, not {acts.fmt}")
    if weights.k != acts.k:
        raise InputError(
            f"weights have K = {weights.k} but activations have K = {acts.k}; they must be equal"
        )
    if weights.planes * weights.blocks > _MAX_BLOCKS:
        raise InputError(
            f"a row of {weights.planes} x {weights.blocks} blocks is too long for exact sums; "
            f"the limit is {_MAX_BLOCKS} blocks"
        )
