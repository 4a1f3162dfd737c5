"""The report of a first difference."""

import numpy as np
import pytest

from pequin_sim.compare import first_difference, require_same


def test_equal_arrays_have_no_difference():
    assert first_difference([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])) is None
    assert first_difference([], []) is None
    require_same(np.float32([np.nan, 1]), np.float32([np.nan, 1]))


def test_integers_are_shown_with_index_and_bits():
    expected, actual = np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8)
    actual[1, 0] = actual[1, 2] = 255
    assert first_difference(expected, actual, "flags", ("row", "vector")) == (
        "flags differ at row 1, vector 0: expected 0x0 (0), actual 0xff (255); 2 of 6 differ"
    )


def test_floats_are_compared_by_their_bits():
    assert first_difference(np.float32([0.0, 1.0]), np.float32([-0.0, 1.0])) == (
        "values differ at axis 0 0: expected 0x00000000 (0.0), actual 0x80000000 (-0.0); "
        "1 of 2 differ"
    )
    near = np.nextafter(np.float32(1), np.float32(2))
    message = first_difference(np.float32([1]), np.array([near]), axes=("row",))
    assert "row 0: expected 0x3f800000 (1.0), actual 0x3f800001 (1.0000001)" in message
    quiet, other = np.uint32([0x7FC00000]), np.uint32([0x7FC00001])
    assert "0x7fc00001" in first_difference(quiet.view(np.float32), other.view(np.float32))


def test_negative_integers_show_their_bits():
    message = first_difference(np.int8([-1]), np.int8([3]))
    assert "expected -1 (0xff), actual 0x3 (3)" in message


def test_scalars_and_missing_axis_names():
    assert first_difference(1, 2, "x") == (
        "x differ: expected 0x1 (1), actual 0x2 (2); 1 of 1 differ"
    )
    message = first_difference(np.zeros((1, 2)), np.eye(1, 2), axes=("row",))
    assert "at row 0, axis 1 0" in message


def test_wide_integers_of_different_types_are_compared_exactly():
    big = (1 << 53) + 1
    assert first_difference(np.int64([big]), np.uint64([big - 1])) is not None
    assert first_difference(np.int64([-1]), np.uint64([(1 << 64) - 1])) is not None


def test_shapes_and_types_must_agree():
    assert first_difference(np.zeros((2, 3)), np.zeros((3, 2)), "y") == (
        "y differ in shape: expected (2, 3), actual (3, 2)"
    )
    assert first_difference(np.float32([1]), np.float64([1])) == (
        "values differ in type: expected float32, actual float64"
    )


def test_require_same_raises_the_message():
    with pytest.raises(AssertionError, match="sums differ at row 1: expected 0x2"):
        require_same([1, 2], [1, 3], "sums", ("row",))
