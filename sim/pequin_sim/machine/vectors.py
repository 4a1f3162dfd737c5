"""Commands of `vector` and `drain`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pequin.config import BEAT_BYTES, BLOCK, TileParams
from pequin.errors import InputError
from pequin_sim.golden.vector import (
    BlockWrite,
    KvWrite,
    Response,
    Status,
    VectorCommand,
    check,
)
from pequin_sim.isa import UNIT_FIELDS, UNIT_NAMES, UNITS, VALUES
from pequin_sim.machine.events import ErrorCode, Event, EventKind, Fault, ProgramError
from pequin_sim.machine.fetch import HEADER, Words
from pequin_sim.machine.races import Range, runs
from pequin_sim.machine.state import Effects, Product, QuantizedBlocks, ResultRows, State

KV_ADDRESSES = 1 << 24

_NAMES = {
    field: {number: name for name, number in values.items()}
    for field, values in VALUES["vector"].items()
    if field != "per_vector"
}


def fields_of(words: Words) -> dict[str, int]:
    """Return the fields of a command."""
    return {
        name: words[word] >> low & ((1 << width) - 1)
        for name, (word, low, width) in UNIT_FIELDS["vector"].items()
    }


def command_of(f: dict[str, int]) -> VectorCommand | None:
    """Return the golden unit's command; None when operation or source do not exist."""
    names = {field: known.get(f[field]) for field, known in _NAMES.items()}
    if names["op"] is None or (names["source"] is None and f["op"] < 6):
        return None
    names["source"] = names["source"] or "memory"
    plain: tuple[str, ...] = (
        "length",
        "vectors",
        "a",
        "b",
        "dst",
        "a_stride",
        "b_stride",
        "dst_stride",
    )
    plain += ("s3", "out", "rank", "distance", "column", "column_step")
    plain += ("address", "address_step", "lane", "immediate")
    flags = ("store", "paired", "limits", "start", "minus_s2")
    optional = {n: f[n] if f[f"use_{n}"] else None for n in ("s1", "s2", "multiplier", "addend")}
    if names["op"] == "scalar":
        optional["s1"] = f["s1"]
    steps = frozenset(
        n for n, bit in VALUES["vector"]["per_vector"].items() if f["per_vector"] & bit
    )
    return VectorCommand(
        **names,  # type: ignore[arg-type]
        **{name: f[name] for name in plain},  # type: ignore[arg-type]
        **{name: bool(f[name]) for name in flags},  # type: ignore[arg-type]
        **optional,  # type: ignore[arg-type]
        per_vector=steps,
    )


def status_of(params: TileParams, f: dict[str, int], queue: int) -> Status:
    """Return the errors for which a command is refused."""
    c = params.config
    wide = any(f[name] >= c.vector_elements for name in ("a", "b", "dst"))
    wide |= any(f[f"{name}_stride"] >= c.vector_elements for name in ("a", "b", "dst"))
    wide |= any(f[name] >= c.scalars for name in ("s1", "s2", "s3", "out", "multiplier", "addend"))
    if wide:
        return Status.RANGE
    command = command_of(f)
    if command is not None:
        return check(params, command, queue)
    status = Status.OPCODE
    if f["op"] <= 5:
        # A source that does not exist reads nothing: the rest is judged as if from a stream.
        stand_in = command_of({**f, "source": VALUES["vector"]["source"]["drain"]})
        assert stand_in is not None
        return status | check(params, stand_in, queue)
    return status | (Status.LENGTH if f["vectors"] == 0 else Status(0))


def vector(state: State, words: Words, pc: int) -> Effects:
    """Execute a command of `vector`."""
    return _execute(state, words, UNITS["vector"], pc)


def drain(state: State, words: Words, pc: int) -> Effects:
    """Execute a command of `drain`."""
    return _execute(state, words, UNITS["drain"], pc)


def _execute(state: State, words: Words, unit: int, pc: int) -> Effects:
    queue = int(unit == UNITS["drain"])
    f = fields_of(words)
    status = status_of(state.params, f, queue)
    if status:
        return Effects(fault=Fault(ErrorCode.VECTOR, int(status)))
    command = command_of(f)
    assert command is not None
    bad = _kv_fault(state, command)
    if bad is not None:
        return Effects(fault=bad, fault_unit="kv")
    reads, writes = accesses(command)
    effects = Effects(reads=reads, writes=writes)
    if queue:
        _take(state, command, effects, pc)
    try:
        *entries, done = state.unit.execute(command, queue)
    except InputError as error:
        raise ProgramError(f"{UNIT_NAMES[unit]} (pc {pc}): {error}") from error
    effects.writes += _write_blocks(state, state.unit.activations)
    effects.writes += _write_kv(state, command, state.unit.kv)
    state.unit.activations, state.unit.kv = [], []
    effects.tokens = [_token(unit, entry) for entry in entries]
    if done.status:
        effects.fault = Fault(ErrorCode.VECTOR, done.status)
    return effects


def _token(unit: int, entry: Response) -> Event:
    code = entry.rank | entry.vector << 8
    return Event(EventKind.TOKEN, UNIT_NAMES[unit], code, value=entry.index, detail=entry.value)


def accesses(c: VectorCommand) -> tuple[list[Range], list[Range]]:
    """Return what a command reads and writes, blocks aside."""
    reads, writes = _scalar_accesses(c)
    if c.op == "set_limits":
        writes.append(Range("limits", c.out, c.out + c.vectors))
    if not c.has_rows:
        return reads, writes
    if c.limits:
        reads.append(Range("limits", 0, c.vectors))
    if c.source == "memory":
        reads += _vectors(c, c.a, c.a_stride)
    if c.reads_b:
        reads += _vectors(c, c.b, c.b_stride)
    if c.store:
        writes += _vectors(c, c.dst, c.dst_stride)
    if c.quantize in ("keys", "values"):
        reads.append(Range("kv_blocks", 0, 1))
    return reads, writes


def _vectors(c: VectorCommand, base: int, stride: int) -> list[Range]:
    if stride == c.length:
        return [Range("vector", base, base + c.vectors * c.length)]
    count = c.vectors if stride else 1
    return [Range("vector", base + v * stride, base + v * stride + c.length) for v in range(count)]


def _scalar_accesses(c: VectorCommand) -> tuple[list[Range], list[Range]]:
    reduces = c.has_rows and c.reduce != "none"
    finishes = reduces or c.op == "scalar"
    used = {
        "s1": c.s1 if c.has_rows or c.op == "scalar" else None,
        "s2": c.s2 if c.has_rows else None,
        "s3": c.s3 if c.has_rows and (c.factor == "s3" or c.start) else None,
        "multiplier": c.multiplier if finishes else None,
        "addend": c.addend if finishes else None,
    }
    reads = [
        Range("scalars", index, index + (c.vectors if name in c.per_vector else 1))
        for name, index in used.items()
        if index is not None
    ]
    writes = finishes or c.op == "set_scalar"
    return reads, [Range("scalars", c.out, c.out + c.vectors)] if writes else []


def _kv_fault(state: State, c: VectorCommand) -> Fault | None:
    """Return the error of a command whose blocks do not fit their granules."""
    if not c.has_rows or c.quantize not in ("keys", "values"):
        return None
    blocks = state.kv_blocks
    for granule, address in _kv_addresses(c):
        number = address - granule
        if c.quantize == "values":
            misplaced = granule % 8 != 0 or number >= BLOCK * blocks
        else:
            misplaced = number >= blocks
        if misplaced or _kv_places(blocks, c, granule, number)[0] >= len(state.kv):
            return Fault(ErrorCode.KV_ADDRESS, address)
    return None


def _kv_addresses(c: VectorCommand) -> Iterator[tuple[int, int]]:
    """Yield the granule and the address of each item, in the order in which the unit writes."""
    firsts = [(c.address + v * c.address_step) % KV_ADDRESSES for v in range(c.vectors)]
    if c.quantize == "values":
        yield from ((first, first + d) for first in firsts for d in range(c.length))
        return
    count = -(-c.length // BLOCK)
    places = [(first + i) % KV_ADDRESSES for first in firsts for i in range(count)]
    if c.source == "drain":
        places = [(first + i) % KV_ADDRESSES for i in range(count) for first in firsts]
    yield from ((place & ~7, place) for place in places)


def _kv_places(blocks: int, c: VectorCommand, granule: int, item: int) -> tuple[int, int]:
    """Return the beats of an item's elements and of its scale."""
    if c.quantize == "values":
        return granule + HEADER + BLOCK * blocks + item, granule + blocks
    number = c.lane * blocks + item
    return granule + HEADER + number, granule + number // BEAT_BYTES


def _write_kv(state: State, c: VectorCommand, items: list[KvWrite]) -> list[Range]:
    """Put the unit's blocks of K and elements of V into their granules."""
    flat, lane, places = state.kv.reshape(-1), c.lane, []
    for granule, item in _granules(c, items):
        number = item.address - granule
        beat, scale = _kv_places(state.kv_blocks, c, granule, number)
        start = beat * BEAT_BYTES
        if item.values:
            flat[start + lane] = np.frombuffer(item.elements, np.uint8)[0]
            byte = scale * BEAT_BYTES + lane
            places.append(start + lane)
        else:
            state.kv[beat] = np.frombuffer(item.elements, np.uint8)
            byte = scale * BEAT_BYTES + (lane * state.kv_blocks + number) % BEAT_BYTES
            places += range(start, start + BEAT_BYTES)
        flat[byte] = item.scale
        places.append(byte)
    return runs("kv", places)


def _granules(c: VectorCommand, items: list[KvWrite]) -> Iterator[tuple[int, KvWrite]]:
    """Yield items with their granules: V comes vector by vector, K in any order."""
    v = 0
    for item in items:
        if item.values:
            yield (c.address + v * c.address_step) % KV_ADDRESSES, item
            v += item.last
        else:
            yield item.address & ~7, item


def _write_blocks(state: State, blocks: list[BlockWrite]) -> list[Range]:
    """Put blocks into the activation buffer."""
    if not blocks:
        return []
    columns = np.array([block.column for block in blocks])
    places = np.array([block.address for block in blocks])
    data = np.frombuffer(b"".join(block.elements for block in blocks), np.int8)
    elements = data.reshape(-1, BLOCK)
    scales = np.array([block.scale for block in blocks], np.uint8)
    # One after the other where a command writes a block twice: the last one stays.
    for at in range(len(blocks)):
        state.elements[columns[at], places[at]] = elements[at]
        state.scales[columns[at], places[at]] = scales[at]
    return runs("activations", columns * state.params.config.act_blocks + places)


def _take(state: State, c: VectorCommand, effects: Effects, pc: int) -> None:
    """Hand the vector unit what a drain command takes from its stream."""
    products = _take_rows(state, c, pc) if c.source == "drain" else _take_blocks(state, c, pc)
    effects.first = products[0]
    effects.taken = c.length if c.source == "drain" else c.vectors * -(-c.length // BLOCK)
    streams = (*state.results, *state.blocks)
    effects.ended = [p for p in products if p not in streams]


def _take_rows(state: State, c: VectorCommand, pc: int) -> list[Product]:
    needed = c.length
    products: list[Product] = []
    while needed:
        if not state.results:
            raise ProgramError(
                f"deadlock: drain (pc {pc}) takes {c.length} rows of results, but earlier mac "
                f"commands leave only {c.length - needed}; launch mac before it"
            )
        rows: ResultRows = state.results[0]
        vectors = rows.values.shape[1]
        if vectors != c.vectors:
            raise ProgramError(
                f"drain (pc {pc}) takes rows of {c.vectors} vectors, but those of mac "
                f"(pc {rows.pc}) have {vectors}"
            )
        part = rows.values[rows.taken : rows.taken + needed].view(np.float32)
        state.unit.drained.extend(part)
        rows.taken += len(part)
        needed -= len(part)
        products.append(rows)
        if rows.taken == len(rows.values):
            state.results.popleft()
    return products


def _take_blocks(state: State, c: VectorCommand, pc: int) -> list[Product]:
    wanted = needed = c.vectors * -(-c.length // BLOCK)
    products: list[Product] = []
    while needed:
        if not state.blocks:
            raise ProgramError(
                f"deadlock: drain (pc {pc}) takes {wanted} blocks, but earlier dma commands leave "
                f"only {wanted - needed}; launch dma before it"
            )
        blocks: QuantizedBlocks = state.blocks[0]
        stop = min(blocks.taken + needed, len(blocks.scales))
        for i in range(blocks.taken, stop):
            state.unit.blocks.append((blocks.elements[i].tobytes(), int(blocks.scales[i])))
        needed -= stop - blocks.taken
        blocks.taken = stop
        products.append(blocks)
        if stop == len(blocks.scales):
            state.blocks.popleft()
    return products
