"""The HBM image of a model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pequin.config import BEAT_BYTES, BLOCK
from pequin.errors import InputError
from pequin_sim.compiler.maps import HbmMap
from pequin_sim.compiler.options import Embedding
from pequin_sim.compiler.plan import Plan
from pequin_sim.layout import beat_count, pack_weights, scale_beats
from pequin_sim.model import MATRICES, Model, QuantizedModel, quantize_model, rotary_table
from pequin_sim.model.formats import HEAD
from pequin_sim.mx import Format, MxTensor

Beats = npt.NDArray[np.uint8]
"""uint8 [beats, 32]."""


def quantized_for(plan: Plan, model: Model | QuantizedModel) -> QuantizedModel:
    """Return a model in the plan's formats.

    Raises
    ------
    InputError
        The model has another shape or is quantized in other formats.
    """
    if model.shape != plan.shape:
        raise InputError(f"the program is for {plan.shape}, but the model is {model.shape}")
    fp32 = plan.options.embedding is Embedding.FP32
    if isinstance(model, Model):
        rows = {name: size[0] for name, size in plan.sizes.items()}
        return quantize_model(model, plan.options.formats, fp32, {HEAD: 1, **rows})
    for name in plan.sizes:
        wanted, tensor = plan.options.formats[name], model.matrix(0, name)
        if (tensor.fmt, tensor.planes) != (wanted.fmt, wanted.planes):
            raise InputError(
                f"matrix {name} is {tensor.fmt} in {tensor.planes} planes, but the program is "
                f"for {wanted}"
            )
    if fp32 and model.embedding_fp32 is None:
        raise InputError("the program wants an fp32 embedding: quantize with fp32_embedding=True")
    return model


def hbm_parts(plan: Plan, model: Model | QuantizedModel) -> list[tuple[int, Beats]]:
    """Return what HBM holds: (first beat, beats) of each matrix and table, in order.

    Raises
    ------
    InputError
        The model does not fit the program.
    """
    hbm, shape = plan.map.hbm, plan.shape
    quantized = quantized_for(plan, model)
    parts = [
        (
            hbm.base + layer * hbm.layer_beats + hbm.offsets[name],
            pack_weights(_cut(quantized.matrix(layer, name), plan.sizes[name])),
        )
        for layer in range(shape.layers)
        for name in MATRICES
    ]
    if HEAD in plan.sizes:
        parts.append((hbm.head, pack_weights(_cut(quantized.head, plan.sizes[HEAD]))))
    parts.append((hbm.embedding, _embedding(hbm, quantized)))
    table = rotary_table(shape, plan.options.max_positions)
    parts.append((hbm.rotary, float_rows(table, hbm.rotary_row)))
    return parts


def image(plan: Plan, model: Model | QuantizedModel) -> Beats:
    """Return HBM from beat 0 to the end of the map."""
    beats = np.zeros((plan.map.hbm.stop, BEAT_BYTES), np.uint8)
    for start, part in hbm_parts(plan, model):
        beats[start : start + len(part)] = part
    return beats


def total_beats(sizes: Mapping[str, int], layers: int) -> int:
    """Return the beats of all weights: those of a layer times the layers, and the head."""
    layer = sum(beats for name, beats in sizes.items() if name != HEAD)
    return layers * layer + sizes.get(HEAD, 0)


def _cut(tensor: MxTensor, size: tuple[int, int]) -> MxTensor:
    """Return the first rows of a matrix."""
    rows = size[0]
    return MxTensor(
        tensor.fmt,
        np.ascontiguousarray(tensor.elements[:, :rows]),
        np.ascontiguousarray(tensor.scales[:, :rows]),
    )


def _embedding(hbm: HbmMap, model: QuantizedModel) -> Beats:
    if model.embedding_fp32 is not None:
        return float_rows(model.embedding_fp32, hbm.embedding_row)
    return block_rows(model.embedding)


def block_rows(tensor: MxTensor) -> Beats:
    """Return MXINT8 rows, each the packed stream of a matrix of one row, one after the other."""
    beats = beat_count(1, tensor.k, Format.MXINT8)
    rows = np.zeros((tensor.rows, beats.total, BEAT_BYTES), np.uint8)
    is_scale = scale_beats(beats, Format.MXINT8)
    scales = np.zeros((tensor.rows, beats.scale * BLOCK), np.uint8)
    scales[:, : tensor.blocks] = tensor.scales[0]
    rows[:, is_scale] = scales.reshape(tensor.rows, beats.scale, BEAT_BYTES)
    rows[:, ~is_scale] = tensor.elements[0].view(np.uint8).reshape(tensor.rows, -1, BEAT_BYTES)
    return rows.reshape(-1, BEAT_BYTES)


def float_rows(values: npt.NDArray[np.float32], row_beats: int) -> Beats:
    """Return fp32 rows, each filled up to whole beats."""
    room = row_beats * (BEAT_BYTES // 4) - values.shape[1]
    wide = np.ascontiguousarray(np.pad(values, ((0, 0), (0, room))).astype("<f4"))
    return wide.view(np.uint8).reshape(-1, BEAT_BYTES)
