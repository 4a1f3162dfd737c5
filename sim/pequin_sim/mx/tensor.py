"""A matrix in an MX format."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK, MAX_PLANES
from pequin.errors import InputError
from pequin_sim.mx.elements import (
    decode_e2m1,
    decode_mxint8,
    e2m1_integers,
    unpack_nibbles,
)
from pequin_sim.mx.scales import SCALE_NAN, decode_scale


class Format(enum.StrEnum):
    """Element format of a matrix."""

    MXFP4 = "mxfp4"
    """E2M1 elements, E8M0 scales."""

    MXINT8 = "mxint8"
    """8-bit two's complement elements with an implied 2**-6, E8M0 scales."""

    @classmethod
    def parse(cls, name: str) -> Format:
        """Return the format called `name`.

        Raises
        ------
        InputError
            There is none; the message lists those there are.
        """
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(cls)
            raise InputError(f"format {name!r} is unknown; choose one of {known}") from None


@dataclass(frozen=True, eq=False)
class MxTensor:
    """A matrix of MX blocks, in one plane or two.

    Parameters
    ----------
    fmt
        Element format; `mxint8` has one plane.
    elements
        int8 [planes, rows, K]: E2M1 codes 0..15 (not values: code 8 is minus zero) or MXINT8
        integers -128..127. K is a positive multiple of 32.
    scales
        uint8 [planes, rows, K / 32]: E8M0 scale bytes.

    Raises
    ------
    InputError
        A shape, a type or an element breaks these rules.
    """

    fmt: Format
    elements: npt.NDArray[np.int8]
    scales: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        """Check shapes, types and codes."""
        object.__setattr__(self, "fmt", Format.parse(self.fmt))
        e, s = self.elements, self.scales
        if e.dtype != np.int8 or s.dtype != np.uint8:
            raise InputError(f"elements must be int8 and scales uint8, not {e.dtype} and {s.dtype}")
        if e.ndim != 3:
            raise InputError(f"elements must be [planes, rows, K], not of shape {e.shape}")
        check_k(e.shape[2])
        expected = (*e.shape[:2], e.shape[2] // BLOCK)
        if s.shape != expected:
            raise InputError(
                f"elements of shape {e.shape} need scales of shape {expected}, not {s.shape}"
            )
        check_planes(self.fmt, e.shape[0])
        if self.fmt is Format.MXFP4 and e.size and (e.min() < 0 or e.max() > 15):
            raise InputError(
                f"mxfp4 elements are E2M1 codes 0..15, but they range from {e.min()} to {e.max()}"
            )

    @classmethod
    def single(cls, fmt: Format | str, elements: npt.ArrayLike, scales: npt.ArrayLike) -> MxTensor:
        """Return a one-plane matrix from elements [rows, K] and scales [rows, K / 32].

        Any whole numbers in range are accepted; see the class for the rest.
        """
        return cls(
            Format.parse(fmt),
            _narrow(elements, np.dtype(np.int8), "elements")[np.newaxis],
            _narrow(scales, np.dtype(np.uint8), "scales")[np.newaxis],
        )

    @property
    def planes(self) -> int:
        """Planes whose sum is the matrix."""
        return self.elements.shape[0]

    @property
    def rows(self) -> int:
        """Rows (outputs of a weight matrix, vectors of an activation matrix)."""
        return self.elements.shape[1]

    @property
    def k(self) -> int:
        """Elements of a row, in one plane."""
        return self.elements.shape[2]

    @property
    def blocks(self) -> int:
        """Blocks of a row, in one plane."""
        return self.scales.shape[2]

    def integers(self) -> npt.NDArray[np.int8]:
        """Return the elements as the integers of the dot product: 2 * value, or 64 * value."""
        return e2m1_integers(self.elements) if self.fmt is Format.MXFP4 else self.elements


def _narrow(x: npt.ArrayLike, dtype: np.dtype[Any], what: str) -> npt.NDArray[Any]:
    """Convert whole numbers to a narrower type, refusing what would wrap."""
    wide = np.asarray(x)
    with np.errstate(invalid="ignore"):
        narrow = wide.astype(dtype)
    if np.any(narrow != wide):
        info = np.iinfo(dtype)
        raise InputError(f"{what} must be integers {info.min} to {info.max}")
    return narrow


def check_k(k: int) -> None:
    """Raise `InputError` unless K is a positive multiple of the block size."""
    if k <= 0 or k % BLOCK:
        raise InputError(
            f"K must be a positive multiple of the block size {BLOCK}, not {k}; pad with zeros"
        )


def check_planes(fmt: Format, planes: int) -> None:
    """Raise `InputError` unless the format can have that many planes."""
    limit = MAX_PLANES if fmt is Format.MXFP4 else 1
    if not 1 <= planes <= limit:
        allowed = "1" if limit == 1 else f"1 to {limit}"
        raise InputError(f"{fmt} takes planes = {allowed}, not {planes}")


def reject_nan_scales(tensor: MxTensor, what: str = "weights") -> None:
    """Raise `InputError` when a ready-made matrix has a NaN scale, naming its place."""
    places = np.argwhere(tensor.scales == SCALE_NAN)
    if len(places):
        plane, row, block = places[0]
        raise InputError(
            f"{what}: the scale of row {row}, block {block} (columns {block * BLOCK} to "
            f"{block * BLOCK + BLOCK - 1}), plane {plane} is 0xFF, which is NaN; "
            f"{len(places)} of {tensor.scales.size} scales are"
        )


def dequantize(tensor: MxTensor) -> npt.NDArray[np.float64]:
    """Return the values [rows, K] of a matrix in float64, planes added, NaN blocks as NaN."""
    decode = decode_e2m1 if tensor.fmt is Format.MXFP4 else decode_mxint8
    scales = np.repeat(decode_scale(tensor.scales), BLOCK, axis=2)
    return np.sum(decode(tensor.elements) * scales, axis=0)


def from_checkpoint(blocks: npt.ArrayLike, scales: npt.ArrayLike) -> MxTensor:
    """Return the MXFP4 matrix of a checkpoint's packed blocks and scales.

    Parameters
    ----------
    blocks
        uint8 [rows, K / 32, 16]: two codes per byte, the low nibble the even element.
    scales
        uint8 [rows, K / 32]: E8M0 scale bytes.

    Raises
    ------
    InputError
        Shapes or types are wrong, or a scale is NaN.
    """
    data = np.asarray(blocks)
    if data.dtype != np.uint8 or data.ndim != 3 or data.shape[2] != BLOCK // 2:
        raise InputError(
            f"blocks must be uint8 [rows, K / {BLOCK}, {BLOCK // 2}], not {data.dtype} of shape "
            f"{data.shape}"
        )
    codes = unpack_nibbles(data).reshape(data.shape[0], -1)
    scale_bytes = np.asarray(scales)
    if scale_bytes.dtype != np.uint8:
        raise InputError(f"scales must be uint8, not {scale_bytes.dtype}")
    tensor = MxTensor.single(Format.MXFP4, codes, scale_bytes)
    reject_nan_scales(tensor)
    return tensor
