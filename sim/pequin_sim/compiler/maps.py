"""Where everything lies: HBM, KV buffer, vector memory, scalars, activation buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pequin.config import BEAT_BYTES, BLOCK, TileParams
from pequin.errors import InputError
from pequin_sim.compiler.options import Embedding, Head, Options
from pequin_sim.layout import beat_count
from pequin_sim.model import MATRICES, ModelShape, padded
from pequin_sim.model.formats import HEAD

BEAT_ELEMENTS = BEAT_BYTES // 4
"""fp32 elements of a beat."""

GRANULE_TOKENS = BLOCK
"""Tokens of a KV granule."""


@dataclass(frozen=True)
class Region:
    """Places start to start + size - 1 of a memory, in the memory's own unit."""

    start: int
    size: int

    @property
    def stop(self) -> int:
        """The place after the last one."""
        return self.start + self.size

    def meets(self, other: Region) -> bool:
        """Return whether both have a place in common."""
        return self.start < other.stop and other.start < self.stop


class Allocator:
    """Hands out regions of a memory, one after the other.

    Parameters
    ----------
    memory, unit
        For messages.
    size
        Places of the memory.
    """

    def __init__(self, memory: str, unit: str, size: int, start: int = 0) -> None:
        self.memory, self.unit, self.size, self.at = memory, unit, size, start
        self.regions: dict[str, Region] = {}

    def take(self, name: str, size: int) -> int:
        """Reserve `size` places; return the first."""
        self.regions[name] = Region(self.at, size)
        self.at += size
        return self.regions[name].start

    def check(self) -> None:
        """Raise `InputError` with all sizes when the memory is too small."""
        if self.at > self.size:
            parts = ", ".join(f"{name} {r.size}" for name, r in self.regions.items() if r.size)
            raise InputError(
                f"the model needs {self.at} {self.unit} of {self.memory}, which has {self.size}: "
                f"{parts}"
            )


@dataclass(frozen=True)
class HbmMap:
    """Beats of HBM.

    Parameters
    ----------
    base
        First beat of layer 0; layers follow each other `layer_beats` apart.
    offsets
        By matrix: its first beat, from that of its layer.
    beats
        By matrix, `head` among them: beats of its stream.
    head, embedding, rotary
        First beats.
    embedding_row, rotary_row
        Beats of a row.
    stop
        The beat after the last one.
    """

    base: int
    layer_beats: int
    offsets: Mapping[str, int]
    beats: Mapping[str, int]
    head: int
    embedding: int
    embedding_row: int
    rotary: int
    rotary_row: int
    stop: int


def map_hbm(
    shape: ModelShape,
    params: TileParams,
    options: Options,
    sizes: Mapping[str, tuple[int, int]],
) -> HbmMap:
    """Place weights, embedding and rotary table.

    Parameters
    ----------
    shape, params, options
        What is compiled.
    sizes
        By matrix: rows and K.

    Raises
    ------
    InputError
        The HBM channel's store is too small.
    """
    beats = {name: stream_beats(options, name, *size) for name, size in sizes.items()}
    offsets, layer_beats = {}, 0
    for name in MATRICES:
        offsets[name] = layer_beats
        layer_beats += beats[name]
    memory = Allocator(
        "HBM", "beats", params.config.store_bytes // BEAT_BYTES, start=options.hbm_base
    )
    base = memory.take("layers", shape.layers * layer_beats)
    head = memory.take(HEAD, beats.get(HEAD, 0))
    row = embedding_row_beats(shape, options)
    embedding = memory.take("embedding", shape.vocab * row)
    rotary_row = -(-shape.head_dim // BEAT_ELEMENTS)
    rotary = memory.take("rotary table", options.max_positions * rotary_row)
    memory.check()
    return HbmMap(
        base,
        layer_beats,
        offsets,
        beats,
        head,
        embedding,
        row,
        rotary,
        rotary_row,
        memory.at,
    )


def stream_beats(options: Options, name: str, rows: int, k: int) -> int:
    """Return the beats of a matrix's stream."""
    choice = options.formats[name]
    return beat_count(rows, k, choice.fmt, choice.planes).total


def embedding_row_beats(shape: ModelShape, options: Options) -> int:
    """Return the beats of an embedding row."""
    if options.embedding is Embedding.FP32:
        return -(-shape.hidden // BEAT_ELEMENTS)
    return beat_count(1, padded(shape.hidden), "mxint8").total


@dataclass(frozen=True)
class KvMap:
    """Places of a sequence's KV cache in the KV buffer, from its base (beats).

    Parameters
    ----------
    granule
        Beats of a granule: 32 tokens of one layer and KV head.
    granules
        Granules of one layer and KV head, for all positions.
    head, layer, slot
        Beats from one KV head, layer, sequence to the next.
    """

    granule: int
    granules: int
    head: int
    layer: int
    slot: int

    def address(self, layer: int, head: int, position: int) -> int:
        """Return the granule of a token, from the sequence's base (beats)."""
        token = position // GRANULE_TOKENS * self.granule
        return layer * self.layer + head * self.head + token


def map_kv(shape: ModelShape, params: TileParams, options: Options, kv_heads: int) -> KvMap:
    """Place the KV cache of one sequence.

    Raises
    ------
    InputError
        The KV buffer cannot hold one sequence.
    """
    granule = 8 + 64 * shape.head_blocks
    granules = -(-options.max_positions // GRANULE_TOKENS)
    head = granule * granules
    layer = head * kv_heads
    slot = layer * shape.layers
    if slot > params.config.kv_beats:
        raise InputError(
            f"the KV cache of one sequence needs {slot} beats, but the KV buffer has "
            f"{params.config.kv_beats}: {shape.layers} layers x {kv_heads} KV heads x {granules} "
            f"granules of {granule} beats for {options.max_positions} positions"
        )
    return KvMap(granule, granules, head, layer, slot)


@dataclass(frozen=True)
class VectorMap:
    """Element addresses in vector memory. Attention, MLP and logits have the same place.

    Parameters
    ----------
    x
        The residual [hidden].
    rotary
        Cosines and sines of the position [head_dim].
    values
        V of the token [kv heads, head_dim], heads `head_stride` apart.
    keys
        K of the token, likewise; used by shares.
    queries
        Rows of q that are of no whole head; used by shares.
    value_scales
        Scales of V [kv heads, positions], heads `positions` apart.
    scores
        [buffers, heads of a pass, positions].
    head_stride, positions
        Strides.
    gate, silu
        [mlp]: the gate's result, and its silu.
    logits
        [vocab].
    gathered
        Rows of `o` or `down`, of all tiles [hidden]; used by shares.
    regions
        All regions by name; those of one stage do not meet.
    x_stride, rotary_stride, kv_stride, query_stride, mlp_stride, logits_stride
        From one column's vector to the next in a program of batches: of `x`; `rotary`; `keys` and
        `values`; `queries`; `gate` and `silu`; `logits`.
    """

    x: int
    rotary: int
    values: int
    keys: int
    queries: int
    value_scales: int
    scores: int
    head_stride: int
    positions: int
    gate: int
    silu: int
    logits: int
    gathered: int
    regions: Mapping[str, Region]
    x_stride: int = 0
    rotary_stride: int = 0
    kv_stride: int = 0
    query_stride: int = 0
    mlp_stride: int = 0
    logits_stride: int = 0


def map_vector(
    shape: ModelShape,
    params: TileParams,
    options: Options,
    *,
    kv_heads: int,
    kv_rows: int,
    score_rows: int,
    mlp: int,
    gathered: int = 0,
) -> VectorMap:
    """Place everything in vector memory.

    Parameters
    ----------
    shape, params, options
        What is compiled.
    kv_heads, kv_rows, mlp
        KV heads, rows of K, and rows of the MLP on this tile.
    score_rows
        Vectors of scores that exist at a time.
    gathered
        Elements for rows of several tiles.

    Raises
    ------
    InputError
        Vector memory is too small.
    """
    size = params.config.vector_elements
    fixed = Allocator("vector memory", "elements", size)
    x = fixed.take("residual", padded(shape.hidden))
    rotary = fixed.take("rotary table", padded(shape.head_dim))
    gather = fixed.take("gathered rows", gathered)
    positions = padded(options.max_positions)
    attention = Allocator("vector memory", "elements", size, start=fixed.at)
    head_rows = max(kv_rows, kv_heads * padded(shape.head_dim))
    values = attention.take("values", padded(head_rows))
    keys = attention.take("keys", padded(head_rows) if gathered else 0)
    queries = attention.take("other queries", gathered)
    value_scales = attention.take("value scales", kv_heads * positions)
    scores = attention.take("scores", score_rows * positions)
    # What other tiles write must stay: shares do not use a place twice.
    start = attention.at if gathered else fixed.at
    ffn, last = (Allocator("vector memory", "elements", size, start=start) for _ in range(2))
    gate = ffn.take("gate", padded(mlp))
    silu = ffn.take("silu", padded(mlp))
    logits = last.take("logits", padded(shape.vocab) if options.head is Head.LOGITS else 0)
    for stage in (attention, ffn, last):
        stage.regions = {**fixed.regions, **stage.regions}
        stage.check()
    return VectorMap(
        x,
        rotary,
        values,
        keys,
        queries,
        value_scales,
        scores,
        padded(shape.head_dim),
        positions,
        gate,
        silu,
        logits,
        gather,
        {
            name: region
            for stage in (attention, ffn, last)
            for name, region in stage.regions.items()
        },
    )
