"""Block scales: every code, and exponents from the bits of a float."""

import math

import gfloat
import gfloat.formats as gf
import ml_dtypes
import numpy as np

from pequin_sim import mx


def test_every_scale_is_a_power_of_two_or_nan():
    values = mx.decode_scale(np.arange(256))
    np.testing.assert_array_equal(values[:255], [2.0 ** (s - 127) for s in range(255)])
    assert math.isnan(values[255])


def test_every_scale_agrees_with_gfloat_and_ml_dtypes():
    values = mx.decode_scale(np.arange(256))
    theirs = [gfloat.decode_float(gf.format_info_ocp_e8m0, s).fval for s in range(256)]
    np.testing.assert_array_equal(values, theirs)
    dtype = ml_dtypes.float8_e8m0fnu
    np.testing.assert_array_equal(
        values, np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    )


def test_encode_scale_inverts_decode():
    exponents = np.arange(-127, 128)
    scales = mx.encode_scale(exponents)
    np.testing.assert_array_equal(scales, np.arange(255))
    np.testing.assert_array_equal(mx.decode_scale(scales), 2.0 ** exponents.astype(np.float64))


def test_encode_scale_clamps_to_the_finite_codes():
    np.testing.assert_array_equal(
        mx.encode_scale([-5000, -128, -127, 127, 128, 5000]), [0, 0, 0, 254, 254, 254]
    )


def test_named_scales():
    assert mx.decode_scale(mx.SCALE_ZERO) == 2.0**-127
    assert mx.decode_scale(mx.SCALE_ONE) == 1
    assert math.isnan(mx.decode_scale(mx.SCALE_NAN))


def test_floor_log2_at_and_beside_every_power_of_two():
    powers = 2.0 ** np.arange(-1021, 1024, dtype=np.float64)
    for values in (powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf), -powers):
        expected = [math.frexp(v)[1] - 1 for v in values]
        np.testing.assert_array_equal(mx.floor_log2(values), expected)


def test_floor_log2_of_float32_just_below_powers_of_two():
    # This is where floor(log2(x)) in float32 arithmetic is wrong for most exponents.
    powers = np.float32(2) ** np.arange(-100, 128, dtype=np.float32)
    below = np.nextafter(powers, np.float32(0))
    np.testing.assert_array_equal(mx.floor_log2(below), np.arange(-101, 127))


def test_floor_log2_of_special_values():
    np.testing.assert_array_equal(mx.floor_log2([0.0, -0.0, 5e-324]), [-1023] * 3)
    np.testing.assert_array_equal(mx.floor_log2([np.inf, -np.inf, np.nan]), [1024] * 3)
