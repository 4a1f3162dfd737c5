"""The golden arg-max and top-k, against Python's own sort."""

import math

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim.golden.topk import arg_max, top_k


def bits(values):
    return np.asarray(values, dtype=np.float32).view(np.uint32)


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("rows", [1, 3, 8, 100])
def test_against_python_sort(rows, k):
    rng = np.random.default_rng(rows * 10 + k)
    values = rng.integers(-4, 5, (rows, 6)).astype(np.float32)  # few values, many ties
    values[rng.random(values.shape) < 0.2] = np.nan
    got = top_k(bits(values), k)
    for v in range(6):
        ranked = sorted(
            (-float(x), r) for r, x in enumerate(values[:, v]) if not math.isnan(float(x))
        )[:k]
        count = len(ranked)
        assert got.counts[v] == count
        assert got.indices[v].tolist() == [r for _, r in ranked] + [-1] * (k - count)
        assert got.values_u32[v, :count].tolist() == bits([-x for x, _ in ranked]).tolist()
        assert not got.values_u32[v, count:].any()


def test_lowest_row_wins_a_tie():
    values = bits([[1.0], [3.0], [3.0], [2.0], [3.0]])
    assert arg_max(values).tolist() == [1]
    assert top_k(values, 4).indices.tolist() == [[1, 2, 4, 3]]


def test_negative_values_and_infinities_are_ordered():
    values = bits([[-1.0], [-np.inf], [np.inf], [-2.0], [0.0]])
    assert top_k(values, 8).indices.tolist() == [[2, 4, 0, 3, 1, -1, -1, -1]]


def test_nan_is_never_selected():
    values = bits([[np.nan, np.nan], [-5.0, np.nan]])
    assert arg_max(values).tolist() == [1, -1]
    assert top_k(values, 2).counts.tolist() == [1, 0]


def test_values_that_differ_in_the_last_bit():
    values = np.array([[0x3F800000], [0x3F800001], [0x3F7FFFFF]], dtype=np.uint32)
    assert top_k(values, 3).indices.tolist() == [[1, 0, 2]]


def test_order_of_rows_changes_only_the_indices_of_ties():
    rng = np.random.default_rng(41)
    values = bits(rng.standard_normal((50, 3)))
    order = rng.permutation(50)
    got, permuted = top_k(values, 5), top_k(values[order], 5)
    np.testing.assert_array_equal(order[permuted.indices], got.indices)


def test_bad_input():
    with pytest.raises(InputError, match=r"uint32 .*, not float32 of shape"):
        top_k(np.zeros((2, 2), np.float32), 1)
    with pytest.raises(InputError, match=r"not uint32 of shape \(2,\)"):
        top_k(np.zeros(2, np.uint32), 1)
    with pytest.raises(InputError, match="at least one entry, not 0"):
        top_k(bits([[1.0]]), 0)
