"""Commands of `mac`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK
from pequin_sim.golden.mac import MacResult, mac_array
from pequin_sim.golden.topk import top_k
from pequin_sim.isa import UNITS, unpack_word
from pequin_sim.layout import beat_count, blocks_per_beat, scale_beats
from pequin_sim.machine.events import ErrorCode, Event, EventKind, Fault, ProgramError
from pequin_sim.machine.fetch import Words
from pequin_sim.machine.races import Range, runs
from pequin_sim.machine.state import Beats, Effects, ResultRows, State, WeightBeats
from pequin_sim.mx import SCALE_ONE, Format, MxTensor, unpack_nibbles

_FORMATS = (Format.MXFP4, Format.MXINT8)


def mac(state: State, words: Words, pc: int) -> Effects:
    """Execute a command of `mac`.

    Raises
    ------
    ProgramError
        The weights are not there, or not as many as the command takes.
    """
    mode = unpack_word("mac", "mode", words[0])
    if _impossible(state, mode, words):
        return Effects(fault=Fault(ErrorCode.COMMAND, words[0]))
    supply = _supply(state, mode, words, pc)
    weights = decode(supply.beats, mode, words[2] + 1, words[1] + 1)
    acts, reads = activations(state, mode, words)
    result = mac_array(weights, acts)
    effects = Effects(reads=reads, first=supply, ended=[supply], values=result.values_u32)
    if mode["sink"]:
        effects.tokens = _select(state, mode, words, result)
    else:
        rows = ResultRows(UNITS["mac"], pc, values=result.values_u32)
        state.results.append(rows)
        effects.product = rows
    if result.error:
        effects.fault = _fault(result, words[3])
    return effects


def _impossible(state: State, mode: dict[str, int], words: Words) -> bool:
    """Return whether the array cannot execute a command."""
    c = state.params.config
    _, last_block, last_row, first_row, last_vector, base = words
    half = 2 if mode["paired"] else 1
    return (
        bool(mode["format"] and mode["two_planes"])
        or last_block >= state.params.max_blocks
        or last_row + first_row >= 1 << c.index_bits
        or last_vector >= c.columns // half
        or base + last_block // half >= c.act_blocks
    )


def _supply(state: State, mode: dict[str, int], words: Words, pc: int) -> WeightBeats:
    """Take the beats of the next command of `stream` or `kv`."""
    source, name = (state.kv_beats, "kv") if mode["source"] else (state.fifo, "stream")
    if not source:
        raise ProgramError(
            f"deadlock: mac (pc {pc}) takes its weights from {name}, but every earlier {name} "
            "command has been used; launch its weights before it"
        )
    supply = source.popleft()
    fmt = _FORMATS[mode["format"]]
    rows, k = words[2] + 1, BLOCK * (words[1] + 1)
    needed = beat_count(rows, k, fmt, 1 + mode["two_planes"], bool(mode["scaled"])).total
    if len(supply.beats) != needed:
        raise ProgramError(
            f"mac (pc {pc}) takes {needed} beats ({rows} rows of {k}, {fmt}, "
            f"{1 + mode['two_planes']} planes, {'' if mode['scaled'] else 'un'}scaled), but the "
            f"{name} command that belongs to it (pc {supply.pc}) brings {len(supply.beats)}"
        )
    return supply


def decode(beats: Beats, mode: dict[str, int], rows: int, blocks: int) -> MxTensor:
    """Return the matrix of a stream; what pads its last row or chunk is not looked at.

    Parameters
    ----------
    beats
        uint8 [beats, 32], as many as the matrix has.
    mode
        Fields of the command's word 0.
    rows, blocks
        Its rows, and blocks of a row in one plane.
    """
    fmt, planes = _FORMATS[mode["format"]], 1 + mode["two_planes"]
    per_beat = blocks_per_beat(fmt)
    pairs = -(-rows // per_beat)
    count = beat_count(rows, blocks * BLOCK, fmt, planes, bool(mode["scaled"]))
    used = count.payload * per_beat
    payload, scales = beats, np.full(used, SCALE_ONE, np.uint8)
    if mode["scaled"]:
        is_scale = scale_beats(count, fmt)
        payload, scales = beats[~is_scale], beats[is_scale].reshape(-1)[:used]
    codes = payload.view(np.int8) if per_beat == 1 else unpack_nibbles(payload).view(np.int8)
    order = (pairs, planes, blocks, per_beat)
    e = codes.reshape(*order, BLOCK).transpose(1, 0, 3, 2, 4).reshape(planes, -1, blocks * BLOCK)
    s = scales.reshape(order).transpose(1, 0, 3, 2).reshape(planes, -1, blocks)
    return MxTensor(fmt, e[:, :rows], s[:, :rows])


def activations(state: State, mode: dict[str, int], words: Words) -> tuple[MxTensor, list[Range]]:
    """Return the vectors that a command multiplies, and where they are in the buffer."""
    vectors = np.arange(words[4] + 1)[:, np.newaxis]
    blocks = np.arange(words[1] + 1)
    if mode["paired"]:
        columns, places = 2 * vectors + blocks % 2, words[5] + blocks // 2
    else:
        columns, places = vectors, words[5] + blocks
    elements = state.elements[columns, places].reshape(1, len(vectors), -1)
    scales = state.scales[columns, places][np.newaxis]
    flat = columns * state.params.config.act_blocks + places
    return MxTensor(Format.MXINT8, elements, scales), runs("activations", flat.reshape(-1))


def _fault(result: MacResult, first_row: int) -> Fault:
    flags = int(np.bitwise_or.reduce(result.flags, axis=None))
    row = int(np.argmax(result.flags.any(axis=1))) + first_row
    return Fault(ErrorCode.MAC, flags | row << 8)


def _select(state: State, mode: dict[str, int], words: Words, result: MacResult) -> list[Event]:
    """Join results with the top-k registers; return the TOKEN events."""
    keep = state.params.config.top_k
    if mode["select_first"]:
        for entries in state.top:
            entries.clear()
    found = top_k(result.values_u32, keep)
    for v in range(words[4] + 1):
        new = _entries(found.indices[v], found.values_u32[v], words[3])
        state.top[v] = sorted(state.top[v] + new, key=lambda e: (-e[0], e[1]))[:keep]
    if not mode["select_last"]:
        return []
    return [
        Event(EventKind.TOKEN, "mac", rank | v << 8, value=row, detail=bits)
        for v in range(words[4] + 1)
        for rank, (_, row, bits) in enumerate(state.top[v])
    ]


def _entries(
    rows: npt.NDArray[np.int64], bits: npt.NDArray[np.uint32], first_row: int
) -> list[tuple[float, int, int]]:
    values = bits.view(np.float32)
    return [
        (float(value), int(row) + first_row, int(b))
        for value, row, b in zip(values, rows, bits, strict=True)
        if row >= 0
    ]
