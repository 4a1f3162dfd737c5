"""A float64 decoder with a KV cache, and the bound of the tile's distance from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pequin.errors import InputError
from pequin_sim.model.model import LayerWeights, Model
from pequin_sim.model.noise import (
    F64,
    Matrix,
    Noisy,
    inverse_rms,
    product,
    silu,
    steps_of,
)
from pequin_sim.model.quantized import QuantizedModel, query_scale, rotary_order
from pequin_sim.model.shape import ModelShape

DEVIATIONS = 6.0
"""The bound of a logit's error in standard deviations of the propagated noise."""

ARITHMETIC = 2.0**-14
"""Share of the largest logit added for fp32 rounding and the tables of exp2 and reciprocals."""


@dataclass(frozen=True, eq=False)
class StepResult:
    """What one position gives.

    Parameters
    ----------
    logits
        float64 [vocab].
    sigma
        Standard deviation of the tile's error of each, as propagated [vocab].
    """

    logits: F64
    sigma: F64

    @property
    def bound(self) -> F64:
        """Largest expected distance of the tile's logits [vocab]."""
        floor = ARITHMETIC * float(np.max(np.abs(self.logits)))
        return DEVIATIONS * self.sigma + floor


class _Layer:
    """Matrices of a layer with their squares, and its cache."""

    def __init__(self, weights: LayerWeights, errors: LayerWeights | None) -> None:
        self.weights = weights
        names = ("q", "k", "v", "o", "gate", "up", "down")
        self.matrix = {
            name: Matrix(getattr(weights, name), getattr(errors, name) if errors else None)
            for name in names
        }
        self.keys: list[Noisy] = []
        self.values: list[Noisy] = []
        self.value_steps: list[F64] = []


class ReferenceDecoder:
    """Decode one token at a time in float64, without any quantization of activations or KV.

    Beside the values it propagates the variance of what the tile rounds: raw residuals, queries,
    keys, values, probabilities, attention outputs and MLP activations, each with the step of its
    MXINT8 block. `StepResult.bound` is six standard deviations and a small share for fp32. It is
    a statistical bound, not a worst case: errors are taken as independent.

    Parameters
    ----------
    model
        Float weights, or `QuantizedModel.dequantized()`.
    quantized
        With float weights, their quantized form: the difference, which is known, counts as
        noise, and the bound holds for the distance from the float model.
    """

    def __init__(self, model: Model, quantized: QuantizedModel | None = None) -> None:
        self.model = model
        other = quantized.dequantized() if quantized is not None else None
        self._layers = [
            _Layer(weights, _layer_errors(weights, other.layers[i]) if other else None)
            for i, weights in enumerate(model.layers)
        ]
        gain = np.asarray(model.norm, np.float64)
        error = None if other is None else other.head - np.asarray(model.head) * gain
        self._head = Matrix(np.asarray(model.head, np.float64) * gain, error)
        self._position = 0
        self._embedding_error = None if other is None else other.embedding - model.embedding

    @property
    def shape(self) -> ModelShape:
        """The model's sizes."""
        return self.model.shape

    @property
    def position(self) -> int:
        """The next token's position."""
        return self._position

    def step(self, token: int, start: int = 0) -> StepResult:
        """Decode a token at the next position, which attends to positions from `start` on.

        Raises
        ------
        InputError
            There is no such token.
        """
        if not 0 <= token < self.shape.vocab:
            raise InputError(f"token {token} is not in the vocabulary of {self.shape.vocab}")
        x = Noisy.exact(self.model.embedding[token])
        if self._embedding_error is not None:
            x = Noisy(x.value, x.variance + self._embedding_error[token] ** 2)
        for layer in self._layers:
            x = x.plus(self._attention(layer, x, start))
            x = x.plus(self._mlp(layer, x))
        self._position += 1
        logits = self._normalized(self._head, np.ones(self.shape.hidden), x)
        return StepResult(logits.value, np.sqrt(logits.variance))

    def run(self, tokens: npt.ArrayLike) -> list[StepResult]:
        """Decode given tokens one after another."""
        return [self.step(int(token)) for token in np.asarray(tokens)]

    def _normalized(self, matrix: Matrix, gain: F64, x: Noisy) -> Noisy:
        """Return W (gain * x / rms), where the tile quantizes x and divides afterwards."""
        inverse = inverse_rms(x, self.shape.norm_eps)
        raw = matrix.times(x.quantized().scaled(gain))
        return product(raw, inverse)

    def _attention(self, layer: _Layer, x: Noisy, start: int) -> Noisy:
        s, gain = self.shape, np.asarray(layer.weights.norm_attention, np.float64)
        order, scale = rotary_order(s), query_scale(s)

        def heads(name: str, count: int) -> Noisy:
            return self._normalized(layer.matrix[name], gain, x).reshaped(count, s.head_dim)

        q = _ordered(self._rotated(heads("q", s.heads)), order).quantized(scale)
        k = _ordered(self._rotated(heads("k", s.kv_heads)), order).quantized()
        v = heads("v", s.kv_heads)
        steps = steps_of(np.abs(v.value).max(axis=1))
        layer.keys.append(k)
        layer.values.append(Noisy(v.value, v.variance + steps[:, np.newaxis] ** 2 / 12))
        layer.value_steps.append(steps)
        keys, values = _stacked(layer.keys), _stacked(layer.values)
        scales = np.stack(layer.value_steps)
        outputs = []
        for h in range(s.heads):
            kv = h // s.group
            query = Noisy(q.value[h], q.variance[h])
            cache = _head(keys, kv), _head(values, kv), scales[:, kv]
            outputs.append(_attend(query, *cache, s.head_dim, start))
        o = Noisy(np.stack([x.value for x in outputs]), np.stack([x.variance for x in outputs]))
        return layer.matrix["o"].times(o.quantized().reshaped(s.heads * s.head_dim))

    def _mlp(self, layer: _Layer, x: Noisy) -> Noisy:
        gain = np.asarray(layer.weights.norm_mlp, np.float64)
        gate = self._normalized(layer.matrix["gate"], gain, x)
        up = self._normalized(layer.matrix["up"], gain, x)
        return layer.matrix["down"].times(product(silu(gate), up).quantized())

    def _rotated(self, heads: Noisy) -> Noisy:
        """Turn pairs of elements of heads [heads, head_dim] by the position's angles."""
        s = self.shape
        order = rotary_order(s)
        first, second = order[0::2], order[1::2]
        pairs = np.arange(s.head_dim // 2)
        angle = self.position * s.rope_theta ** (-2.0 * pairs / s.head_dim)
        cos, sin = np.cos(angle), np.sin(angle)
        value, variance = np.empty_like(heads.value), np.empty_like(heads.variance)
        a, b = heads.value[:, first], heads.value[:, second]
        value[:, first], value[:, second] = a * cos - b * sin, b * cos + a * sin
        a, b = heads.variance[:, first], heads.variance[:, second]
        variance[:, first] = a * cos**2 + b * sin**2
        variance[:, second] = b * cos**2 + a * sin**2
        return Noisy(value, variance)


def _layer_errors(exact: LayerWeights, quantized: LayerWeights) -> LayerWeights:
    """Return what quantization added to a layer's matrices, in the columns before the gain."""

    def error(name: str) -> F64:
        gain: npt.NDArray[np.floating] | float = 1.0
        if name in ("q", "k", "v"):
            gain = exact.norm_attention
        if name in ("gate", "up"):
            gain = exact.norm_mlp
        return np.asarray(getattr(quantized, name), np.float64) / gain - getattr(exact, name)

    names = ("q", "k", "v", "o", "gate", "up", "down")
    return LayerWeights(
        **{name: error(name) for name in names},
        norm_attention=exact.norm_attention,
        norm_mlp=exact.norm_mlp,
    )


def _ordered(heads: Noisy, order: npt.NDArray[np.int64]) -> Noisy:
    """Return heads with their elements in the tile's order, which decides about blocks."""
    return Noisy(heads.value[:, order], heads.variance[:, order])


def _stacked(tokens: list[Noisy]) -> Noisy:
    """Return [tokens, kv heads, head_dim]."""
    return Noisy(np.stack([t.value for t in tokens]), np.stack([t.variance for t in tokens]))


def _head(cache: Noisy, number: int) -> Noisy:
    """Return one KV head [tokens, head_dim] of a cache."""
    return Noisy(cache.value[:, number], cache.variance[:, number])


def _attend(q: Noisy, k: Noisy, v: Noisy, v_steps: F64, head_dim: int, start: int) -> Noisy:
    """Return one head's output [head_dim]: softmax(q k) v, with P quantized along the tokens."""
    score = k.value @ q.value / np.sqrt(head_dim)
    variance = (k.value**2 @ q.variance + k.variance @ q.value**2) / head_dim
    live = np.arange(len(score)) >= start
    p = np.where(live, np.exp(np.where(live, score, -np.inf) - score[live].max()), 0.0)
    weight = p / p.sum()
    output = weight @ v.value
    # The tile quantizes p times the power of two that is V's scale.
    p_noise = Noisy.exact(p * v_steps).quantized().variance / np.where(v_steps > 0, v_steps, 1) ** 2
    moved = (v.value - output) ** 2
    noise = (weight**2 * variance) @ moved
    noise += (p_noise / p.sum() ** 2) @ v.value**2 + weight**2 @ v.variance
    return Noisy(output, noise)
