"""First-order propagation of rounding noise: values with variances.

Each quantization of the tile rounds an element to a multiple of its block's step; the error is
taken as uniform and independent of the others, so its variance is step^2 / 12. Everything after
it is linearized.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK
from pequin_sim.mx import floor_log2
from pequin_sim.mx.elements import MXINT8_FRACTION_BITS

F64 = npt.NDArray[np.float64]

_UNIFORM = 1.0 / 12.0
"""Variance of an error that is uniform over one step."""


class Noisy(NamedTuple):
    """Values and the variances of their errors, of one shape."""

    value: F64
    variance: F64

    @classmethod
    def exact(cls, value: npt.ArrayLike) -> Noisy:
        """Return values without error."""
        values = np.asarray(value, np.float64)
        return cls(values, np.zeros_like(values))

    def scaled(self, factor: npt.ArrayLike) -> Noisy:
        """Return the values times exact factors."""
        factors = np.asarray(factor, np.float64)
        return Noisy(self.value * factors, self.variance * factors**2)

    def plus(self, other: Noisy) -> Noisy:
        """Return the sum of values with independent errors."""
        return Noisy(self.value + other.value, self.variance + other.variance)

    def reshaped(self, *shape: int) -> Noisy:
        """Return the same in another shape."""
        return Noisy(self.value.reshape(shape), self.variance.reshape(shape))

    def quantized(self, scale: float = 1.0) -> Noisy:
        """Add the noise of MXINT8 blocks along the last axis, of values times `scale`."""
        step = block_steps(self.value * scale) / scale
        return Noisy(self.value, self.variance + step**2 * _UNIFORM)


def block_steps(values: F64) -> F64:
    """Return each element's quantization step; blocks run along the last axis."""
    n = values.shape[-1]
    room = -n % BLOCK
    wide = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, room)])
    blocks = np.abs(wide).reshape(*values.shape[:-1], -1, BLOCK)
    steps = np.broadcast_to(steps_of(blocks.max(axis=-1))[..., np.newaxis], blocks.shape)
    return steps.reshape(wide.shape)[..., :n]


def steps_of(amax: F64) -> F64:
    """Return the steps of blocks with these largest magnitudes; 0 for zeros."""
    exponent = floor_log2(np.where(amax > 0, amax, 1.0)) - MXINT8_FRACTION_BITS
    return np.where(amax > 0, np.ldexp(1.0, exponent), 0.0)


class Matrix:
    """A matrix, exact or with the errors of its own quantization.

    Parameters
    ----------
    values
        [rows, K].
    error
        What quantization added to them [rows, K], or None.
    """

    def __init__(self, values: npt.ArrayLike, error: npt.ArrayLike | None = None) -> None:
        self.values = np.asarray(values, np.float64)
        self._squares = self.values**2
        self._errors = None if error is None else np.asarray(error, np.float64) ** 2

    def times(self, x: Noisy) -> Noisy:
        """Return the product with a vector [K]."""
        variance = self._squares @ x.variance
        if self._errors is not None:
            variance = variance + self._errors @ x.value**2
        return Noisy(self.values @ x.value, variance)


def inverse_rms(x: Noisy, epsilon: float) -> Noisy:
    """Return 1 / sqrt(mean(x^2) + epsilon), a scalar."""
    n = x.value.size
    mean = float(np.mean(x.value**2)) + epsilon
    variance = float(np.sum(x.value**2 * x.variance)) / (n * mean) ** 2 / mean
    return Noisy(np.asarray(mean**-0.5), np.asarray(variance))


def product(a: Noisy, b: Noisy) -> Noisy:
    """Return the product of values with independent errors."""
    return Noisy(
        a.value * b.value,
        a.variance * b.value**2 + b.variance * a.value**2 + a.variance * b.variance,
    )


def silu(x: Noisy) -> Noisy:
    """Return x / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-x.value))
    slope = sigmoid * (1 + x.value * (1 - sigmoid))
    return Noisy(x.value * sigmoid, x.variance * slope**2)
