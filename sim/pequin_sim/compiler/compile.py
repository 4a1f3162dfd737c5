"""Which program a model and its options get."""

from __future__ import annotations

from pequin.config import TileParams
from pequin_sim.compiler.batch import BatchCode
from pequin_sim.compiler.batch_attention import BatchAttentionCode
from pequin_sim.compiler.batch_plan import make_batch_plan
from pequin_sim.compiler.builder import ProgramBuilder
from pequin_sim.compiler.decoder import CompiledDecoder, DecoderCode, finished
from pequin_sim.compiler.layer import LayerCode
from pequin_sim.compiler.options import Options
from pequin_sim.compiler.plan import make_plan
from pequin_sim.model import MATRICES, ModelShape, matrix_rows
from pequin_sim.model.formats import HEAD


def compile_decoder(shape: ModelShape, params: TileParams, options: Options) -> CompiledDecoder:
    """Return the program that decodes on one tile: one sequence, or with `batch` several.

    Parameters
    ----------
    shape
        The model's sizes.
    params
        The tile.
    options
        Choices.

    Raises
    ------
    InputError
        The model does not fit the tile; the message has the numbers.
    """
    sizes = {name: matrix_rows(shape, name) for name in (*MATRICES, HEAD)}
    b = ProgramBuilder("decoder")
    if options.batch > 1:
        plan = make_batch_plan(shape, params, options, sizes)
        BatchCode(b, plan, BatchAttentionCode(b, plan)).emit()
        return finished(b, plan)
    plan = make_plan(shape, params, options, sizes, heads=shape.heads, kv_heads=shape.kv_heads)
    DecoderCode(b, plan, LayerCode(b, plan)).emit()
    return finished(b, plan)
