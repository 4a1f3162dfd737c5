"""Language models: shapes, float and quantized weights, and a float64 reference decoder.

docs/compiler.md describes how a model becomes a tile's program and memory image.
"""

from pequin_sim.model.formats import MATRICES, Formats, MatrixFormat
from pequin_sim.model.model import LayerWeights, Model, random_model
from pequin_sim.model.quantized import (
    QuantizedModel,
    matrix_rows,
    quantize_model,
    random_quantized,
    rotary_order,
    rotary_table,
)
from pequin_sim.model.reference import ReferenceDecoder, StepResult
from pequin_sim.model.shape import ModelShape, Rotary, padded

__all__ = [
    "MATRICES",
    "Formats",
    "LayerWeights",
    "MatrixFormat",
    "Model",
    "ModelShape",
    "QuantizedModel",
    "ReferenceDecoder",
    "Rotary",
    "StepResult",
    "matrix_rows",
    "padded",
    "quantize_model",
    "random_model",
    "random_quantized",
    "rotary_order",
    "rotary_table",
]
