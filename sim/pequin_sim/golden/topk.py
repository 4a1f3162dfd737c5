"""Golden model of the running arg-max and top-k registers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pequin.errors import InputError


@dataclass(frozen=True, eq=False)
class TopK:
    """The best results of each vector, best first.

    Parameters
    ----------
    indices
        int64 [vectors, k]: row numbers; -1 where fewer than k results are numbers.
    values_u32
        uint32 [vectors, k]: their fp32 bits; 0 where there is none.
    counts
        int64 [vectors]: entries that are filled.
    """

    indices: npt.NDArray[np.int64]
    values_u32: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.int64]


def top_k(values_u32: npt.NDArray[np.uint32], k: int) -> TopK:
    """Select each vector's k largest results; the lowest row wins a tie.

    A NaN is never selected: its error flag is the report. Both zeros compare equal.

    Parameters
    ----------
    values_u32
        uint32 [rows, vectors]: fp32 bits of the results.
    k
        Entries to keep; 1 is the arg-max.

    Raises
    ------
    InputError
        `values_u32` is not a uint32 matrix, or k is below 1.
    """
    if values_u32.dtype != np.uint32 or values_u32.ndim != 2:
        raise InputError(
            f"values must be uint32 [rows, vectors], not {values_u32.dtype} of shape "
            f"{values_u32.shape}"
        )
    if k < 1:
        raise InputError(f"top-k keeps at least one entry, not {k}")
    rows, vectors = values_u32.shape
    values = values_u32.view(np.float32).T
    # A stable sort keeps rows of equal value in order; NaN sorts behind everything.
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    filled = np.minimum(k, rows - np.isnan(values).sum(axis=1))
    valid = np.arange(k) < filled[:, np.newaxis]
    indices = np.full((vectors, k), -1, dtype=np.int64)
    indices[:, : order.shape[1]] = order
    indices[~valid] = -1
    bits = np.take_along_axis(values_u32.T, np.where(valid, indices, 0), axis=1)
    return TopK(indices, np.where(valid, bits, np.uint32(0)), filled)


def arg_max(values_u32: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return each vector's row of the largest value, lowest row first, -1 if all are NaN."""
    return top_k(values_u32, 1).indices[:, 0]
