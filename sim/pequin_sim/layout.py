"""The packed weight stream: how a matrix lies in memory and passes the MAC array.

`docs/layout.md` specifies the order and has test vectors. A stream is an array of beats, uint8
[beats, 32]. A scaled stream is a sequence of chunks, each one scale beat and up to 32 blocks of
payload; an unscaled stream has payload only and every scale is 1.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pequin.config import BEAT_BYTES, BLOCK
from pequin.errors import InputError
from pequin_sim.mx import SCALE_ONE, SCALE_ZERO, Format, MxTensor, pack_nibbles, unpack_nibbles
from pequin_sim.mx.tensor import check_k, check_planes

_Integer = TypeVar("_Integer", bound=np.integer)

CHUNK_BLOCKS = BEAT_BYTES
"""Blocks of a whole chunk: one for every byte of its scale beat."""


class BeatCount(NamedTuple):
    """Beats of a stream."""

    payload: int
    """Beats of elements."""

    scale: int
    """Beats of scales."""

    @property
    def total(self) -> int:
        """All beats."""
        return self.payload + self.scale


def blocks_per_beat(fmt: Format) -> int:
    """Return how many blocks one payload beat holds: 2 of MXFP4, 1 of MXINT8."""
    return 2 if fmt is Format.MXFP4 else 1


def beat_count(
    rows: int, k: int, fmt: Format | str, planes: int = 1, scaled: bool = True
) -> BeatCount:
    """Return the beats of a matrix's stream in closed form.

    Parameters
    ----------
    rows, k
        Shape of the matrix (elements); K a positive multiple of 32.
    fmt, planes
        Format and planes.
    scaled
        False for a stream without scale beats.

    Raises
    ------
    InputError
        The shape is not that of a matrix, or the format does not have that many planes.
    """
    fmt = Format.parse(fmt)
    check_k(k)
    check_planes(fmt, planes)
    if rows < 1:
        raise InputError(f"a weight matrix has at least one row, not {rows}")
    per_beat = blocks_per_beat(fmt)
    payload = -(-rows // per_beat) * planes * (k // BLOCK)
    scale = -(-payload * per_beat // CHUNK_BLOCKS) if scaled else 0
    return BeatCount(payload, scale)


def pack_weights(tensor: MxTensor, scaled: bool = True) -> npt.NDArray[np.uint8]:
    """Return the stream of a weight matrix, uint8 [beats, 32].

    Parameters
    ----------
    tensor
        Weights; NaN scales are packed as they are.
    scaled
        False leaves the scale beats out; every scale must then be 0x7F.

    Raises
    ------
    InputError
        There are no rows, or `scaled` is False and a scale is not 1.
    """
    beats = beat_count(tensor.rows, tensor.k, tensor.fmt, tensor.planes, scaled)
    if not scaled and np.any(tensor.scales != SCALE_ONE):
        raise InputError("an unscaled stream needs every scale to be 0x7F, which is 1.0")
    payload = _payload_order(tensor).reshape(beats.payload, BEAT_BYTES)
    if not scaled:
        return payload
    per_beat = blocks_per_beat(tensor.fmt)
    scales = np.full((beats.scale, CHUNK_BLOCKS), SCALE_ZERO, dtype=np.uint8)
    scales.reshape(-1)[: beats.payload * per_beat] = _scale_order(tensor)
    stream = np.empty((beats.total, BEAT_BYTES), dtype=np.uint8)
    is_scale = scale_beats(beats, tensor.fmt)
    stream[is_scale] = scales
    stream[~is_scale] = payload
    return stream


def unpack_weights(
    stream: npt.NDArray[np.uint8],
    rows: int,
    k: int,
    fmt: Format | str,
    planes: int = 1,
    scaled: bool = True,
) -> MxTensor:
    """Return the matrix that a stream holds; inverse of `pack_weights`.

    Raises
    ------
    InputError
        The stream has not the beats of such a matrix, or its padding is not zero.
    """
    fmt = Format.parse(fmt)
    beats = beat_count(rows, k, fmt, planes, scaled)
    if stream.dtype != np.uint8 or stream.shape != (beats.total, BEAT_BYTES):
        raise InputError(
            f"the stream of a {rows} x {k} {fmt} matrix, planes = {planes}, is uint8 "
            f"[{beats.total}, {BEAT_BYTES}], not {stream.dtype} {list(stream.shape)}"
        )
    is_scale = scale_beats(beats, fmt) if scaled else np.zeros(beats.total, dtype=np.bool_)
    per_beat = blocks_per_beat(fmt)
    used = beats.payload * per_beat
    scales = stream[is_scale].reshape(-1) if scaled else np.full(used, SCALE_ONE, dtype=np.uint8)
    codes = stream[~is_scale]
    elements = unpack_nibbles(codes).view(np.int8) if per_beat == 2 else codes.view(np.int8)
    padded = -(-rows // per_beat) * per_beat
    order = (padded // per_beat, planes, k // BLOCK, per_beat)
    e = elements.reshape(*order, BLOCK).transpose(1, 0, 3, 2, 4).reshape(planes, padded, k)
    s = scales[:used].reshape(order).transpose(1, 0, 3, 2).reshape(planes, padded, k // BLOCK)
    idle = s[:, rows:] if scaled else s[:, :0]
    if scales[used:].any() or e[:, rows:].any() or idle.any():
        raise InputError("the stream's padding (last chunk or odd last row) is not zero")
    return MxTensor(fmt, e[:, :rows].copy(), s[:, :rows].copy())


def scale_beats(beats: BeatCount, fmt: Format) -> npt.NDArray[np.bool_]:
    """Return bool [beats]: which beats of a scaled stream are scale beats."""
    period = 1 + CHUNK_BLOCKS // blocks_per_beat(fmt)
    return np.arange(beats.total) % period == 0


def _payload_order(tensor: MxTensor) -> npt.NDArray[np.uint8]:
    """Return the payload bytes in the order of the stream."""
    blocks = tensor.elements.reshape(tensor.planes, tensor.rows, tensor.blocks, BLOCK)
    if tensor.fmt is Format.MXINT8:
        return np.ascontiguousarray(blocks[0]).view(np.uint8)
    return pack_nibbles(_row_pairs(blocks))


def _scale_order(tensor: MxTensor) -> npt.NDArray[np.uint8]:
    """Return the scale bytes in the order of the stream, flat."""
    if tensor.fmt is Format.MXINT8:
        return tensor.scales[0].reshape(-1)
    return _row_pairs(tensor.scales[..., np.newaxis]).reshape(-1)


def _row_pairs(x: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Reorder [planes, rows, blocks, n] to [pairs, planes, blocks, 2, n]; pad with zeros."""
    planes, rows, blocks, n = x.shape
    padded = np.pad(x, ((0, 0), (0, rows % 2), (0, 0), (0, 0)))
    return padded.reshape(planes, -1, 2, blocks, n).transpose(1, 0, 3, 2, 4)
