"""A model in the tile's formats: gains folded, rows in the tile's order, blocks quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK
from pequin_sim.model.formats import HEAD, MATRICES, Formats
from pequin_sim.model.model import Array, LayerWeights, Model
from pequin_sim.model.shape import ModelShape, Rotary, padded
from pequin_sim.mx import Format, MxTensor, dequantize, quantize, quantize_activations
from pequin_sim.mx.elements import MXINT8_LIMIT

LOG2_E = float(np.log2(np.e))
"""exp(x) = exp2(x * LOG2_E)."""


def query_scale(shape: ModelShape) -> float:
    """Return what Wq is multiplied by, so that probabilities are exp2(q . k - max)."""
    return LOG2_E / float(np.sqrt(shape.head_dim))


def rotary_order(shape: ModelShape) -> npt.NDArray[np.int64]:
    """Return which element of a head the tile holds in each place [head_dim].

    The tile turns adjacent elements. A model that turns halves has the rows of its q and k
    interleaved; both in the same way, so that their dot products stay.
    """
    places = np.arange(shape.head_dim)
    if shape.rotary is Rotary.ADJACENT:
        return places
    return places // 2 + (places % 2) * (shape.head_dim // 2)


def rotary_table(shape: ModelShape, positions: int) -> npt.NDArray[np.float32]:
    """Return the table [positions, head_dim]: the cosine and sine of pair j at 2j and 2j + 1."""
    pairs = np.arange(shape.head_dim // 2)
    frequency = shape.rope_theta ** (-2.0 * pairs / shape.head_dim)
    angle = np.arange(positions)[:, np.newaxis] * frequency
    return np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(positions, -1).astype("f4")


def matrix_rows(shape: ModelShape, name: str) -> tuple[int, int]:
    """Return rows and padded K of a matrix as the tile stores it.

    The inputs of `o` are padded head by head, all others at their end.
    """
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    rows = {"q": q, "k": kv, "v": kv, "gate": shape.mlp, "up": shape.mlp, HEAD: shape.vocab}
    inputs = {"o": shape.heads * padded(shape.head_dim), "down": padded(shape.mlp)}
    return rows.get(name, shape.hidden), inputs.get(name, padded(shape.hidden))


def fold_matrix(model: Model, layer: int, name: str) -> npt.NDArray[np.float32]:
    """Return a matrix [rows, padded K] as the tile computes with it, before quantization.

    Norm gains are in the columns of the matrix that follows the norm; log2(e) / sqrt(head_dim)
    is in Wq.
    """
    s = model.shape
    if name == HEAD:
        return _pad(model.head * model.norm.astype(np.float64))
    weights = model.layers[layer]
    w = np.asarray(getattr(weights, name), np.float64)
    if name in ("q", "k", "v"):
        w = w * weights.norm_attention
    if name in ("gate", "up"):
        w = w * weights.norm_mlp
    if name in ("q", "k"):
        w = w.reshape(-1, s.head_dim, s.hidden)[:, rotary_order(s)].reshape(w.shape)
    if name == "q":
        w = w * query_scale(s)
    if name == "o":
        return _pad(w.reshape(s.hidden, s.heads, s.head_dim)).reshape(s.hidden, -1)
    return _pad(w)


def _pad(w: Array) -> npt.NDArray[np.float32]:
    """Fill the last axis with zeros up to whole blocks."""
    room = padded(w.shape[-1]) - w.shape[-1]
    return np.pad(w, [(0, 0)] * (w.ndim - 1) + [(0, room)]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class QuantizedModel:
    """A model's tensors in the tile's order.

    Parameters
    ----------
    shape, formats
        Sizes, and the format of each matrix.
    embedding
        MXINT8 [vocab, padded hidden]; with `embedding_fp32`, float32 [vocab, hidden] goes to
        the tile instead.
    layers
        For each layer the matrices by name (`MATRICES`).
    head
        [vocab, padded hidden].
    embedding_fp32
        The embedding as it is, or None.
    """

    shape: ModelShape
    formats: Formats
    embedding: MxTensor
    layers: tuple[dict[str, MxTensor], ...]
    head: MxTensor
    embedding_fp32: npt.NDArray[np.float32] | None = None

    def matrix(self, layer: int, name: str) -> MxTensor:
        """Return a matrix by name; the layer of `head` is of no account."""
        return self.head if name == HEAD else self.layers[layer][name]

    def embedding_values(self) -> npt.NDArray[np.float64]:
        """Return the embedding [vocab, hidden] that the tile starts from."""
        if self.embedding_fp32 is not None:
            return self.embedding_fp32.astype(np.float64)
        return dequantize(self.embedding)[:, : self.shape.hidden]

    def dequantized(self) -> Model:
        """Return the model that the quantized weights are: float64, all gains 1."""
        s = self.shape
        ones = np.ones(s.hidden)
        layers = tuple(
            LayerWeights(
                **{name: self._unfolded(number, name) for name in MATRICES},
                norm_attention=ones,
                norm_mlp=ones,
            )
            for number in range(s.layers)
        )
        return Model(s, self.embedding_values(), layers, ones, self._unfolded(0, HEAD))

    def _unfolded(self, layer: int, name: str) -> npt.NDArray[np.float64]:
        s = self.shape
        w = dequantize(self.matrix(layer, name))
        if name == "o":
            return w.reshape(s.hidden, s.heads, -1)[:, :, : s.head_dim].reshape(s.hidden, -1)
        w = w[:, : s.mlp if name == "down" else s.hidden]
        if name in ("q", "k"):
            heads = w.reshape(-1, s.head_dim, s.hidden)
            w = np.empty_like(heads)
            w[:, rotary_order(s)] = heads
            w = w.reshape(-1, s.hidden)
        return w / query_scale(s) if name == "q" else w


def quantize_model(
    model: Model,
    formats: Formats | None = None,
    fp32_embedding: bool = False,
    rows: Mapping[str, int] | None = None,
) -> QuantizedModel:
    """Fold and quantize all matrices.

    Parameters
    ----------
    model
        Float weights.
    formats
        Format of each matrix; MXFP4 in one plane by default.
    fp32_embedding
        Keep the embedding in float32.
    rows
        By matrix: quantize only so many of its first rows, where a tile needs no more.

    Raises
    ------
    InputError
        A weight is not finite.
    """
    formats = formats or Formats()

    def quantized(layer: int, name: str) -> MxTensor:
        choice = formats[name]
        w = fold_matrix(model, layer, name)[: (rows or {}).get(name)]
        return quantize(w, choice.fmt, choice.rule, choice.planes)

    embedding = _pad(model.embedding)
    return QuantizedModel(
        model.shape,
        formats,
        quantize(embedding, Format.MXINT8),
        tuple(
            {name: quantized(layer, name) for name in MATRICES}
            for layer in range(model.shape.layers)
        ),
        quantized(0, HEAD),
        model.embedding.astype(np.float32) if fp32_embedding else None,
    )


def random_quantized(
    shape: ModelShape, seed: int, formats: Formats | None = None
) -> QuantizedModel:
    """Return a model of random codes, without the work of quantizing.

    Its activations stay of magnitude 1: scales are near 1 / sqrt(K).
    """
    formats = formats or Formats()
    rng = np.random.default_rng(seed)

    def tensor(name: str) -> MxTensor:
        rows, k = matrix_rows(shape, name)
        gain = query_scale(shape) if name == "q" else 1.0
        return _random_tensor(rng, rows, k, formats, name, gain)

    values = rng.standard_normal((shape.vocab, shape.hidden), np.float32)
    return QuantizedModel(
        shape,
        formats,
        quantize_activations(_pad(values)),
        tuple({name: tensor(name) for name in MATRICES} for _ in range(shape.layers)),
        tensor(HEAD),
    )


def _random_tensor(
    rng: np.random.Generator, rows: int, k: int, formats: Formats, name: str, gain: float
) -> MxTensor:
    choice = formats[name]
    planes = choice.planes
    size = (planes, rows, k)
    if choice.fmt is Format.MXFP4:
        # Codes of both signs up to 3, whose root mean square is about 1.6.
        elements = rng.integers(0, 6, size, np.int8) + 8 * rng.integers(0, 2, size, np.int8)
        rms = 1.6
    else:
        elements = rng.integers(-MXINT8_LIMIT, MXINT8_LIMIT + 1, size, np.int8)
        rms = 1.1
    exponent = round(float(np.log2(gain / np.sqrt(k) / rms)))
    jitter = rng.integers(-1, 1, (planes, rows, k // BLOCK))
    plane = np.arange(planes)[:, np.newaxis, np.newaxis] * 4
    scales = (127 + exponent + jitter - plane).astype(np.uint8)
    return MxTensor(choice.fmt, elements.astype(np.int8), scales)
