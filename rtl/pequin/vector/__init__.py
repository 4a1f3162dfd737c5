"""The vector unit: fp32 lanes over a banked memory, reductions, and the MX quantizer."""

from pequin.vector.types import (
    Factor,
    Op,
    Quantize,
    Reduce,
    ResponseKind,
    Source,
    Status,
    access_request,
    kv_write,
    quantized_block,
    vector_command,
    vector_response,
)
from pequin.vector.unit import VectorUnit

__all__ = [
    "Factor",
    "Op",
    "Quantize",
    "Reduce",
    "ResponseKind",
    "Source",
    "Status",
    "VectorUnit",
    "access_request",
    "kv_write",
    "quantized_block",
    "vector_command",
    "vector_response",
]
