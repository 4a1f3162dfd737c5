"""Microscaling (MX) numbers in numpy: encode, decode, quantize and pack.

The formats are those of the OCP Microscaling Formats specification v1.0. `docs/numerics.md`
states every rule used here.
"""

from pequin_sim.mx.elements import (
    E2M1_VALUES,
    decode_e2m1,
    decode_mxint8,
    e2m1_integers,
    encode_e2m1,
    encode_mxint8,
    pack_nibbles,
    unpack_nibbles,
)
from pequin_sim.mx.quantize import quantize, quantize_activations
from pequin_sim.mx.scales import (
    SCALE_BIAS,
    SCALE_NAN,
    SCALE_ONE,
    SCALE_ZERO,
    ScaleRule,
    decode_scale,
    encode_scale,
    floor_log2,
)
from pequin_sim.mx.tensor import Format, MxTensor, dequantize, from_checkpoint, reject_nan_scales

__all__ = [
    "E2M1_VALUES",
    "SCALE_BIAS",
    "SCALE_NAN",
    "SCALE_ONE",
    "SCALE_ZERO",
    "Format",
    "MxTensor",
    "ScaleRule",
    "decode_e2m1",
    "decode_mxint8",
    "decode_scale",
    "dequantize",
    "e2m1_integers",
    "encode_e2m1",
    "encode_mxint8",
    "encode_scale",
    "floor_log2",
    "from_checkpoint",
    "pack_nibbles",
    "quantize",
    "quantize_activations",
    "reject_nan_scales",
    "unpack_nibbles",
]
