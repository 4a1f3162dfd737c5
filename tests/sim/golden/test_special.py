import numpy as np
import pytest

from pequin.fp32 import tables
from pequin_sim.golden import special

STATED = special.MAX_RELATIVE_ERROR


def octave(exponent):
    """Every float32 of one binade."""
    return (np.arange(1 << 23, dtype=np.uint32) | np.uint32(exponent << 23)).view(np.float32)


def worst(function, reference, x):
    y = function(x).astype(np.float64)
    return np.max(np.abs(y / reference(x.astype(np.float64)) - 1))


def test_required_bound():
    assert STATED <= 2.0**-20


def test_reciprocal_of_every_significand():
    assert worst(special.reciprocal, lambda x: 1 / x, octave(127)) <= STATED


@pytest.mark.parametrize("exponent", [127, 128])
def test_rsqrt_of_every_significand(exponent):
    assert worst(special.rsqrt, lambda x: 1 / np.sqrt(x), octave(exponent)) <= STATED


@pytest.mark.parametrize("low", [0.0, 0.5])
def test_exp2_of_every_grid_point(low):
    x = (low + np.arange(1 << 23) * 2.0**-24).astype(np.float32)
    assert worst(special.exp2, np.exp2, x) <= STATED
    assert worst(special.exp2, np.exp2, -x) <= STATED


def test_all_exponents_sampled():
    rng = np.random.default_rng(0)
    x = rng.integers(0x00800000, 0x7F800000, 1_000_000, dtype=np.uint32).view(np.float32)
    assert worst(special.rsqrt, lambda x: 1 / np.sqrt(x), x) <= STATED
    small = x[x < 2.0**125]
    assert worst(special.reciprocal, lambda x: 1 / x, small) <= STATED
    y = rng.uniform(-126, 128, 1_000_000).astype(np.float32)
    assert worst(special.exp2, np.exp2, y[(y > -126) & (y < 128)]) <= STATED


def test_exact_values():
    whole = np.arange(-126, 128, dtype=np.float32)
    assert np.array_equal(special.exp2(whole), np.exp2(whole.astype(np.float64)).astype(np.float32))
    powers = np.exp2(np.arange(-125, 126, dtype=np.float64)).astype(np.float32)
    assert np.array_equal(special.reciprocal(powers), 1 / powers)
    assert np.array_equal(special.rsqrt(np.float32([4, 16, 0.25])), np.float32([0.5, 0.25, 2]))


def test_special_values():
    nan, inf = np.nan, np.inf
    x = np.float32([0.0, -0.0, inf, -inf, nan, -1.0, 1e-41])
    assert np.array_equal(special.exp2(x[:5]), np.float32([1, 1, inf, 0, nan]), equal_nan=True)
    assert np.array_equal(
        special.reciprocal(x), np.float32([inf, -inf, 0, -0.0, nan, -1, inf]), equal_nan=True
    )
    assert np.array_equal(
        special.rsqrt(x), np.float32([inf, inf, 0, nan, nan, nan, inf]), equal_nan=True
    )
    assert special.exp2(np.float32(128)) == inf
    assert special.exp2(np.float32(-126.5)) == 0


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("exp2", tables.exp2_table()),
        ("reciprocal", tables.reciprocal_table()),
        ("rsqrt", tables.rsqrt_table(False)),
        ("rsqrt_odd", tables.rsqrt_table(True)),
    ],
)
def test_tables_agree_with_the_hardware(name, table):
    points = special.points(name)
    assert points[:-1].tolist() == [value for value, _ in table]
    assert np.abs(np.diff(points)).tolist() == [slope for _, slope in table]
