"""Aligner: all shifts with corner sums, random scales, flags, NaN and enable."""

import numpy as np
import pytest

from pequin.mac.aligner import Aligner
from pequin_sim.golden.mac import align
from pequin_sim.mx import Format

FORMATS = [Format.MXFP4, Format.MXINT8]
LIMIT = {Format.MXFP4: 32 * 12 * 128, Format.MXINT8: 2**19}
OUTPUTS = ["term", "nan", "clamped", "zeroed"]


def corners(limit):
    near = [0, 1, 2, 3, 5, 2**15, 2**16 - 1, 2**16, 2**18 - 1, 2**18, limit - 1, limit]
    magnitudes = np.array([n for n in near if n <= limit])
    return np.concatenate([magnitudes, -magnitudes])


def drive(clocked, fmt, sums, weight, act, enable=None):
    """Run blocks through the aligner and compare all outputs with the golden model."""
    on = np.ones(len(sums), bool) if enable is None else enable
    got = clocked(
        Aligner(),
        {
            "weight_scale": weight,
            "act_scale": act,
            "format": [FORMATS.index(fmt)],
            "enable": on,
            "sum": [0, *sums],
        },
        OUTPUTS,
        clocks=len(sums) + 3,
    )
    expected = align(sums.astype(np.int64), weight.astype(np.uint8), act.astype(np.uint8), fmt)
    for name, want in (
        ("term", np.where(on, expected.values, 0)),
        ("nan", expected.nan & on),
        ("clamped", expected.clamped & on),
        ("zeroed", expected.rounded_to_zero & on),
    ):
        have = got[name][3:].astype(np.int64)
        wrong = np.flatnonzero(have != want)
        assert not len(wrong), (
            f"{name} of sum {sums[wrong[0]]}, scales {weight[wrong[0]]} and {act[wrong[0]]}: "
            f"{have[wrong[0]]}, expected {int(want[wrong[0]])}"
        )
    return expected


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_shift_with_corner_sums(clocked, fmt):
    total = np.arange(0, 2 * 254 + 1)
    sums = corners(LIMIT[fmt])
    s, t = (x.ravel() for x in np.meshgrid(sums, total))
    weight = np.minimum(t, 254)
    expected = drive(clocked, fmt, s, weight, t - weight)
    assert expected.clamped.any()
    assert expected.rounded_to_zero.any()
    assert expected.values.max() == 2**47 - 1
    assert expected.values.min() == -(2**47)


@pytest.mark.parametrize("fmt", FORMATS)
def test_half_is_rounded_up_at_every_right_shift(clocked, fmt):
    bias = 237 if fmt is Format.MXFP4 else 242
    half = np.concatenate([2 ** np.arange(0, 19), 3 * 2 ** np.arange(0, 17)])
    values = np.concatenate([half, half - 1, half + 1])
    values = values[values < LIMIT[fmt]]
    sums, shift = (x.ravel() for x in np.meshgrid(np.concatenate([values, -values]), range(1, 23)))
    expected = drive(clocked, fmt, sums, np.full(len(sums), 100), bias - 100 - shift)
    odd_half = (sums % (1 << shift)) == (1 << (shift - 1))
    assert odd_half.sum() > 100
    np.testing.assert_array_equal(
        expected.values[odd_half], (sums[odd_half] >> shift[odd_half]) + 1
    )


@pytest.mark.parametrize("fmt", FORMATS)
def test_edge_of_the_clamp(clocked, fmt):
    bias = 237 if fmt is Format.MXFP4 else 242
    top = LIMIT[fmt].bit_length()
    cases = []
    for left in range(47 - top, 48):
        edge = 1 << max(0, 47 - left)
        for s in (edge - 1, edge, edge + 1, -edge, -edge - 1, -edge + 1):
            if 0 < abs(s) <= LIMIT[fmt]:
                cases.append((s, bias + left))
    s, t = np.array(cases).T
    expected = drive(clocked, fmt, s, np.full(len(s), 150), t - 150)
    assert 0 < expected.clamped.sum() < len(s)


@pytest.mark.parametrize("fmt", FORMATS)
def test_random_scales_nan_and_disabled_blocks(clocked, fmt):
    rng = np.random.default_rng(11)
    n = 4000
    sums = rng.integers(-LIMIT[fmt], LIMIT[fmt] + 1, n)
    sums >>= rng.integers(0, 20, n)
    weight, act = rng.integers(0, 256, (2, n))
    weight[rng.random(n) < 0.05] = 255
    expected = drive(clocked, fmt, sums, weight, act, rng.random(n) < 0.8)
    assert expected.nan.sum() > 100
