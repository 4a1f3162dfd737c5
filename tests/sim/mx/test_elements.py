"""Elements, code by code, against other people's libraries and against exact arithmetic."""

from fractions import Fraction

import gfloat
import gfloat.formats as gf
import ml_dtypes
import numpy as np
import pytest

from pequin_sim import mx


def every_float16():
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return values[np.isfinite(values)].astype(np.float32)


def around(values):
    """Return values and their nearest neighbours in float32 and float64."""
    out = [np.asarray(values, dtype=np.float64)]
    for dtype in (np.float32, np.float64):
        exact = out[0].astype(dtype)
        out += [np.nextafter(exact, dtype(d)).astype(np.float64) for d in (-np.inf, np.inf)]
    return np.concatenate(out)


def e2m1_midpoints():
    grid = mx.E2M1_VALUES[:8]
    middle = (grid[1:] + grid[:-1]) / 2
    return around(np.concatenate([grid, -grid, middle, -middle, [7.0, 100.0, -100.0]]))


def ml_e2m1(values):
    clipped = np.clip(values, -6, 6)
    return clipped.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 0xF


def nearest_code(x):
    """Return the code of the nearest E2M1 value; the even code on a tie; exact arithmetic."""
    magnitudes = [Fraction(v) for v in mx.E2M1_VALUES[:8]]
    distance = [(abs(abs(Fraction(x)) - m), code % 2, code) for code, m in enumerate(magnitudes)]
    return min(distance)[2] | (8 if np.signbit(x) else 0)


def test_e2m1_values_are_those_of_ml_dtypes():
    theirs = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    np.testing.assert_array_equal(mx.E2M1_VALUES, theirs)
    np.testing.assert_array_equal(np.signbit(mx.E2M1_VALUES), np.signbit(theirs))


def test_e2m1_values_are_those_of_gfloat():
    theirs = [gfloat.decode_float(gf.format_info_ocp_e2m1, code).fval for code in range(16)]
    np.testing.assert_array_equal(mx.decode_e2m1(np.arange(16)), theirs)


def test_e2m1_values_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        mx.E2M1_VALUES[0] = 1


def test_e2m1_integers_are_twice_the_values():
    integers = mx.e2m1_integers(np.arange(16))
    assert integers.dtype == np.int8
    np.testing.assert_array_equal(integers, 2 * mx.E2M1_VALUES)


def test_e2m1_encode_inverts_decode_with_the_sign_of_zero():
    codes = np.arange(16)
    np.testing.assert_array_equal(mx.encode_e2m1(mx.decode_e2m1(codes)), codes)


@pytest.mark.parametrize("values", [every_float16(), e2m1_midpoints()], ids=["float16", "ties"])
def test_e2m1_encode_agrees_with_ml_dtypes(values):
    np.testing.assert_array_equal(
        mx.encode_e2m1(values.astype(np.float32)), ml_e2m1(values.astype(np.float32))
    )


def test_e2m1_encode_agrees_with_gfloat():
    values = e2m1_midpoints()
    fi = gf.format_info_ocp_e2m1
    theirs = gfloat.encode_ndarray(fi, gfloat.round_ndarray(fi, values, sat=True))
    np.testing.assert_array_equal(mx.encode_e2m1(values), theirs)


def test_e2m1_encode_is_nearest_even_in_exact_arithmetic():
    rng = np.random.default_rng(1)
    values = np.concatenate([e2m1_midpoints(), rng.uniform(-8, 8, 2000)])
    np.testing.assert_array_equal(mx.encode_e2m1(values), [nearest_code(x) for x in values])


def test_e2m1_encode_saturates_at_infinity():
    np.testing.assert_array_equal(mx.encode_e2m1([np.inf, -np.inf, 1e300]), [7, 15, 7])


def test_e2m1_encode_keeps_the_shape():
    assert mx.encode_e2m1(np.zeros((2, 3, 4))).shape == (2, 3, 4)
    assert mx.encode_e2m1(1.4).shape == ()


def test_mxint8_decode_agrees_with_gfloat():
    codes = np.arange(256, dtype=np.uint8)
    theirs = [gfloat.decode_float(gf.format_info_ocp_int8, int(code)).fval for code in codes]
    np.testing.assert_array_equal(mx.decode_mxint8(codes.view(np.int8)), theirs)


def test_mxint8_encode_inverts_decode_except_minus_128():
    elements = np.arange(-128, 128).astype(np.int8)
    expected = np.where(elements == -128, -127, elements)
    np.testing.assert_array_equal(mx.encode_mxint8(mx.decode_mxint8(elements)), expected)


def test_mxint8_encode_is_nearest_even_in_exact_arithmetic():
    ties = (np.arange(-260, 261) / 2) / 64
    values = np.concatenate([around(ties), every_float16()[::7].astype(np.float64)])
    expected = [max(-127, min(127, round(Fraction(x) * 64))) for x in values]
    np.testing.assert_array_equal(mx.encode_mxint8(values), expected)


def test_mxint8_encode_agrees_with_gfloat_inside_the_clamp():
    fi = gf.format_info_ocp_int8
    values = around((np.arange(-253, 254) / 2) / 64)
    theirs = gfloat.encode_ndarray(fi, gfloat.round_ndarray(fi, values, sat=True))
    np.testing.assert_array_equal(mx.encode_mxint8(values).view(np.uint8), theirs)


def test_low_nibble_is_the_even_element():
    np.testing.assert_array_equal(mx.pack_nibbles([0x1, 0x2, 0xF, 0x0]), [0x21, 0x0F])


def test_nibbles_come_back():
    codes = np.arange(256).reshape(2, 128) % 16
    np.testing.assert_array_equal(mx.unpack_nibbles(mx.pack_nibbles(codes)), codes)
    data = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(mx.pack_nibbles(mx.unpack_nibbles(data)), data)
