import numpy as np
import pytest

from pequin_sim.model.noise import Matrix, Noisy, block_steps, inverse_rms, product, silu
from pequin_sim.mx import dequantize, quantize_activations

RNG = np.random.default_rng(11)
SAMPLES = 20000


def measured(function, *inputs):
    """Return the variance of a function's output under random errors of its inputs."""
    exact = function(*(x.value for x in inputs))
    outputs = [
        function(
            *(x.value + np.sqrt(x.variance) * RNG.standard_normal(x.value.shape) for x in inputs)
        )
        for _ in range(SAMPLES)
    ]
    return exact, np.var(outputs, axis=0)


def noisy(size, share=1e-3):
    value = RNG.standard_normal(size)
    return Noisy(value, (share * RNG.uniform(0.5, 2, size)) ** 2)


def test_steps_are_those_of_the_quantizer():
    x = RNG.standard_normal((3, 70)) * np.array([[1], [1e-4], [300]])
    x[1, :32] = 0
    wide = np.pad(x, ((0, 0), (0, 26)))
    tensor = quantize_activations(wide)
    exponents = tensor.scales[0].astype(int) - 127 - 6
    steps = np.where(exponents == -133, 0.0, 2.0**exponents)
    assert np.array_equal(block_steps(x), np.repeat(steps, 32, axis=1)[:, :70])


def test_quantization_errors_have_the_stated_variance():
    x = RNG.standard_normal((400, 64)).astype(np.float32)
    error = dequantize(quantize_activations(x)) - x
    stated = Noisy.exact(x).quantized().variance
    assert np.mean(error**2) == pytest.approx(np.mean(stated), rel=0.03)


def test_a_scaled_vector_is_quantized_in_its_own_steps():
    x = Noisy.exact(RNG.standard_normal(32))
    found = x.quantized(0.3).variance
    assert np.allclose(found, Noisy.exact(x.value * 0.3).quantized().variance / 0.09)


@pytest.mark.parametrize(
    ("function", "propagated", "count"),
    [
        (lambda a, b: a * b, product, 2),
        (lambda a: a / (1 + np.exp(-a)), silu, 1),
        (lambda a: np.mean(a**2 + 0.1) ** -0.5, lambda a: inverse_rms(a, 0.1), 1),
        (lambda a, b: 3 * a + b, lambda a, b: a.scaled(3).plus(b), 2),
    ],
)
def test_propagation_agrees_with_sampling(function, propagated, count):
    inputs = [noisy(16) for _ in range(count)]
    exact, variance = measured(function, *inputs)
    found = propagated(*inputs)
    assert np.allclose(found.value, exact)
    assert np.allclose(found.variance, variance, rtol=0.1)


def test_matrices_add_the_noise_of_their_own_quantization():
    w, x = RNG.standard_normal((4, 16)), noisy(16)
    exact, variance = measured(lambda a: w @ a, x)
    assert np.allclose(Matrix(w).times(x).variance, variance, rtol=0.1)
    error = 1e-2 * RNG.standard_normal((4, 16))
    more = Matrix(w, error).times(x)
    assert np.allclose(more.variance, Matrix(w).times(x).variance + error**2 @ x.value**2)
    assert np.allclose(more.value, exact)
