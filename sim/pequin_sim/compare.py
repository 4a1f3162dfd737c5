"""Bit-for-bit comparison, with a report of the first difference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def first_difference(
    expected: npt.ArrayLike,
    actual: npt.ArrayLike,
    name: str = "values",
    axes: Sequence[str] = (),
) -> str | None:
    """Describe the first place at which two arrays differ, or return None.

    Floating-point arrays are compared by their bits, so that a NaN equals itself and the two
    zeros differ.

    Parameters
    ----------
    expected, actual
        Arrays of the same shape, both of integers, both of booleans, or both of one
        floating-point type.
    name
        What the arrays hold.
    axes
        Names of the indices, for example ("row", "vector"); "axis 0" and so on when left out.

    Returns
    -------
    str or None
        For example "values differ at row 3, vector 1: expected 0x3f800000 (1.0), actual
        0x3f800001 (1.0000001); 5 of 64 differ".
    """
    want, have = np.asarray(expected), np.asarray(actual)
    if want.shape != have.shape:
        return f"{name} differ in shape: expected {want.shape}, actual {have.shape}"
    if "f" in (want.dtype.kind, have.dtype.kind) and want.dtype != have.dtype:
        return f"{name} differ in type: expected {want.dtype}, actual {have.dtype}"
    places = np.argwhere(_bits(want) != _bits(have))
    if not len(places):
        return None
    index = tuple(int(i) for i in places[0])
    labels = [*axes[: want.ndim], *(f"axis {i}" for i in range(len(axes), want.ndim))]
    where = ", ".join(f"{label} {i}" for label, i in zip(labels, index, strict=True))
    at = f" at {where}" if where else ""
    return (
        f"{name} differ{at}: expected {_show(want[index])}, actual {_show(have[index])}; "
        f"{len(places)} of {want.size} differ"
    )


def require_same(
    expected: npt.ArrayLike,
    actual: npt.ArrayLike,
    name: str = "values",
    axes: Sequence[str] = (),
) -> None:
    """Raise `AssertionError` with the text of `first_difference` unless the arrays are equal."""
    message = first_difference(expected, actual, name, axes)
    if message is not None:
        raise AssertionError(message)


def _bits(x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    if x.dtype.kind != "f":
        return x
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)


def _show(value: np.generic) -> str:
    """Format one value: hexadecimal bits, then the value a person reads."""
    if value.dtype.kind == "f":
        bits = int(_bits(np.asarray(value))[()])
        return f"0x{bits:0{2 * value.dtype.itemsize}x} ({value!s})"
    number = int(value)
    if number < 0:
        return f"{number} (0x{number & ((1 << 8 * value.dtype.itemsize) - 1):x})"
    return f"0x{number:x} ({number})"
