"""Where everything lies in a program of batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pequin.config import BLOCK, TileParams
from pequin.errors import InputError
from pequin_sim.compiler.maps import Allocator, VectorMap, map_hbm, map_kv
from pequin_sim.compiler.options import Head, Options
from pequin_sim.compiler.plan import (
    ActivationMap,
    AttentionPlan,
    Plan,
    ScalarMap,
    TileMap,
    attention_plans,
    check_sizes,
    streams_ahead,
)
from pequin_sim.model import ModelShape, padded

CONSTANTS = 5
"""Scalars that no step changes."""


def batch_attention_plans(shape: ModelShape, params: TileParams) -> Iterator[AttentionPlan]:
    """Yield plans, the best first: with two sets of buffers a column overlaps with the next."""
    plain = next(attention_plans(shape.heads, shape.kv_heads, params))

    def plan(passes: int, together: int, buffers: int) -> AttentionPlan:
        return AttentionPlan(
            plain.vectors,
            plain.groups,
            shape.kv_heads,
            passes,
            together,
            buffers,
            plain.paired,
        )

    # Waves as equal as they can be: 8 KV heads as 8, 4 + 4, 3 + 3 + 2 and so on.
    counts = sorted({-(-shape.kv_heads // n) for n in range(1, shape.kv_heads + 1)}, reverse=True)
    for buffers in (2, 1):
        for count in counts:
            yield plan(count * plain.groups, plain.groups, buffers)
        yield plan(1, 1, buffers)


def map_batch_vector(
    shape: ModelShape, params: TileParams, options: Options, plan: AttentionPlan
) -> VectorMap:
    """Place everything in vector memory, with a vector for each column of a step.

    Raises
    ------
    InputError
        Vector memory is too small.
    """
    size, batch = params.config.vector_elements, options.batch
    head, positions = padded(shape.head_dim), padded(options.max_positions)
    hidden, mlp, vocab = (padded(n) for n in (shape.hidden, shape.mlp, shape.vocab))
    fixed = Allocator("vector memory", "elements", size)
    x = fixed.take("residual", batch * hidden)
    rotary = fixed.take("rotary table", batch * head)
    attention, ffn, last = (
        Allocator("vector memory", "elements", size, start=fixed.at) for _ in range(3)
    )
    values = attention.take("values", batch * shape.kv_heads * head)
    keys = attention.take("keys", batch * shape.kv_heads * head)
    queries = attention.take("queries", batch * shape.heads * head)
    scales = attention.take("value scales", plan.buffers * shape.kv_heads * positions)
    scores = attention.take("scores", plan.buffered * plan.vectors * positions)
    gate = ffn.take("gate", batch * mlp)
    silu = ffn.take("silu", batch * mlp)
    logits = last.take("logits", batch * vocab if options.head is Head.LOGITS else 0)
    for stage in (attention, ffn, last):
        stage.regions = {**fixed.regions, **stage.regions}
        stage.check()
    return VectorMap(
        x=x,
        rotary=rotary,
        values=values,
        keys=keys,
        queries=queries,
        value_scales=scales,
        scores=scores,
        head_stride=head,
        positions=positions,
        gate=gate,
        silu=silu,
        logits=logits,
        gathered=0,
        regions={**attention.regions, **ffn.regions, **last.regions},
        x_stride=hidden,
        rotary_stride=head,
        kv_stride=shape.kv_heads * head,
        query_stride=shape.heads * head,
        mlp_stride=mlp,
        logits_stride=vocab,
    )


def map_batch_scalars(params: TileParams, options: Options, plan: AttentionPlan) -> ScalarMap:
    """Place scalars: 1 / rms of each column; attention and MLP share the rest.

    Raises
    ------
    InputError
        There are too few.
    """
    size, batch = min(params.config.scalars, 256), options.batch
    fixed = Allocator("the scalar registers", "registers", size)
    fixed.take("constants", CONSTANTS)
    rms = fixed.take("1 / rms", batch)
    attention, mlp = (
        Allocator("the scalar registers", "registers", size, start=fixed.at) for _ in range(2)
    )
    maxima = attention.take("maxima", plan.buffered * plan.vectors)
    inverses = attention.take("inverses", plan.buffered * plan.vectors)
    gate = mlp.take("gate factors", batch)
    up = mlp.take("up factors", batch)
    for stage in (attention, mlp):
        stage.regions = {**fixed.regions, **stage.regions}
        stage.check()
    return ScalarMap(
        maxima,
        inverses,
        zero=CONSTANTS - 1,
        rms_mlp=rms,
        rms_attention=rms,
        gate_factor=gate,
        up_factor=up,
    )


def map_batch_activations(
    params: TileParams,
    options: Options,
    plan: AttentionPlan,
    sizes: Mapping[str, tuple[int, int]],
    head_blocks: int,
) -> ActivationMap:
    """Place activations: a step of more than half the columns has each vector in one column.

    Queries and probabilities of a column's heads lie where the residual's blocks were; the
    attention output and the MLP's activations share the second place.

    Raises
    ------
    InputError
        The activation buffer is too small.
    """
    size = params.config.act_blocks
    share = 2 if plan.paired else 1
    query_stride = -(-head_blocks // share)
    granules = -(-options.max_positions // BLOCK)
    probability_stride = -(-granules // share)
    paired = 2 * options.batch <= params.config.columns

    def blocks(matrix: str) -> int:
        return -(-sizes[matrix][1] // (2 * BLOCK if paired else BLOCK))

    def memory(start: int = 0) -> Allocator:
        return Allocator("the activation buffer", "blocks of a column", size, start=start)

    first, attention = memory(), memory()
    first.take("residual", blocks("q"))
    queries = attention.take("queries", plan.buffers * plan.passes * query_stride)
    probabilities = attention.take("probabilities", plan.buffered * probability_stride)
    start = max(first.at, attention.at)
    second, mlp = memory(start), memory(start)
    outputs = second.take("attention", blocks("o"))
    hidden = mlp.take("mlp", blocks("down"))
    regions = {**first.regions, **attention.regions, **second.regions, **mlp.regions}
    for stage in (second, mlp):
        stage.regions = {**first.regions, **attention.regions, **stage.regions}
        stage.check()
    return ActivationMap(
        0, queries, probabilities, outputs, hidden, query_stride, probability_stride, regions
    )


def make_batch_plan(
    shape: ModelShape,
    params: TileParams,
    options: Options,
    sizes: Mapping[str, tuple[int, int]],
) -> Plan:
    """Place everything with the best plan of attention that fits.

    Raises
    ------
    InputError
        Something does not fit; the message has the numbers.
    """
    columns = params.config.columns
    if options.batch > columns:
        raise InputError(f"batch = {options.batch}, but the tile has {columns} columns")
    check_sizes(params, options, sizes)
    hbm = map_hbm(shape, params, options, sizes)
    kv = map_kv(shape, params, options, shape.kv_heads)
    plans = list(batch_attention_plans(shape, params))
    for number, plan in enumerate(plans):
        try:
            tile_map = TileMap(
                hbm,
                kv,
                map_batch_vector(shape, params, options, plan),
                map_batch_scalars(params, options, plan),
                map_batch_activations(params, options, plan, sizes, shape.head_blocks),
                plan,
            )
        except InputError:
            if number + 1 == len(plans):
                raise
            continue
        return Plan(shape, params, options, sizes, tile_map, streams_ahead(params, options, hbm))
    raise AssertionError("there is always a plan")
