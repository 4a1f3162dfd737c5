"""Commands of `stream`, `kv` and `dma`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pequin.config import BEAT_BYTES, BLOCK
from pequin_sim.isa import UNITS
from pequin_sim.layout import CHUNK_BLOCKS, beat_count
from pequin_sim.machine.events import ErrorCode, Fault, ProgramError
from pequin_sim.machine.races import Range, runs
from pequin_sim.machine.state import Beats, Effects, QuantizedBlocks, State, WeightBeats
from pequin_sim.mx import SCALE_NAN, SCALE_ZERO, Format

MAX_BLOCKS = 7
"""Most blocks of a token."""

HEADER = 8
"""Beats of a granule before its first element."""

PER_BEAT = BEAT_BYTES // 4
"""fp32 values of a beat."""

_LONGEST = 1 << 24
"""Beats above which a KV stream is longer than any matrix of `mac`."""

Words = tuple[int, ...]


def stream(state: State, words: Words, pc: int) -> Effects:
    """Execute a command of `stream`."""
    address, beats = words
    if beats == 0:
        return _impossible(words)
    if address + beats > state.store_beats:
        return Effects(fault=Fault(ErrorCode.HBM_ADDRESS, address))
    product = WeightBeats(UNITS["stream"], pc, beats=state.read_hbm(address, beats))
    state.fifo.append(product)
    return Effects(reads=[Range("hbm", address, address + beats)], product=product)


def kv(state: State, words: Words, pc: int) -> Effects:
    """Execute a command of `kv`."""
    kind, address, step, rows, last = words
    if kind == 2:
        if not 1 <= last <= MAX_BLOCKS:
            return _impossible(words)
        state.kv_blocks = last
        return Effects(writes=[Range("kv_blocks", 0, 1)])
    limit = MAX_BLOCKS if kind == 0 else 0xFFFFFFFF
    tall = kind == 1 and rows > MAX_BLOCKS * BLOCK
    if kind > 2 or rows == 0 or not 1 <= last <= limit or tall:
        return _impossible(words)
    count = last if kind == 1 else -(-rows // BLOCK)
    misaligned = _misaligned(address, step, count)
    if misaligned is not None:
        return Effects(fault=Fault(ErrorCode.KV_ADDRESS, misaligned))
    places = _keys(state, words) if kind == 0 else _values(state, words)
    outside = np.flatnonzero(places >= len(state.kv))
    if len(outside):
        return Effects(fault=Fault(ErrorCode.KV_ADDRESS, int(places[outside[0]])))
    product = WeightBeats(UNITS["kv"], pc, beats=state.kv[places])
    state.kv_beats.append(product)
    return Effects(reads=_kv_reads(kind, places, rows * last), product=product)


def _misaligned(address: int, step: int, count: int) -> int | None:
    """Return the first of a command's granules that is not at a multiple of 8 beats."""
    if address % 8:
        return address
    return (address + step) & 0xFFFFFFFF if step % 8 and count > 1 else None


def granules(state: State, address: int, step: int, count: int) -> npt.NDArray[np.int64]:
    """Return the addresses of granules, no more than it takes to leave the buffer."""
    enough = len(state.kv) // 8 + 1
    if step == 0 and count > _LONGEST:
        raise ProgramError(f"{count} granules at a step of 0 are longer than any command can use")
    if step and count > enough:
        count = enough
    return (address + np.arange(count, dtype=np.int64) * step) & 0xFFFFFFFF


def _keys(state: State, words: Words) -> npt.NDArray[np.int64]:
    """Return the beats of keys: for each chunk of 32 blocks its scales, then its blocks."""
    _, address, step, tokens, blocks = words
    bases = granules(state, address, step, -(-tokens // BLOCK))
    chunks = np.arange(blocks)[:, np.newaxis]
    payload = HEADER + CHUNK_BLOCKS * chunks + np.arange(CHUNK_BLOCKS)
    pattern = np.concatenate((chunks, payload), axis=1).reshape(-1)
    total = beat_count(tokens, blocks * BLOCK, Format.MXINT8).total
    return (bases[:, np.newaxis] + pattern).reshape(-1)[:total]


def _values(state: State, words: Words) -> npt.NDArray[np.int64]:
    """Return the beats of values: for each row of the head, its block of every granule."""
    _, address, step, rows, count = words
    bases = granules(state, address, step, count)
    first = HEADER + BLOCK * -(-rows // BLOCK)
    return (bases + first + np.arange(rows)[:, np.newaxis]).reshape(-1)


def _kv_reads(kind: int, places: npt.NDArray[np.int64], blocks: int) -> list[Range]:
    """Return the bytes that a command uses: of a last scale beat, only the scales of blocks."""
    if kind == 1:
        return _bytes(places)
    rest = blocks % CHUNK_BLOCKS
    if rest == 0:
        return _bytes(places)
    at = len(places) - rest - 1
    scale = int(places[at]) * BEAT_BYTES
    return [*_bytes(np.delete(places, at)), Range("kv", scale, scale + rest)]


def _bytes(beats: npt.NDArray[np.int64]) -> list[Range]:
    return [Range("kv", r.start * BEAT_BYTES, r.stop * BEAT_BYTES) for r in runs("kv", beats)]


def dma(state: State, words: Words, pc: int) -> Effects:
    """Execute a command of `dma`."""
    kind, source, target, count, step = words
    elements = {0: PER_BEAT * count, 2: BLOCK * count}.get(kind, 0)
    outside = target % PER_BEAT or target + elements > state.params.config.vector_elements
    if kind > 2 or count == 0 or (elements and outside):
        return _impossible(words)
    if kind == 2:
        return _scales(state, source, target, count, step)
    beats = count if kind == 0 else beat_count(1, count * BLOCK, Format.MXINT8).total
    if source + beats > state.store_beats:
        return Effects(fault=Fault(ErrorCode.HBM_ADDRESS, source))
    reads = [Range("hbm", source, source + beats)]
    data = state.read_hbm(source, beats)
    if kind == 1:
        return Effects(reads=reads, product=_blocks(state, data, count, pc))
    values = np.ascontiguousarray(data).view("<u4").reshape(-1)
    state.vector_bits[target : target + elements] = values
    writes = [Range("vector", target, target + elements)]
    return Effects(reads=reads, writes=writes, values=values.astype(np.uint32))


def _blocks(state: State, data: Beats, count: int, pc: int) -> QuantizedBlocks:
    """Take a row of blocks apart: a scale beat before every 32 blocks."""
    is_scale = np.arange(len(data)) % (CHUNK_BLOCKS + 1) == 0
    product = QuantizedBlocks(
        UNITS["dma"],
        pc,
        elements=data[~is_scale].view(np.int8),
        scales=data[is_scale].reshape(-1)[:count],
    )
    state.blocks.append(product)
    return product


def _scales(state: State, source: int, target: int, count: int, step: int) -> Effects:
    """Write the scales of V as powers of two."""
    wrong = _misaligned(source, step, count) if state.kv_blocks else source
    if wrong is not None:
        return Effects(fault=Fault(ErrorCode.KV_ADDRESS, wrong))
    places = granules(state, source, step, count) + state.kv_blocks
    outside = np.flatnonzero(places >= len(state.kv))
    if len(outside):
        return Effects(fault=Fault(ErrorCode.KV_ADDRESS, int(places[outside[0]])))
    codes = state.kv[places].reshape(-1).astype(np.uint32)
    # A scale s is 2^(s - 127), so that it is the exponent field of its fp32 value.
    bits = np.where(codes == SCALE_NAN, np.uint32(0x7FC00000), codes << np.uint32(23))
    bits[codes == SCALE_ZERO] = 0
    stop = target + len(bits)
    state.vector_bits[target:stop] = bits
    reads = [Range("kv_blocks", 0, 1), *_bytes(places)]
    return Effects(reads=reads, writes=[Range("vector", target, stop)], values=bits)


def _impossible(words: Words) -> Effects:
    return Effects(fault=Fault(ErrorCode.COMMAND, words[0]))
