"""Quantizers: the offline one for weights, and the hardware's for activations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK
from pequin.errors import InputError
from pequin_sim.mx.elements import (
    E2M1_EMAX,
    MXINT8_EMAX,
    MXINT8_FRACTION_BITS,
    decode_e2m1,
    decode_mxint8,
    encode_e2m1,
    encode_mxint8,
)
from pequin_sim.mx.scales import (
    SCALE_BIAS,
    SCALE_NAN,
    SCALE_ZERO,
    ScaleRule,
    encode_scale,
    floor_log2,
)
from pequin_sim.mx.tensor import Format, MxTensor, check_k, check_planes

_EMAX = {Format.MXFP4: E2M1_EMAX, Format.MXINT8: MXINT8_EMAX}
_FRACTION_BITS = {Format.MXFP4: 1, Format.MXINT8: MXINT8_FRACTION_BITS}

_SLAB_ELEMENTS = 1 << 18
"""Elements quantized at a time: float64 temporaries stay in a cache."""

FP32_MIN_NORMAL = 2.0**-126
"""Smallest normal fp32 magnitude; the activation quantizer counts smaller ones as zero."""


def quantize(
    x: npt.ArrayLike,
    fmt: Format | str = Format.MXFP4,
    rule: ScaleRule | str = ScaleRule.FLOOR,
    planes: int = 1,
) -> MxTensor:
    """Quantize a weight matrix.

    Elements round to nearest even and saturate. Plane 1 quantizes what plane 0 leaves of `x`,
    a difference that is exact in float64 for float32 input.

    Parameters
    ----------
    x
        Real values [rows, K]; K a positive multiple of 32. Subnormals keep their value.
    fmt
        Element format.
    rule
        How a block's scale exponent is chosen; see `ScaleRule`.
    planes
        1, or 2 for MXFP4.

    Raises
    ------
    InputError
        A shape, type, name or plane count is wrong, or a value is NaN, infinite or beyond
        the float32 range (the message names its row and column).
    """
    values = _matrix(x, "weights")
    fmt, rule = Format.parse(fmt), _parse_rule(rule)
    check_planes(fmt, planes)
    _reject_non_finite(values)
    rows, k = values.shape
    elements = np.empty((planes, rows, k), dtype=np.int8)
    scales = np.empty((planes, rows, k // BLOCK), dtype=np.uint8)
    step = max(1, _SLAB_ELEMENTS // k)
    for start in range(0, rows, step):
        slab = slice(start, start + step)
        residual = values[slab].astype(np.float64).reshape(-1, k // BLOCK, BLOCK)
        for plane in range(planes):
            codes, scale = _quantize_blocks(residual, fmt, rule)
            elements[plane, slab] = codes.reshape(-1, k)
            scales[plane, slab] = scale
            if plane + 1 < planes:
                residual = residual - np.ldexp(_decode(fmt, codes), _exponents(scale))
    return MxTensor(fmt, elements, scales)


def quantize_activations(x: npt.ArrayLike) -> MxTensor:
    """Quantize activations to MXINT8 exactly as the hardware does.

    A block's scale exponent is that of its largest magnitude, so its largest element is 64 to
    127 in magnitude. fp32 subnormals count as zero. A block with a NaN or an infinity gets the
    scale 0xFF and zero elements.

    Parameters
    ----------
    x
        Real values [vectors, K], rounded to float32 first; K a positive multiple of 32.

    Raises
    ------
    InputError
        The shape or type is wrong.
    """
    with np.errstate(over="ignore"):
        values = _matrix(x, "activations").astype(np.float32).astype(np.float64)
    blocks = values.reshape(values.shape[0], -1, BLOCK)
    blocks = np.where(np.abs(blocks) < FP32_MIN_NORMAL, 0.0, blocks)
    amax = np.max(np.abs(blocks), axis=2)
    bad = ~np.isfinite(amax)
    exponent = np.where(bad | (amax == 0), -SCALE_BIAS, floor_log2(amax))
    blocks = np.where(bad[..., np.newaxis], 0.0, blocks)
    elements = encode_mxint8(np.ldexp(blocks, -exponent[..., np.newaxis]))
    scales = np.where(bad, SCALE_NAN, encode_scale(exponent))
    return MxTensor.single(Format.MXINT8, elements.reshape(values.shape), scales)


def _encode(fmt: Format, x: npt.NDArray[np.float64]) -> npt.NDArray[np.int8]:
    """Encode values in units of their scale, in the element type of `MxTensor`."""
    return encode_e2m1(x).astype(np.int8) if fmt is Format.MXFP4 else encode_mxint8(x)


def _decode(fmt: Format, elements: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    return decode_e2m1(elements) if fmt is Format.MXFP4 else decode_mxint8(elements)


def _quantize_blocks(
    blocks: npt.NDArray[np.float64], fmt: Format, rule: ScaleRule
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.uint8]]:
    """Quantize blocks [..., 32] in one plane: elements [..., 32] and scale bytes [...]."""
    amax = np.max(np.abs(blocks), axis=-1)
    if rule is ScaleRule.EVEN:
        scale = encode_scale(floor_log2(_round_significand(amax, fmt)) - _EMAX[fmt])
    else:
        scale = encode_scale(floor_log2(amax) - _EMAX[fmt])
    if rule is ScaleRule.MSE:
        scale = _least_squares_scale(blocks, scale, fmt)
    scale = np.where(amax == 0, np.uint8(SCALE_ZERO), scale)
    codes = _encode(fmt, np.ldexp(blocks, -_exponents(scale)))
    # A block of zeros is all plus zero, also where the input has minus zeros.
    codes[amax == 0] = 0
    return codes, scale


def _round_significand(amax: npt.NDArray[np.float64], fmt: Format) -> npt.NDArray[np.float64]:
    """Round magnitudes to nearest even at the format's count of fraction bits."""
    dropped = 52 - _FRACTION_BITS[fmt]
    bits = np.ascontiguousarray(amax).view(np.int64)
    odd = (bits >> dropped) & 1
    rounded = (bits + ((1 << (dropped - 1)) - 1) + odd) >> dropped << dropped
    return rounded.view(np.float64)


def _least_squares_scale(
    blocks: npt.NDArray[np.float64], floor_scale: npt.NDArray[np.uint8], fmt: Format
) -> npt.NDArray[np.uint8]:
    """Return the scale of least squared error among floor - 1, floor and floor + 1.

    No other exponent can be better: one above adds no grid point inside the block's range, and
    two below saturates the largest element by more than all others can gain.
    """
    base = _exponents(floor_scale)
    best_scale = np.zeros_like(floor_scale)
    best_error = np.full(floor_scale.shape, np.inf)
    for offset in (-1, 0, 1):
        scale = encode_scale(floor_scale.astype(np.int64) + (offset - SCALE_BIAS))
        step = _exponents(scale)
        quantized = _decode(fmt, _encode(fmt, np.ldexp(blocks, -step)))
        error = _sum_squares(np.ldexp(blocks, -base) - np.ldexp(quantized, step - base))
        better = error < best_error
        best_scale = np.where(better, scale, best_scale)
        best_error = np.where(better, error, best_error)
    return best_scale


def _sum_squares(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum squares over the last axis in one fixed order, the same on every machine."""
    total = x * x
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total[..., 0]


def _exponents(scale: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Return scale exponents [..., 1], to broadcast over the elements of a block."""
    return (scale.astype(np.int32) - SCALE_BIAS)[..., np.newaxis]


def _parse_rule(rule: ScaleRule | str) -> ScaleRule:
    try:
        return ScaleRule(rule)
    except ValueError:
        known = ", ".join(ScaleRule)
        raise InputError(f"scale rule {rule!r} is unknown; choose one of {known}") from None


def _matrix(x: npt.ArrayLike, what: str) -> npt.NDArray[np.generic]:
    """Return `x` as an array after checking that it is a real matrix with a whole K."""
    values = np.asarray(x)
    if values.dtype.kind not in "fiu":
        raise InputError(f"{what} must be real numbers, not {values.dtype}")
    if values.ndim != 2:
        raise InputError(f"{what} must be a matrix of shape [rows, K], not {values.shape}")
    check_k(values.shape[1])
    return values


def _reject_non_finite(values: npt.NDArray[np.generic]) -> None:
    good = np.abs(values) <= np.finfo(np.float32).max if values.dtype.kind == "f" else np.True_
    if not np.all(good):
        row, column = np.argwhere(~good)[0]
        raise InputError(
            f"weights: row {row}, column {column} is {values[row, column]}; MX weights must be "
            f"finite and in the float32 range ({np.count_nonzero(~good)} of {values.size} values "
            "are not)"
        )
