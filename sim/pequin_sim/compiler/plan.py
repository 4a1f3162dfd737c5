"""How attention is cut into passes, and everything of a program that follows from sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pequin.config import BLOCK, TileParams
from pequin.errors import InputError
from pequin_sim.compiler.maps import (
    Allocator,
    HbmMap,
    KvMap,
    Region,
    VectorMap,
    map_hbm,
    map_kv,
    map_vector,
)
from pequin_sim.compiler.options import MAX_AHEAD, Options
from pequin_sim.model import MATRICES, ModelShape
from pequin_sim.model.formats import HEAD

STREAM_ITEMS = 3
"""Queue items of a stream command: address, beats, launch."""


@dataclass(frozen=True)
class Wave:
    """Passes of attention whose scores are computed one after the other.

    Parameters
    ----------
    first
        Number of the first pass.
    kv_heads, groups
        Passes: some groups of query heads for each of some KV heads.
    buffer
        Set of buffers that it uses.
    """

    first: int
    kv_heads: int
    groups: int
    buffer: int

    @property
    def passes(self) -> int:
        """Passes of the wave."""
        return self.kv_heads * self.groups


@dataclass(frozen=True)
class AttentionPlan:
    """A *pass* is one KV head against `vectors` of its query heads.

    Parameters
    ----------
    vectors
        Query heads of a pass: as many as the columns hold, a divisor of the heads' group.
    groups
        Passes of a KV head.
    kv_heads
        KV heads.
    wave_passes, wave_groups
        Passes of a wave, and groups among them.
    buffers
        1: a wave's scores wait for the probabilities' use of the wave before. 2: they do not.
    paired
        Whether a query head has two columns.
    """

    vectors: int
    groups: int
    kv_heads: int
    wave_passes: int
    wave_groups: int
    buffers: int
    paired: bool

    @property
    def passes(self) -> int:
        """Passes of a layer."""
        return self.kv_heads * self.groups

    @property
    def buffered(self) -> int:
        """Passes whose scores and probabilities have a place."""
        return self.buffers * self.wave_passes

    @property
    def waves(self) -> list[Wave]:
        """The waves, in order."""
        step = self.wave_passes
        return [
            Wave(
                first,
                min(step, self.passes - first) // self.wave_groups,
                self.wave_groups,
                first // step % self.buffers,
            )
            for first in range(0, self.passes, step)
        ]


def attention_plans(heads: int, kv_heads: int, params: TileParams) -> Iterator[AttentionPlan]:
    """Yield plans, the best first; later ones need less memory."""
    if not kv_heads:
        yield AttentionPlan(0, 0, 0, 0, 1, 0, False)
        return
    columns, group = params.config.columns, heads // kv_heads
    vectors = max(n for n in range(1, min(group, columns) + 1) if group % n == 0)
    groups, paired = group // vectors, vectors <= columns // 2

    def plan(passes: int, together: int, buffers: int) -> AttentionPlan:
        return AttentionPlan(vectors, groups, kv_heads, passes, together, buffers, paired)

    yield plan(kv_heads * groups, groups, 1)
    for count in range(-(-kv_heads // 2), 0, -1):
        yield plan(count * groups, groups, 2)
    yield plan(1, 1, 2)
    yield plan(1, 1, 1)


@dataclass(frozen=True)
class ScalarMap:
    """Scalar registers of the vector unit.

    `negative_log2_e` and `rms_mlp` are neighbours, and so are `gate_factor` and `up_factor`: one
    command multiplies both with 1 / rms.

    Parameters
    ----------
    inverse_hidden, epsilon, one, negative_log2_e
        Constants.
    rms_mlp, rms_attention
        1 / rms before the MLP, and before attention and the head.
    gate_factor, up_factor
        -log2(e) / rms and 1 / rms^2.
    maxima, inverses
        Largest score and 1 / sum of each buffered query head.
    zero
        The constant 0; programs of batches have it.
    """

    maxima: int
    inverses: int
    inverse_hidden: int = 0
    epsilon: int = 1
    one: int = 2
    negative_log2_e: int = 3
    rms_mlp: int = 4
    gate_factor: int = 5
    up_factor: int = 6
    rms_attention: int = 7
    zero: int = 0


FIRST_FREE_SCALAR = 8


def map_scalars(params: TileParams, plan: AttentionPlan) -> ScalarMap:
    """Place scalars.

    Raises
    ------
    InputError
        There are too few.
    """
    memory = Allocator("the scalar registers", "registers", min(params.config.scalars, 256))
    memory.take("constants", FIRST_FREE_SCALAR)
    count = plan.buffered * plan.vectors
    result = ScalarMap(memory.take("maxima", count), memory.take("inverses", count))
    memory.check()
    return result


@dataclass(frozen=True)
class ActivationMap:
    """Addresses in the activation buffer (blocks of one column).

    Parameters
    ----------
    x, queries, probabilities, attention, mlp
        First addresses. `mlp` shares its place with attention's.
    query_stride, probability_stride
        From one pass to the next.
    """

    x: int
    queries: int
    probabilities: int
    attention: int
    mlp: int
    query_stride: int
    probability_stride: int
    regions: Mapping[str, Region]


def map_activations(
    shape: ModelShape,
    params: TileParams,
    options: Options,
    plan: AttentionPlan,
    sizes: Mapping[str, tuple[int, int]],
    gathered: bool = False,
) -> ActivationMap:
    """Place activations; vectors of weights are paired, so that they take half their blocks.

    With `gathered`, what other tiles write stays: the MLP has a place of its own.

    Raises
    ------
    InputError
        The activation buffer is too small.
    """
    size = params.config.act_blocks
    name, unit = "the activation buffer", "blocks of a column"
    share = 2 if plan.paired else 1
    query_stride = -(-shape.head_blocks // share)
    granules = -(-options.max_positions // BLOCK)
    probability_stride = -(-granules // share)

    def blocks(matrix: str) -> int:
        return -(-sizes[matrix][1] // (2 * BLOCK))

    fixed = Allocator(name, unit, size)
    x = fixed.take("residual", blocks("q"))
    attention = Allocator(name, unit, size, start=fixed.at)
    queries = attention.take("queries", plan.passes * query_stride)
    probabilities = attention.take("probabilities", plan.buffered * probability_stride)
    outputs = attention.take("attention", blocks("o"))
    mlp = Allocator(name, unit, size, start=attention.at if gathered else fixed.at)
    hidden = mlp.take("mlp", blocks("down"))
    for stage in (attention, mlp):
        stage.regions = {**fixed.regions, **stage.regions}
        stage.check()
    regions = {**attention.regions, **mlp.regions}
    return ActivationMap(
        x, queries, probabilities, outputs, hidden, query_stride, probability_stride, regions
    )


@dataclass(frozen=True)
class TileMap:
    """Where everything lies.

    Parameters
    ----------
    hbm, kv, vector, scalars, activations
        Maps of the memories.
    attention
        How attention is cut.
    """

    hbm: HbmMap
    kv: KvMap
    vector: VectorMap
    scalars: ScalarMap
    activations: ActivationMap
    attention: AttentionPlan


@dataclass(frozen=True)
class Plan:
    """Everything that a program is made from.

    Parameters
    ----------
    shape, params, options
        What is compiled.
    sizes
        By matrix: rows and K on this tile.
    map
        Where everything lies.
    ahead
        Matrices that streams are ahead.
    """

    shape: ModelShape
    params: TileParams
    options: Options
    sizes: Mapping[str, tuple[int, int]]
    map: TileMap
    ahead: int


def make_plan(
    shape: ModelShape,
    params: TileParams,
    options: Options,
    sizes: Mapping[str, tuple[int, int]],
    *,
    heads: int,
    kv_heads: int,
    gathered: int = 0,
) -> Plan:
    """Place everything with the best plan of attention that fits.

    Parameters
    ----------
    shape, params, options
        What is compiled.
    sizes
        By matrix: rows and K on this tile; without `head` there is none.
    heads, kv_heads
        Query and KV heads on this tile, 0 for none.
    gathered
        Elements of vector memory for rows of several tiles.

    Raises
    ------
    InputError
        Something does not fit; the message has the numbers.
    """
    check_sizes(params, options, sizes)
    hbm = map_hbm(shape, params, options, sizes)
    kv = map_kv(shape, params, options, kv_heads)
    plans = list(attention_plans(heads, kv_heads, params))
    for number, plan in enumerate(plans):
        try:
            tile_map = TileMap(
                hbm,
                kv,
                map_vector(
                    shape,
                    params,
                    options,
                    kv_heads=kv_heads,
                    kv_rows=sizes["k"][0],
                    score_rows=plan.buffered * plan.vectors,
                    mlp=sizes["up"][0],
                    gathered=gathered,
                ),
                map_scalars(params, plan),
                map_activations(shape, params, options, plan, sizes, gathered > 0),
                plan,
            )
        except InputError:
            if number + 1 == len(plans):
                raise
            continue
        return Plan(shape, params, options, sizes, tile_map, streams_ahead(params, options, hbm))
    raise AssertionError("there is always a plan")


def check_sizes(params: TileParams, options: Options, sizes: Mapping[str, tuple[int, int]]) -> None:
    """Refuse matrices that the MAC array or a command cannot take."""
    config = params.config
    most = 1 << config.index_bits
    for name, (rows, k) in sizes.items():
        if k > config.max_k:
            raise InputError(f"matrix {name} has K = {k}; the tile's max_k is {config.max_k}")
        if rows > most:
            raise InputError(
                f"matrix {name} has {rows} rows; index_bits = {config.index_bits} allow {most}"
            )
        if rows > _MAX_LENGTH and (name != HEAD or options.head == "logits"):
            raise InputError(f"matrix {name} has {rows} rows; one command takes {_MAX_LENGTH}")
    limit = min(config.max_k, most)
    if options.max_positions > limit:
        raise InputError(
            f"max_positions = {options.max_positions} is above {limit}: max_k {config.max_k} and "
            f"2**index_bits {most} limit the tokens of a head"
        )


_MAX_LENGTH = 65535
"""Longest vector of a vector command."""


def streams_ahead(params: TileParams, options: Options, hbm: HbmMap) -> int:
    """Return how many matrices streams are ahead: what the FIFO holds, if the queue holds it.

    A stream command that waits for room in the FIFO may wait for a matrix that the sequencer has
    yet to launch. So the commands ahead must all fit in the queue.
    """
    most = min(MAX_AHEAD, params.config.queue_items // STREAM_ITEMS - 1)
    if options.ahead is not None:
        if options.ahead > most:
            raise InputError(
                f"ahead = {options.ahead} needs {STREAM_ITEMS * (options.ahead + 1)} queue items "
                f"and is limited to {MAX_AHEAD}; the stream engine's queue has "
                f"{params.config.queue_items}, so at most {most}"
            )
        return options.ahead
    beats = [hbm.beats[name] for name in MATRICES]
    for ahead in range(most + 1):
        room = min(
            sum(beats[(i + 1 + j) % len(beats)] for j in range(ahead)) for i in range(len(beats))
        )
        if room >= params.config.fifo_beats:
            return ahead
    return most
