import numpy as np
import pytest

from pequin_sim.golden import fp32

CORNERS = np.float32(
    [0.0, -0.0, 1e-45, -1e-45, 1e-40, 2.0**-126, -(2.0**-126), 1.0, -1.0, 1.5, 3.4e38, -3.4e38]
)
CORNERS = np.concatenate([CORNERS, np.float32([np.inf, -np.inf, np.nan, 2.0**-127, 16777218])])


def pairs(seed, count=200_000):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    a, b = bits.view(np.float32)
    x, y = (v.ravel() for v in np.meshgrid(CORNERS, CORNERS))
    return np.concatenate([a, x]), np.concatenate([b, y])


def normal(x):
    return np.isfinite(x) & ((np.abs(x) >= fp32.MIN_NORMAL) | (x == 0))


@pytest.mark.parametrize(
    ("ours", "theirs"), [(fp32.add, np.add), (fp32.sub, np.subtract), (fp32.mul, np.multiply)]
)
def test_equals_numpy_where_nothing_is_flushed(ours, theirs):
    a, b = pairs(1)
    with np.errstate(all="ignore"):
        expected = theirs(a, b)
        exact = theirs(a.astype(np.float64), b.astype(np.float64))
    # Only products of normal operands far from the limit take part.
    use = normal(a) & normal(b) & (np.abs(exact) > 2.0**-125) & ~np.isnan(expected)
    assert use.sum() > 50_000
    assert np.array_equal(fp32.to_bits(ours(a, b))[use], fp32.to_bits(expected)[use])


def test_flush_happens_before_rounding():
    a, b = fp32.from_bits([0x21CAFBFE, 0x21B00005]), fp32.from_bits([0x1E216DBD, 0x1E3A2E86])
    exact = a.astype(np.float64) * b.astype(np.float64)
    assert (exact < 2.0**-126).all()
    # With an unbounded exponent the second product rounds to 2**-126.
    assert np.float32(exact[1] * 2.0**64) == np.float32(2.0**-62)
    assert (fp32.to_bits(fp32.mul(a, b)) == 0).all()


def test_flushed_results_keep_their_sign():
    tiny = np.float32(2.0**-126)
    assert fp32.to_bits(fp32.mul(-tiny, np.float32(0.5))) == 0x80000000
    assert fp32.to_bits(fp32.sub(tiny, np.float32(2.0**-126 * 1.5))) == 0x80000000


def test_one_nan():
    for x in (0x7F800001, 0xFFFFFFFF, 0x7FC12345):
        value = fp32.from_bits(np.uint32(x))
        for result in (fp32.add(value, 1), fp32.mul(value, 1), fp32.maximum(value, 1)):
            assert fp32.to_bits(result) == fp32.CANONICAL_NAN
    assert fp32.to_bits(fp32.sub(np.inf, np.inf)) == fp32.CANONICAL_NAN
    assert fp32.to_bits(fp32.mul(0, np.inf)) == fp32.CANONICAL_NAN


def test_subnormal_operands_count_as_zero():
    assert fp32.mul(np.float32(1e-40), np.float32(1e38)) == 0
    assert fp32.to_bits(fp32.add(np.float32(-1e-40), np.float32(-0.0))) == 0x80000000


def test_maximum_and_order():
    a, b = pairs(2)
    result = fp32.maximum(a, b)
    use = normal(a) & normal(b)
    assert np.array_equal(result[use], np.maximum(a, b)[use])
    assert fp32.to_bits(fp32.maximum(-0.0, 0.0)) == 0
    assert np.array_equal(
        fp32.to_bits(fp32.from_order_key(fp32.order_key(a))), fp32.to_bits(fp32.flush(a))
    )


def test_compare_gives_one_outcome():
    a, b = pairs(3)
    code = fp32.compare(a, b)
    assert set(np.unique(code)) == {1, 2, 4, 8}
    assert fp32.compare(-0.0, 1e-45) == 2


def test_integers():
    x = np.array([0, 1, -1, 2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31)], np.int32)
    assert np.array_equal(fp32.from_int(x), x.astype(np.float32))
    values, invalid = fp32.to_int(np.array([0.5, 1.5, 2.5, -0.5, 3e9, -3e9, np.nan, np.inf]))
    assert values.tolist() == [0, 2, 2, 0, 2**31 - 1, -(2**31), 0, 2**31 - 1]
    assert invalid.tolist() == [False] * 4 + [True] * 4
