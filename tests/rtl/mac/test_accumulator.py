"""Accumulator: exact sums, sticky errors, and room for the largest K."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.mac.accumulator import Accumulator

TOP, BOTTOM = 2**47 - 1, -(2**47)
OUTPUTS = ["total.sum", "total.nan", "total.term_clamped", "total.zeros"]


def test_random_rows_with_their_flags(clocked, params_of):
    rng = np.random.default_rng(2)
    n = 3000
    term = rng.integers(BOTTOM, TOP + 1, n)
    first = rng.random(n) < 0.3
    first[0] = True
    first[np.arange(0, n, 16)] = True  # no row is longer than `tiny` allows
    bits = {name: rng.random(n) < 0.1 for name in ("nan", "clamped", "zeroed")}
    got = clocked(
        Accumulator(params_of("tiny")),
        {"term": term, "first": first, **bits},
        OUTPUTS,
        clocks=n + 1,
    )
    row = np.cumsum(first) - 1
    starts = np.flatnonzero(first)
    for name, values, join in (
        ("sum", term, np.add),
        ("nan", bits["nan"], np.logical_or),
        ("term_clamped", bits["clamped"], np.logical_or),
        ("zeros", bits["zeroed"].astype(int), np.add),
    ):
        expected = np.concatenate(
            [join.accumulate(values[s:e]) for s, e in zip(starts, [*starts[1:], n], strict=True)]
        )
        np.testing.assert_array_equal(got[f"total.{name}"][1:].astype(np.int64), expected, name)
    assert row[-1] > 100


@pytest.mark.parametrize("term", [TOP, BOTTOM])
@pytest.mark.parametrize("max_k", [32, 96, 256, 8192])
def test_the_largest_row_cannot_overflow(clocked, term, max_k):
    params = TileParams(TileConfig(max_k=max_k, act_blocks=max(8, max_k // 32)))
    blocks = 2 * max_k // 32
    first = [1] + [0] * blocks
    got = clocked(
        Accumulator(params),
        {"term": [term], "first": first, "zeroed": [1]},
        OUTPUTS,
        clocks=blocks + 1,
    )
    assert got["total.sum"][-1] == blocks * term
    assert got["total.zeros"][-1] == blocks
    assert params.acc_bits == 48 + params.guard_bits
    assert 1 << params.guard_bits >= blocks


def test_guard_bits_of_the_largest_k():
    assert TileParams(TileConfig()).guard_bits == 9  # 256 blocks, two planes
