"""Matrices in MX formats: every code with every scale, and bad input."""

import math
from fractions import Fraction

import gfloat
import gfloat.formats as gf
import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim import mx


def every_code_and_scale(fmt, codes):
    """Return a matrix with one row per scale whose blocks hold every code."""
    elements = np.tile(codes, (256, 1))
    scales = np.repeat(np.arange(256)[:, np.newaxis], elements.shape[1] // 32, axis=1)
    return mx.MxTensor.single(fmt, elements, scales)


@pytest.mark.parametrize(
    ("fmt", "codes", "info"),
    [
        ("mxfp4", np.tile(np.arange(16), 2), gf.format_info_mxfp4_e2m1),
        ("mxint8", np.arange(-128, 128), gf.format_info_mxint8),
    ],
)
def test_every_code_with_every_scale(fmt, codes, info):
    tensor = every_code_and_scale(fmt, codes)
    values = mx.dequantize(tensor)
    unit = Fraction(1, 2 if fmt == "mxfp4" else 64)
    integers = tensor.integers()[0]
    width = 4 if fmt == "mxfp4" else 8
    for scale in range(256):
        block = [scale, *(int(c) & ((1 << width) - 1) for c in codes)]
        theirs = list(gfloat.decode_block(info, block))
        np.testing.assert_array_equal(values[scale], theirs)
        if scale < 255:
            exact = [int(n) * unit * Fraction(2) ** (scale - 127) for n in integers[scale]]
            assert values[scale].tolist() == exact
    assert all(math.isnan(v) for v in values[255])


def test_dequantize_adds_planes():
    elements = np.zeros((2, 1, 32), dtype=np.int8)
    elements[0, 0, :2], elements[1, 0, :2] = [2, 7], [1, 9]
    scales = np.array([[[128]], [[125]]], dtype=np.uint8)
    values = mx.dequantize(mx.MxTensor("mxfp4", elements, scales))
    np.testing.assert_array_equal(values[0, :3], [2 + 0.125, 12 - 0.125, 0])


def test_integers_are_those_of_the_dot_product():
    fp4 = mx.MxTensor.single("mxfp4", [[*range(16), *range(16)]], [[127]])
    np.testing.assert_array_equal(fp4.integers()[0, 0, :16], 2 * mx.E2M1_VALUES)
    int8 = mx.MxTensor.single("mxint8", [[-128, *range(31)]], [[127]])
    np.testing.assert_array_equal(int8.integers()[0, 0], [-128, *range(31)])


def test_shape_properties():
    tensor = mx.quantize(np.ones((3, 96)), planes=2)
    assert (tensor.planes, tensor.rows, tensor.k, tensor.blocks) == (2, 3, 96, 3)


@pytest.mark.parametrize(
    ("fmt", "elements", "scales", "message"),
    [
        ("mxfp6", (1, 1, 32), (1, 1, 1), "format 'mxfp6' is unknown; choose one of mxfp4, mxint8"),
        ("mxfp4", (1, 1, 33), (1, 1, 1), "positive multiple of the block size 32, not 33"),
        ("mxfp4", (1, 1, 0), (1, 1, 0), "positive multiple of the block size 32, not 0"),
        ("mxfp4", (1, 32), (1, 1), r"must be \[planes, rows, K\], not of shape \(1, 32\)"),
        ("mxfp4", (1, 2, 64), (1, 2, 3), r"need scales of shape \(1, 2, 2\), not \(1, 2, 3\)"),
        ("mxfp4", (3, 1, 32), (3, 1, 1), "mxfp4 takes planes = 1 to 2, not 3"),
        ("mxint8", (2, 1, 32), (2, 1, 1), "mxint8 takes planes = 1, not 2"),
    ],
)
def test_bad_shapes(fmt, elements, scales, message):
    with pytest.raises(InputError, match=message):
        mx.MxTensor(fmt, np.zeros(elements, np.int8), np.zeros(scales, np.uint8))


def test_bad_types_and_codes():
    zeros = np.zeros((1, 1, 32), np.int8)
    with pytest.raises(InputError, match="int8 and scales uint8, not int8 and int8"):
        mx.MxTensor("mxfp4", zeros, np.zeros((1, 1, 1), np.int8))
    with pytest.raises(InputError, match=r"codes 0\.\.15, but they range from -1 to -1"):
        mx.MxTensor("mxfp4", zeros - 1, np.zeros((1, 1, 1), np.uint8))
    with pytest.raises(InputError, match="range from 0 to 16"):
        mx.MxTensor.single("mxfp4", [[16, *[0] * 31]], [[127]])


@pytest.mark.parametrize(
    ("elements", "scales", "message"),
    [
        ([[300, *[0] * 31]], [[127]], "elements must be integers -128 to 127"),
        ([[0.5, *[0] * 31]], [[127]], "elements must be integers"),
        ([[0] * 32], [[256]], "scales must be integers 0 to 255"),
        ([[0] * 32], [[-1]], "scales must be integers 0 to 255"),
    ],
)
def test_single_refuses_what_would_wrap(elements, scales, message):
    with pytest.raises(InputError, match=message):
        mx.MxTensor.single("mxint8", elements, scales)


def test_nan_scale_in_ready_made_weights_is_named():
    tensor = mx.MxTensor.single("mxfp4", np.zeros((3, 96)), np.full((3, 3), 127))
    mx.reject_nan_scales(tensor)
    tensor.scales[0, 2, 1] = 0xFF
    message = r"W: the scale of row 2, block 1 \(columns 32 to 63\), plane 0 .* 1 of 9 scales"
    with pytest.raises(InputError, match=message):
        mx.reject_nan_scales(tensor, "W")


def test_checkpoint_blocks():
    blocks = np.arange(2 * 3 * 16, dtype=np.uint8).reshape(2, 3, 16)
    scales = np.arange(6, dtype=np.uint8).reshape(2, 3) + 120
    tensor = mx.from_checkpoint(blocks, scales)
    for row in range(2):
        for k in range(96):
            byte = blocks[row, k // 32, k % 32 // 2]
            code = byte >> 4 if k % 2 else byte & 0xF
            assert tensor.elements[0, row, k] == code
    np.testing.assert_array_equal(tensor.scales[0], scales)


def test_bad_checkpoints():
    blocks, scales = np.zeros((2, 3, 16), np.uint8), np.full((2, 3), 127, np.uint8)
    with pytest.raises(InputError, match=r"not uint8 of shape \(2, 3, 8\)"):
        mx.from_checkpoint(blocks[..., :8], scales)
    with pytest.raises(InputError, match="not int64"):
        mx.from_checkpoint(blocks.astype(np.int64), scales)
    with pytest.raises(InputError, match="scales must be uint8, not int64"):
        mx.from_checkpoint(blocks, scales.astype(np.int64))
    with pytest.raises(InputError, match=r"need scales of shape \(1, 2, 3\)"):
        mx.from_checkpoint(blocks, scales[:, :2])
    scales[1, 2] = 0xFF
    with pytest.raises(InputError, match=r"row 1, block 2 \(columns 64 to 95\)"):
        mx.from_checkpoint(blocks, scales)
