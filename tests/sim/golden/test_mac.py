"""The golden MAC array against exact rational arithmetic, and its independence of order."""

import math
from fractions import Fraction

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim import mx
from pequin_sim.compare import first_difference
from pequin_sim.golden.mac import (
    CANONICAL_NAN,
    MacFlag,
    align,
    block_sums,
    fixed_to_fp32,
    mac_array,
)

TOP, BOTTOM = 2**47 - 1, -(2**47)
CASES = [("mxfp4", 1), ("mxfp4", 2), ("mxint8", 1)]


def operands(seed, fmt, planes, rows, vectors, k, centre=None, spread=4, nan=0.0):
    """Return random weights and activations whose summed scales lie around `centre`."""
    rng = np.random.default_rng(seed)
    centre = 237 if centre is None else centre
    low, high = (0, 16) if fmt == "mxfp4" else (-128, 128)

    def scales(shape, middle):
        s = np.clip(rng.integers(middle - spread, middle + spread + 1, shape), 0, 254)
        return np.where(rng.random(shape) < nan, 255, s).astype(np.uint8)

    w = rng.integers(low, high, (planes, rows, k)).astype(np.int8)
    a = rng.integers(-128, 128, (1, vectors, k)).astype(np.int8)
    blocks = k // 32
    for x, zero in ((w, 0), (a, 0)):
        x.reshape(*x.shape[:2], blocks, 32)[rng.random((*x.shape[:2], blocks)) < 0.1] = zero
    return (
        mx.MxTensor(fmt, w, scales((planes, rows, blocks), centre // 2)),
        mx.MxTensor("mxint8", a, scales((1, vectors, blocks), centre - centre // 2)),
    )


def fp32_of(n):
    """Round the integer n, in units of 2**-24, to fp32 bits with integers alone."""
    if n == 0:
        return 0
    magnitude, sign = abs(n), (n < 0) << 31
    excess = magnitude.bit_length() - 24
    if excess > 0:
        kept, rest, half = magnitude >> excess, magnitude % (1 << excess), 1 << (excess - 1)
        kept += rest > half or (rest == half and kept & 1)
    else:
        kept = magnitude << -excess
    if kept >> 24:
        kept, excess = kept >> 1, excess + 1
    return sign | (excess - 24 + 23 + 127) << 23 | (kept & 0x7FFFFF)


def exact_result(weights, acts, row, vector):
    """Return one result from the values of elements and scales, in Fractions."""
    total, flags, zeros = 0, MacFlag(0), 0
    w_values = mx.decode_e2m1 if weights.fmt == "mxfp4" else mx.decode_mxint8
    for plane in range(weights.planes):
        for b in range(weights.blocks):
            sw, sa = int(weights.scales[plane, row, b]), int(acts.scales[0, vector, b])
            if 255 in (sw, sa):
                flags |= MacFlag.NAN
                continue
            w = w_values(weights.elements[plane, row, 32 * b : 32 * b + 32])
            a = mx.decode_mxint8(acts.elements[0, vector, 32 * b : 32 * b + 32])
            dot = sum(Fraction(x) * Fraction(y) for x, y in zip(w, a, strict=True))
            term = math.floor(dot * Fraction(2) ** (sw + sa - 254 + 24) + Fraction(1, 2))
            zeros += dot != 0 and term == 0
            if not BOTTOM <= term <= TOP:
                flags |= MacFlag.TERM_CLAMPED
            total += max(BOTTOM, min(TOP, term))
    if not BOTTOM <= total <= TOP:
        flags |= MacFlag.RESULT_CLAMPED
    total = max(BOTTOM, min(TOP, total))
    return CANONICAL_NAN if MacFlag.NAN in flags else fp32_of(total), flags, zeros, total


def check_exact(weights, acts):
    got = mac_array(weights, acts)
    for row in range(weights.rows):
        for vector in range(acts.rows):
            bits, flags, zeros, fixed = exact_result(weights, acts, row, vector)
            at = (row, vector)
            assert got.values_u32[at] == bits
            assert got.flags[at] == flags
            assert got.zero_counts[at] == zeros
            assert got.fixed[at] == fixed
    return got


@pytest.mark.parametrize(("fmt", "planes"), CASES)
@pytest.mark.parametrize("centre", [205, 215, 225, 237, 250, 257, 262, 268, 275])
def test_random_results_in_exact_arithmetic(fmt, planes, centre):
    check_exact(*operands(centre, fmt, planes, 4, 3, 128, centre=centre))


@pytest.mark.parametrize(("fmt", "planes"), CASES)
def test_nan_blocks_in_exact_arithmetic(fmt, planes):
    got = check_exact(*operands(31, fmt, planes, 8, 4, 96, nan=0.1))
    is_nan = (got.flags & MacFlag.NAN) != 0
    assert 0 < is_nan.sum() < is_nan.size
    np.testing.assert_array_equal(np.isnan(got.values), is_nan)


@pytest.mark.parametrize(("fmt", "planes"), CASES)
def test_any_scales_at_all(fmt, planes):
    got = check_exact(*operands(32, fmt, planes, 12, 4, 64, centre=254, spread=127))
    assert (got.flags & MacFlag.TERM_CLAMPED).any()
    assert got.zero_count > 0


def test_the_exact_cases_reach_every_condition():
    seen = 0
    for centre in (205, 237, 275):
        for fmt, planes in CASES:
            got = mac_array(*operands(centre, fmt, planes, 4, 3, 128, centre=centre))
            seen |= int(np.bitwise_or.reduce(got.flags, axis=None))
            assert (got.zero_count > 0) == (centre == 205)
    assert seen == MacFlag.TERM_CLAMPED | MacFlag.RESULT_CLAMPED


@pytest.mark.parametrize("fmt", ["mxfp4", "mxint8"])
def test_every_scale_pair_for_sums_at_the_edges(fmt):
    # Directed sums over all 256 x 256 scales, against float64: |S| has 20 bits, so the product
    # with a power of two, and one half added above 2**-33, are exact.
    s = np.array([1, -1, 2, -2, 3, -3, 5, 49152, -49152, 2**19, -(2**19), 2**19 - 1, 0])
    w, a = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    terms = align(s[:, np.newaxis, np.newaxis], w, a, fmt)
    fraction = 7 if fmt == "mxfp4" else 12
    shift = w.astype(int) + a - 254 - fraction + 24
    x = np.ldexp(s[:, np.newaxis, np.newaxis].astype(np.float64), shift)
    rounded = np.floor(x + 0.5)
    nan = np.broadcast_to((w == 255) | (a == 255), x.shape)
    np.testing.assert_array_equal(terms.nan, nan)
    expected = np.where(nan, 0, np.clip(rounded, BOTTOM, TOP))
    np.testing.assert_array_equal(terms.values, expected.astype(np.int64))
    np.testing.assert_array_equal(terms.clamped, ~nan & ((rounded > TOP) | (rounded < BOTTOM)))
    np.testing.assert_array_equal(terms.rounded_to_zero, ~nan & (x != 0) & (rounded == 0))


@pytest.mark.parametrize("fmt", ["mxfp4", "mxint8"])
def test_many_random_terms_in_float64(fmt):
    rng = np.random.default_rng(33)
    s = rng.integers(-(2**19), 2**19 + 1, 1_000_000) >> rng.integers(0, 19, 1_000_000)
    total = rng.integers(215, 265, s.size)
    w = rng.integers(100, 120, s.size)
    terms = align(s, w.astype(np.uint8), (total - w).astype(np.uint8), fmt)
    shift = total - 254 - (7 if fmt == "mxfp4" else 12) + 24
    rounded = np.floor(np.ldexp(s.astype(np.float64), shift) + 0.5)
    assert first_difference(np.clip(rounded, BOTTOM, TOP).astype(np.int64), terms.values) is None


@pytest.mark.parametrize(
    ("s", "shift", "term", "clamped", "zero"),
    [
        (1, 0, 1, False, False),
        (1, -1, 1, False, False),  # one half goes up
        (-1, -1, 0, False, True),  # so minus one half goes to zero
        (3, -1, 2, False, False),
        (-3, -1, -1, False, False),
        (1, -2, 0, False, True),
        (-3, -2, -1, False, False),
        (2**19, -20, 1, False, False),
        (-(2**19), -20, 0, False, True),
        (2**19, -21, 0, False, True),
        (-(2**19), -230, 0, False, True),
        (1, 46, 2**46, False, False),
        (1, 47, TOP, True, False),
        (-1, 47, BOTTOM, False, False),
        (-1, 48, BOTTOM, True, False),
        (-3, 46, BOTTOM, True, False),
        (2**19 - 1, 28, (2**19 - 1) << 28, False, False),
        (2**19, 28, TOP, True, False),
        (-(2**19), 28, BOTTOM, False, False),
        (-(2**19) - 1, 28, BOTTOM, True, False),
        (2**19, 261, TOP, True, False),
        (0, 261, 0, False, False),
        (0, -230, 0, False, False),
    ],
)
@pytest.mark.parametrize("fmt", ["mxfp4", "mxint8"])
def test_terms_by_hand(fmt, s, shift, term, clamped, zero):
    total = shift + 254 + (7 if fmt == "mxfp4" else 12) - 24
    w = max(0, min(254, total // 2 if total <= 400 else 254))
    assert 0 <= total - w <= 254
    t = align(np.array([s]), np.uint8([w]), np.uint8([total - w]), fmt)
    assert (t.values[0], t.clamped[0], t.rounded_to_zero[0]) == (term, clamped, zero)


def test_a_nan_block_hides_clamping_and_rounding():
    for w, a in ((255, 0), (0, 255), (255, 255), (255, 254)):
        t = align(np.array([5]), np.uint8([w]), np.uint8([a]), "mxfp4")
        assert (t.values[0], t.clamped[0], t.rounded_to_zero[0], t.nan[0]) == (0, 0, 0, 1)


@pytest.mark.parametrize("low", [-12, -128])
def test_block_sums_are_exact(low):
    rng = np.random.default_rng(34)
    w = rng.integers(low, -low, (7, 96)).astype(np.int8)
    a = rng.integers(-128, 128, (5, 96)).astype(np.int8)
    w[0], a[0] = low, -128
    sums = block_sums(w, a)
    assert sums.dtype == np.int64
    assert sums[0, 0, 0] == 32 * 128 * -low
    for b in range(3):
        part = slice(32 * b, 32 * b + 32)
        np.testing.assert_array_equal(sums[b], w[:, part].astype(int) @ a[:, part].T.astype(int))


def test_read_out_rounds_to_nearest_even():
    rng = np.random.default_rng(35)
    widths = rng.integers(1, 48, 20000)
    n = rng.integers(0, 2**47, widths.size) >> (47 - widths)
    ties = [(2 * m + 1) << e for m in (2**23, 2**23 + 1, 2**24 - 1) for e in range(23)]
    edges = [0, 1, 2, TOP, TOP - 1, 2**24, 2**24 + 1, 2**24 - 1, *ties, *(t + 1 for t in ties)]
    edges = [e for e in edges if e <= TOP]
    fixed = np.concatenate([n, -n, edges, [-e for e in edges], [BOTTOM]]).astype(np.int64)
    bits = fixed_to_fp32(fixed)
    np.testing.assert_array_equal(bits, [fp32_of(int(v)) for v in fixed])
    one_cast = fixed.astype(np.float32) * np.float32(2.0**-24)
    np.testing.assert_array_equal(bits, one_cast.view(np.uint32))


def test_results_by_hand():
    ones = mx.MxTensor.single("mxfp4", np.full((1, 64), 2), [[127, 127]])
    acts = mx.MxTensor.single("mxint8", np.full((1, 64), 64), [[127, 128]])
    got = mac_array(ones, acts)
    assert got.values[0, 0] == 32 + 64
    assert (got.flags[0, 0], got.zero_count, got.error) == (0, 0, False)
    assert got.fixed[0, 0] == 96 << 24


def test_result_clamp_without_term_clamp():
    # Each block is 2**22 * 4, half of the range: two fit within one LSB less than two of them.
    codes = np.zeros((1, 64), np.int8)
    codes[0, [0, 32]] = 6
    acts = np.zeros((1, 64), np.int8)
    acts[0, [0, 32]] = 64
    weights = mx.MxTensor.single("mxfp4", codes, [[127 + 20] * 2])
    got = mac_array(weights, mx.MxTensor.single("mxint8", acts, [[127] * 2]))
    assert got.flags[0, 0] == MacFlag.RESULT_CLAMPED
    assert got.fixed[0, 0] == TOP
    assert got.values[0, 0] == 2.0**23
    minus = mx.MxTensor.single("mxint8", -acts, [[127] * 2])
    assert mac_array(weights, minus).flags[0, 0] == 0
    assert mac_array(weights, minus).values[0, 0] == -(2.0**23)


def test_terms_may_leave_the_range_and_come_back():
    codes, acts = np.zeros((1, 96), np.int8), np.zeros((1, 96), np.int8)
    codes[0, ::32], acts[0, ::32] = 6, [64, 64, -64]
    weights = mx.MxTensor.single("mxfp4", codes, [[127 + 20] * 3])
    got = mac_array(weights, mx.MxTensor.single("mxint8", acts, [[127] * 3]))
    assert (got.values[0, 0], got.flags[0, 0]) == (2.0**22, 0)


def test_cancelled_sum_is_plus_zero():
    codes, acts = np.full((1, 64), 10), np.full((1, 64), 3)
    acts[0, 32:] = -3
    weights = mx.MxTensor.single("mxfp4", codes, [[127] * 2])
    got = mac_array(weights, mx.MxTensor.single("mxint8", acts, [[127] * 2]))
    assert (got.values_u32[0, 0], got.zero_count) == (0, 0)


def test_zero_blocks_never_clamp():
    weights = mx.MxTensor.single("mxfp4", np.tile([0, 8], (1, 16)), [[254]])
    got = mac_array(weights, mx.MxTensor.single("mxint8", np.full((1, 32), -128), [[254]]))
    assert (got.values_u32[0, 0], got.flags[0, 0], got.zero_count) == (0, 0, 0)


@pytest.mark.parametrize(("fmt", "planes"), CASES)
def test_longest_row_of_largest_terms_is_exact(fmt, planes):
    k = 8192
    code = 7 if fmt == "mxfp4" else 127
    weights = mx.MxTensor(
        fmt, np.full((planes, 1, k), code, np.int8), np.full((planes, 1, k // 32), 254, np.uint8)
    )
    acts = mx.MxTensor.single("mxint8", np.full((2, k), 127), np.full((2, k // 32), 254))
    acts.elements[0, 1] = -127
    got = mac_array(weights, acts)
    np.testing.assert_array_equal(got.fixed, [[TOP, BOTTOM]])
    assert (got.flags == MacFlag.TERM_CLAMPED | MacFlag.RESULT_CLAMPED).all()


@pytest.mark.parametrize(("fmt", "planes"), CASES)
@pytest.mark.parametrize("centre", [215, 237, 272])
def test_order_of_blocks_rows_and_vectors_does_not_matter(fmt, planes, centre):
    rows, vectors, blocks = 20, 6, 24
    w, a = operands(36, fmt, planes, rows, vectors, 32 * blocks, centre=centre, nan=0.002)
    rng = np.random.default_rng(37)
    row, vector, block = (rng.permutation(n) for n in (rows, vectors, blocks))
    columns = (32 * block[:, np.newaxis] + rng.permutation(32)).reshape(-1)
    plane = np.arange(planes)[::-1]
    w2 = mx.MxTensor(
        fmt, w.elements[plane][:, row][:, :, columns], w.scales[plane][:, row][:, :, block]
    )
    a2 = mx.MxTensor(
        "mxint8", a.elements[:, vector][:, :, columns], a.scales[:, vector][..., block]
    )
    got, permuted = mac_array(w, a), mac_array(w2, a2)
    for name in ("values_u32", "flags", "zero_counts", "fixed"):
        expected = getattr(got, name)[row][:, vector]
        assert first_difference(expected, getattr(permuted, name), name) is None
    if centre == 272:
        assert (got.flags & MacFlag.TERM_CLAMPED).any()


def test_clamping_in_the_accumulator_would_depend_on_order():
    # The contract's reason for guard bits: a model that clamps as it adds fails the test above.
    terms = [TOP, TOP, BOTTOM]

    def clamped_sum(order):
        total = 0
        for t in order:
            total = max(BOTTOM, min(TOP, total + t))
        return total

    assert clamped_sum(terms) != clamped_sum(terms[::-1])


@pytest.mark.parametrize(("fmt", "planes"), CASES)
def test_results_approach_the_float64_product(fmt, planes):
    rng = np.random.default_rng(38)
    W = rng.standard_normal((40, 256)).astype(np.float32)
    X = rng.standard_normal((5, 256)).astype(np.float32)
    w, a = mx.quantize(W, fmt, planes=planes), mx.quantize_activations(X)
    exact = mx.dequantize(w) @ mx.dequantize(a).T
    got = mac_array(w, a).values
    # Half an LSB of 2**-24 per block, then one fp32 rounding.
    bound = planes * 8 * 2.0**-25 + np.abs(exact) * 2.0**-24
    assert np.all(np.abs(got - exact) <= bound)


def test_rows_in_slabs_equal_rows_alone():
    w, a = operands(39, "mxfp4", 1, 700, 16, 32 * 40)
    whole = mac_array(w, a)
    for row in (0, 203, 204, 205, 699):
        alone = mac_array(mx.MxTensor("mxfp4", w.elements[:, [row]], w.scales[:, [row]]), a)
        np.testing.assert_array_equal(whole.values_u32[row], alone.values_u32[0])
        np.testing.assert_array_equal(whole.zero_counts[row], alone.zero_counts[0])


def test_bad_operands():
    w, _ = operands(40, "mxfp4", 1, 2, 2, 64)
    with pytest.raises(InputError, match="activations must be mxint8, not mxfp4"):
        mac_array(w, w)
    _, short = operands(40, "mxfp4", 1, 2, 2, 32)
    with pytest.raises(InputError, match="weights have K = 64 but activations have K = 32"):
        mac_array(w, short)
    k = 32 * (2**15 + 1)
    long = mx.MxTensor("mxint8", np.zeros((1, 1, k), np.int8), np.zeros((1, 1, k // 32), np.uint8))
    with pytest.raises(InputError, match=r"1 x 32769 blocks is too long .* 32768"):
        mac_array(long, long)


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["mxfp4", "mxint8"])
def test_twenty_million_products_in_float64(fmt):
    # A second route to the same bits: float64 terms, summed where they are exact.
    for seed in range(20):
        w, a = operands(seed, fmt, 1, 1024, 16, 32 * 64, centre=230, spread=3)
        got = mac_array(w, a)
        s = block_sums(w.integers()[0], a.elements[0])
        shift = w.scales[0].T[:, :, None].astype(int) + a.scales[0].T[:, None, :]
        shift += -254 - (7 if fmt == "mxfp4" else 12) + 24
        fixed = np.floor(np.ldexp(s.astype(np.float64), shift) + 0.5).sum(axis=0)
        assert np.abs(fixed).max() < 2**47
        np.testing.assert_array_equal(got.fixed, fixed.astype(np.int64))
