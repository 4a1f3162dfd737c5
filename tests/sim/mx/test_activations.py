"""The hardware's activation quantizer, against integer arithmetic on fp32 fields."""

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim import mx


def fields(bits):
    """Return sign, exponent field and significand with its hidden bit; subnormals are zero."""
    exponent = (bits >> 23) & 0xFF
    significand = (bits & 0x7FFFFF) | 0x800000 if exponent else 0
    return bits >> 31, exponent, significand


def reference_block(words):
    """Quantize 32 fp32 words with integers alone, as hardware would."""
    parts = [fields(int(w)) for w in words]
    top = max(e for _, e, s in parts)
    if top == 0xFF:
        return 0xFF, [0] * 32
    if all(s == 0 for _, _, s in parts):
        return 0, [0] * 32
    out = []
    for sign, exponent, significand in parts:
        shift = 17 + top - exponent  # 24-bit significand to a 7-bit integer part
        kept, rest = significand >> shift, significand & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        kept += rest > half or (rest == half and kept & 1)
        kept = min(kept, 127)
        out.append(-kept if sign else kept)
    return top, out


def check(words):
    words = np.asarray(words, dtype=np.uint32)
    q = mx.quantize_activations(words.view(np.float32))
    for row in range(words.shape[0]):
        for b in range(words.shape[1] // 32):
            scale, elements = reference_block(words[row, 32 * b : 32 * b + 32])
            assert q.scales[0, row, b] == scale
            assert q.elements[0, row, 32 * b : 32 * b + 32].tolist() == elements


def test_random_blocks():
    rng = np.random.default_rng(21)
    x = rng.standard_normal((100, 64)) * 2.0 ** rng.integers(-60, 60, (100, 1))
    check(x.astype(np.float32).view(np.uint32))


def test_random_bits():
    # Exponents anywhere: most blocks have a NaN or an infinity only when asked for.
    rng = np.random.default_rng(22)
    words = rng.integers(0, 1 << 32, (200, 32), dtype=np.uint32)
    check(np.where((words >> 23) & 0xFF == 0xFF, words ^ 0x800000, words))


def test_every_scale_exponent():
    rng = np.random.default_rng(23)
    exponent = np.arange(0, 255)[:, np.newaxis]
    below = rng.integers(0, 12, (255, 32))
    below[:, 0] = 0
    field = np.maximum(exponent - below, 0)
    sign = rng.integers(0, 2, (255, 32)) << 31
    check((sign | field << 23 | rng.integers(0, 1 << 23, (255, 32))).astype(np.uint32))


def test_ties_go_to_even():
    x = np.zeros((1, 32))
    x[0, :8] = [64, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 125.5]
    elements = mx.quantize_activations(x).elements[0, 0, :8]
    np.testing.assert_array_equal(elements, [64, 0, 2, 2, 0, -2, 126, 126])
    check(x.astype(np.float32).view(np.uint32))


def test_the_largest_element_clamps_at_127():
    x = np.zeros((1, 64), dtype=np.float32)
    x[0, 0] = np.nextafter(np.float32(2), np.float32(0))
    x[0, 32] = -127.75 / 64
    q = mx.quantize_activations(x)
    np.testing.assert_array_equal(q.elements[0, 0, [0, 32]], [127, -127])
    np.testing.assert_array_equal(q.scales[0, 0], [127, 127])


def test_largest_element_is_64_to_127():
    x = np.random.default_rng(24).standard_normal((500, 32)).astype(np.float32)
    largest = np.max(np.abs(mx.quantize_activations(x).elements[0].astype(int)), axis=1)
    assert largest.min() == 64
    assert largest.max() == 127


@pytest.mark.parametrize("zero", [0.0, -0.0, 2.0**-149, -(2.0**-127)])
def test_zero_and_subnormal_blocks(zero):
    q = mx.quantize_activations(np.full((1, 32), zero, dtype=np.float32))
    assert q.scales[0, 0, 0] == 0
    assert not q.elements.any()


def test_subnormals_beside_the_smallest_normal_count_as_zero():
    x = np.zeros((1, 32), dtype=np.float32)
    x[0, :3] = [2.0**-126, 2.0**-127, -(2.0**-126)]
    q = mx.quantize_activations(x)
    assert q.scales[0, 0, 0] == 1
    np.testing.assert_array_equal(q.elements[0, 0, :3], [64, 0, -64])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_block_is_marked_and_zero(bad):
    x = np.ones((2, 64), dtype=np.float32)
    x[1, 40] = bad
    q = mx.quantize_activations(x)
    np.testing.assert_array_equal(q.scales[0], [[127, 127], [127, 0xFF]])
    assert not q.elements[0, 1, 32:].any()
    assert (q.elements[0, 1, :32] == 64).all()


def test_values_are_rounded_to_float32_first():
    x = np.full((1, 32), 2 - 2.0**-40)
    assert mx.quantize_activations(x).scales[0, 0, 0] == 128
    too_large = np.full((1, 32), 1e39)
    assert mx.quantize_activations(too_large).scales[0, 0, 0] == 0xFF


def test_bad_input():
    with pytest.raises(InputError, match="activations must be a matrix"):
        mx.quantize_activations(np.ones(32))
    with pytest.raises(InputError, match="block size 32, not 31"):
        mx.quantize_activations(np.ones((1, 31)))
    with pytest.raises(InputError, match="activations must be real numbers, not <U1"):
        mx.quantize_activations(np.full((1, 32), "a"))
