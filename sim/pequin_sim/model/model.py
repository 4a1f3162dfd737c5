"""A model's weights in floating point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pequin.errors import InputError
from pequin_sim.model.shape import ModelShape

Array = npt.NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Weights of one layer; a matrix is [outputs, inputs], so that y = W x.

    Parameters
    ----------
    q, k, v
        [heads * head_dim, hidden]; k and v [kv_heads * head_dim, hidden].
    o
        [hidden, heads * head_dim].
    gate, up
        [mlp, hidden]; `gate` goes through silu.
    down
        [hidden, mlp].
    norm_attention, norm_mlp
        Gains [hidden].
    """

    q: Array
    k: Array
    v: Array
    o: Array
    gate: Array
    up: Array
    down: Array
    norm_attention: Array
    norm_mlp: Array


@dataclass(frozen=True, eq=False)
class Model:
    """Weights of a model: float32, or float64 for values of quantized weights.

    Parameters
    ----------
    shape
        Sizes.
    embedding
        [vocab, hidden].
    layers
        One entry for each layer.
    norm
        Gain of the last norm [hidden].
    head
        [vocab, hidden]; the embedding itself when they are tied.

    Raises
    ------
    InputError
        An array has another shape than the model's sizes say.
    """

    shape: ModelShape
    embedding: Array
    layers: tuple[LayerWeights, ...]
    norm: Array
    head: Array

    def __post_init__(self) -> None:
        """Check all shapes."""
        s = self.shape
        if len(self.layers) != s.layers:
            raise InputError(f"the model has {s.layers} layers, but {len(self.layers)} are given")
        q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        rows = {"q": q, "k": kv, "v": kv, "o": s.hidden, "gate": s.mlp, "up": s.mlp}
        inputs = {"o": q, "down": s.mlp}
        expected: dict[str, tuple[int, ...]] = {
            name: (rows.get(name, s.hidden), inputs.get(name, s.hidden))
            for name in ("q", "k", "v", "o", "gate", "up", "down")
        }
        expected |= {"norm_attention": (s.hidden,), "norm_mlp": (s.hidden,)}
        for number, layer in enumerate(self.layers):
            for name, shape in expected.items():
                _check_shape(f"layer {number}, {name}", getattr(layer, name), shape)
        _check_shape("embedding", self.embedding, (s.vocab, s.hidden))
        _check_shape("norm", self.norm, (s.hidden,))
        _check_shape("head", self.head, (s.vocab, s.hidden))


def _check_shape(what: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InputError(f"{what} must have the shape {shape}, not {array.shape}")


def random_model(shape: ModelShape, seed: int, tied: bool = False) -> Model:
    """Return a model with random weights whose activations keep a magnitude of about 1.

    Parameters
    ----------
    shape
        Sizes.
    seed
        Of numpy's generator: the same seed gives the same weights.
    tied
        Use the embedding as head.
    """
    rng = np.random.default_rng(seed)
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def matrix(rows: int, inputs: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal((rows, inputs), np.float32) / np.float32(np.sqrt(inputs))

    def gain() -> npt.NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(shape.hidden)).astype(np.float32)

    layers = tuple(
        LayerWeights(
            q=matrix(q, shape.hidden),
            k=matrix(kv, shape.hidden),
            v=matrix(kv, shape.hidden),
            o=matrix(shape.hidden, q),
            gate=matrix(shape.mlp, shape.hidden),
            up=matrix(shape.mlp, shape.hidden),
            down=matrix(shape.hidden, shape.mlp),
            norm_attention=gain(),
            norm_mlp=gain(),
        )
        for _ in range(shape.layers)
    )
    embedding = rng.standard_normal((shape.vocab, shape.hidden), np.float32)
    head = embedding if tied else matrix(shape.vocab, shape.hidden)
    return Model(shape, embedding, layers, gain(), head)
