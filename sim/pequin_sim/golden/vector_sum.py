"""Golden order-free sums: each term rounded half up to a fixed grid, added exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pequin_sim.golden.fp32 import F32, flush, from_bits

SUM_LSB = -32
"""Terms and sums are in units of 2**SUM_LSB."""

TERM_BITS = 64
"""Bits of a term, two's complement."""

SUM_BITS = 80
"""Bits of a sum: 65,536 terms cannot overflow it."""


@np.errstate(all="ignore")
def fixed_terms(
    x: npt.ArrayLike, *, width: int = TERM_BITS
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Round fp32 values half up to the grid.

    Returns
    -------
    terms
        int64, in units of 2**-32; 0 where the term overflows.
    overflow
        True where the magnitude is 2**(width - 33) or more, or the value is NaN.
    """
    # A float32 has 24 significant bits: scaled by 2**32 it is exact, and a fraction of a half
    # can be added exactly whenever there is a fraction.
    scaled = flush(x).astype(np.float64) * 2.0**-SUM_LSB
    overflow = ~(np.abs(scaled) < 2.0 ** (width - 1))
    safe = np.where(overflow, 0.0, scaled)
    fine = np.abs(safe) < 2.0**24
    terms = np.where(fine, np.floor(np.where(fine, safe, 0.0) + 0.5), safe)
    return terms.astype(np.int64), overflow


def fixed_sum(terms: npt.NDArray[np.int64]) -> int:
    """Add terms exactly, as a Python integer."""
    high, low = terms >> 32, terms & 0xFFFFFFFF
    return (int(high.sum()) << 32) + int(low.sum())


def sum_to_fp32(total: int) -> F32:
    """Round a sum to fp32, nearest even; zero is +0."""
    magnitude = abs(total)
    drop = max(magnitude.bit_length() - 24, 0)
    kept, rest = magnitude >> drop, magnitude & ((1 << drop) - 1)
    half = (1 << drop) >> 1
    if drop and (rest > half or (rest == half and kept & 1)):
        kept += 1
    if not kept:
        return from_bits(np.uint32(0)).reshape(())
    value = np.float64(kept) * 2.0 ** (drop + SUM_LSB)
    return np.asarray(np.float32(-value if total < 0 else value))
