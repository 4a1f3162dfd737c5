"""The weight quantizer: each scale rule against exact arithmetic, planes, and bad input."""

from fractions import Fraction

import gfloat
import gfloat.formats as gf
import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim import mx
from pequin_sim.mx.quantize import _SLAB_ELEMENTS

FORMATS = ["mxfp4", "mxint8"]
RULES = ["floor", "even", "mse"]
EMAX = {"mxfp4": 2, "mxint8": 0}
GRID = {
    "mxfp4": sorted(set(mx.E2M1_VALUES.tolist())),
    "mxint8": [n / 64 for n in range(-127, 128)],
}


def matrix(seed, rows=8, k=64, spread=0):
    """Return float32 [rows, k] with block magnitudes over 2**+-spread and some exact ties."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k // 32, 32))
    x *= 2.0 ** rng.integers(-spread, spread + 1, (rows, k // 32, 1))
    coarse = rng.random((rows, k // 32, 1)) < 0.3
    x = np.where(coarse, np.rint(x * 8) / 8, x)
    return x.reshape(rows, k).astype(np.float32)


def exact_floor_log2(x):
    """Return floor(log2(x)) of a positive Fraction."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def exact_element(x, scale, fmt):
    """Return the value that x rounds to on the format's grid, nearest even, saturated."""
    unit = Fraction(2) ** (scale - 127)
    y = x / unit
    if fmt == "mxint8":
        return Fraction(max(-127, min(127, round(y * 64))), 64) * unit
    best = min(GRID[fmt], key=lambda v: (abs(y - Fraction(v)), int(mx.encode_e2m1(v)) % 2))
    return Fraction(best) * unit


def exact_error(block, scale, fmt):
    return sum((x - exact_element(x, scale, fmt)) ** 2 for x in block)


def exact_scale(block, fmt, rule):
    """Return a block's scale byte, in Fractions all the way."""
    amax = max(abs(x) for x in block)
    if amax == 0:
        return 0
    exponent = exact_floor_log2(amax)
    if rule == "even":
        step = Fraction(2) ** (exponent - {"mxfp4": 1, "mxint8": 6}[fmt])
        exponent = exact_floor_log2(round(amax / step) * step)
    floor = exponent - EMAX[fmt] + 127
    if rule == "mse":
        # Wider than the quantizer's own search.
        candidates = range(max(0, floor - 4), min(254, floor + 4) + 1)
        return min(candidates, key=lambda s: (exact_error(block, s, fmt), s))
    return max(0, min(254, floor))


def blocks_of(x):
    return [[Fraction(float(v)) for v in row] for row in np.asarray(x).reshape(-1, 32)]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("spread", [0, 120])
def test_scales_and_elements_in_exact_arithmetic(fmt, rule, spread):
    x = matrix(11, rows=6 if rule == "mse" else 20, spread=spread)
    q = mx.quantize(x, fmt, rule)
    values = mx.dequantize(q).reshape(-1, 32)
    for i, block in enumerate(blocks_of(x)):
        scale = exact_scale(block, fmt, rule)
        assert q.scales.reshape(-1)[i] == scale
        assert values[i].tolist() == [exact_element(v, scale, fmt) for v in block]


@pytest.mark.parametrize(
    ("fmt", "info"), [("mxfp4", gf.format_info_mxfp4_e2m1), ("mxint8", gf.format_info_mxint8)]
)
def test_floor_agrees_with_gfloat(fmt, info):
    x = matrix(12, rows=40, spread=30).astype(np.float64)
    ours = mx.dequantize(mx.quantize(x, fmt, "floor"))
    for row in range(x.shape[0]):
        for k in range(0, x.shape[1], 32):
            block = x[row, k : k + 32]
            theirs = gfloat.quantize_block(info, block, gfloat.compute_scale_amax)
            # gfloat lets MXINT8 reach -2; our quantizers are symmetric.
            limit = np.max(mx.decode_scale(mx.quantize(x, fmt).scales[0, row, k // 32])) * 127 / 64
            if fmt == "mxint8":
                theirs = np.clip(theirs, -limit, limit)
            np.testing.assert_array_equal(ours[row, k : k + 32], theirs)


def block(*values):
    return np.array([[*values, *[0.0] * (32 - len(values))]])


@pytest.mark.parametrize(
    ("fmt", "amax", "floor", "even"),
    [
        ("mxfp4", 4.0, 127, 127),
        ("mxfp4", 6.999, 127, 127),
        ("mxfp4", 7.0, 127, 128),  # significand 1.75 ties to 2.0, the even one
        ("mxfp4", 7.999, 127, 128),
        ("mxfp4", 8.0, 128, 128),
        ("mxint8", 1.0, 127, 127),
        ("mxint8", 127.499 / 64, 127, 127),
        ("mxint8", 127.5 / 64, 127, 128),
        ("mxint8", 2.0, 128, 128),
    ],
)
def test_floor_and_even_by_hand(fmt, amax, floor, even):
    for sign in (1, -1):
        assert mx.quantize(block(sign * amax), fmt, "floor").scales[0, 0, 0] == floor
        assert mx.quantize(block(sign * amax), fmt, "even").scales[0, 0, 0] == even


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ((4.0,), 127),  # exact at 127 and 128: the lowest wins; 126 reaches only 3
        ((7.9,), 128),  # 8 is nearer than 6
        ((6.9,), 127),  # 6 is nearer than 8
        ((6.9, 7.5), 128),  # now 8 is nearer for the block
        ((3.0, 0.25), 126),
    ],
)
def test_mse_by_hand(values, scale):
    assert mx.quantize(block(*values), "mxfp4", "mse").scales[0, 0, 0] == scale


def test_mse_may_saturate_an_outlier():
    # One 4.0 among many quarters: half the scale costs 1.0 and saves 31 / 16.
    values = (4.0, *[0.25] * 31)
    q = mx.quantize(block(*values), "mxfp4", "mse")
    assert q.scales[0, 0, 0] == 126
    np.testing.assert_array_equal(mx.dequantize(q)[0], [3.0, *[0.25] * 31])


@pytest.mark.parametrize("fmt", FORMATS)
def test_mse_is_never_worse_than_the_other_rules(fmt):
    x = matrix(13, rows=300, k=320, spread=5).astype(np.float64)

    def errors(rule):
        difference = (mx.dequantize(mx.quantize(x, fmt, rule)) - x).reshape(-1, 32)
        return np.sum(difference**2, axis=1)

    best = errors("mse")
    for rule in ("floor", "even"):
        other = errors(rule)
        assert np.all(best <= other * (1 + 1e-12))
        assert np.any(best < other * 0.9)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_block(fmt, rule, zero):
    x = np.ones((2, 64))
    x[1, 32:] = zero
    q = mx.quantize(x, fmt, rule)
    assert q.scales[0, 1, 1] == 0x00
    assert not q.elements[0, 1, 32:].any()
    assert q.elements[0, :1].all()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rule", RULES)
def test_scale_range_ends(fmt, rule):
    tiny = mx.quantize(block(2.0**-149, 2.0**-128), fmt, rule)
    assert tiny.scales[0, 0, 0] == 0x00
    expected = [0, 2.0**-128]
    np.testing.assert_array_equal(mx.dequantize(tiny)[0, :2], expected)
    fp32_max = float(np.finfo(np.float32).max)
    huge = mx.quantize(block(fp32_max, -fp32_max), fmt, rule)
    assert huge.scales[0, 0, 0] == exact_scale(blocks_of(block(fp32_max))[0], fmt, rule)
    # The step above MXINT8's top scale does not exist, so `even` and `mse` clamp as `floor` does.
    largest = {"mxint8": 127 * 2.0**121, "mxfp4": (6 if rule == "floor" else 8) * 2.0**125}[fmt]
    np.testing.assert_array_equal(mx.dequantize(huge)[0, :2], [largest, -largest])


@pytest.mark.parametrize("rule", RULES)
def test_second_plane_quantizes_the_exact_residual(rule):
    x = matrix(14, rows=20, spread=60)
    q = mx.quantize(x, "mxfp4", rule, planes=2)
    first = mx.quantize(x, "mxfp4", rule)
    np.testing.assert_array_equal(q.elements[0], first.elements[0])
    np.testing.assert_array_equal(q.scales[0], first.scales[0])
    q0 = mx.dequantize(first)
    second = mx.MxTensor("mxfp4", q.elements[1:], q.scales[1:])
    values = mx.dequantize(second).reshape(-1, 32)
    for i, (b, base) in enumerate(zip(blocks_of(x), blocks_of(q0), strict=True)):
        residual = [v - w for v, w in zip(b, base, strict=True)]
        if rule != "mse":
            assert second.scales.reshape(-1)[i] == exact_scale(residual, "mxfp4", rule)
        scale = int(second.scales.reshape(-1)[i])
        assert values[i].tolist() == [exact_element(v, scale, "mxfp4") for v in residual]


def test_second_plane_shrinks_the_error():
    x = matrix(15, rows=100).astype(np.float64)
    one, two = (mx.dequantize(mx.quantize(x, planes=p)) for p in (1, 2))
    assert np.sum((two - x) ** 2) < np.sum((one - x) ** 2) / 20


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rule", RULES)
def test_quantized_values_stay(fmt, rule):
    x = mx.dequantize(mx.quantize(matrix(16, rows=50), fmt, rule))
    np.testing.assert_array_equal(mx.dequantize(mx.quantize(x, fmt, "mse")), x)


def test_rows_do_not_influence_each_other():
    rows, k = 2 * _SLAB_ELEMENTS // 4096 + 3, 4096
    x = np.random.default_rng(17).standard_normal((rows, k)).astype(np.float32)
    whole = mx.quantize(x, "mxfp4", "even", planes=2)
    for start in (0, 1, 62, 64, rows - 2):
        part = mx.quantize(x[start : start + 2], "mxfp4", "even", planes=2)
        np.testing.assert_array_equal(whole.elements[:, start : start + 2], part.elements)
        np.testing.assert_array_equal(whole.scales[:, start : start + 2], part.scales)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.int8, np.uint16, np.int64]
)
def test_every_real_type_is_taken_by_value(dtype):
    x = np.arange(64).reshape(1, 64).astype(dtype)
    np.testing.assert_array_equal(
        mx.quantize(x).elements, mx.quantize(np.arange(64.0).reshape(1, 64)).elements
    )


def test_the_input_is_not_changed():
    x = matrix(18)
    before = x.copy()
    mx.quantize(x, planes=2)
    mx.quantize_activations(x)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weight_is_named(bad):
    x = np.ones((5, 96), dtype=np.float32)
    x[3, 70] = x[4, 0] = bad
    message = rf"weights: row 3, column 70 is {bad}; .* \(2 of 480 values are not\)"
    with pytest.raises(InputError, match=message):
        mx.quantize(x)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (np.ones((2, 33)), {}, "K must be a positive multiple of the block size 32, not 33"),
        (np.ones((2, 0)), {}, "K must be a positive multiple of the block size 32, not 0"),
        (np.ones(32), {}, r"must be a matrix of shape \[rows, K\], not \(32,\)"),
        (np.ones((1, 32), complex), {}, "must be real numbers, not complex128"),
        (np.ones((1, 32), bool), {}, "must be real numbers, not bool"),
        (np.full((1, 32), 1e39), {}, r"row 0, column 0 is 1e\+39; .* float32 range"),
        (np.ones((1, 32)), {"fmt": "fp4"}, "format 'fp4' is unknown"),
        (np.ones((1, 32)), {"rule": "ceil"}, "'ceil' is unknown; choose one of floor, even, mse"),
        (np.ones((1, 32)), {"planes": 3}, "mxfp4 takes planes = 1 to 2, not 3"),
        (np.ones((1, 32)), {"fmt": "mxint8", "planes": 2}, "mxint8 takes planes = 1, not 2"),
    ],
)
def test_bad_input(x, options, message):
    with pytest.raises(InputError, match=message):
        mx.quantize(x, **options)


def test_no_rows_is_an_empty_matrix():
    assert mx.quantize(np.ones((0, 32))).rows == 0
