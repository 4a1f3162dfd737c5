"""Every error of docs/isa.md in RTL: the event, and a restart without reset after it."""

import numpy as np
import pytest

from pequin.tile.types import Memory
from pequin_sim.layout import pack_weights
from pequin_sim.machine import ErrorCode, EventKind
from pequin_sim.mx import quantize

GOOD = """
    set vector.mode, {op=set_scalar}
    set vector.shape, {vectors=1}
    set vector.scalars, {out=3}
    set vector.immediate, 0x40490fdb
    launch vector, signal 1
    wait 1
    li r1, 77
    event r1, 5
    halt
"""
"""A program that uses a unit, a semaphore and an event."""

NAN_SCALE_AT = 8
"""Beat of HBM from which on a matrix with a NaN block lies."""

MAC = "set mac.mode, {format=mxfp4, scaled, sink=top_k}\nset mac.last_row, 1\nlaunch mac\n"


def named(unit, **words):
    lines = [f"set {unit}.{name}, {value}" for name, value in words.items()]
    return "\n".join([*lines, f"launch {unit}", "halt", ""])


def word(opcode, *, rd=0, rs=0, rt=0, unit=0, reg=0, imm=0):
    fields = opcode | rd << 8 | rs << 12 | rt << 16 | unit << 20 | reg << 24 | imm << 32
    return f".word {fields}\n"


CASES = {
    "illegal opcode": word(0),
    "opcode beyond the last": word(21),
    "unused field set": word(1, rd=1),
    "shift above 31": word(7, rd=1, imm=32),
    "branch out of the program memory": word(10, imm=1024),
    "column that the step has not": word(14, rd=1, rs=0, imm=0),
    "field that does not exist": word(14, rd=1, imm=7),
    "unit that does not exist": word(15, unit=7),
    "register that does not exist": word(15, unit=2, reg=5),
    "launch of unit 0": word(16, unit=0),
    "launch word with a bit too many": word(16, unit=2, imm=1 << 26),
    "semaphore of a wait": word(17, imm=32),
    "semaphore of a launch": word(16, unit=2, imm=1 << 2 | 40 << 3),
    "semaphore above 255": "li r1, 300\nagain: signal 4\naddi r1, r1, -1\nbne r1, r0, again\n",
    "vector of no elements": named("vector", mode=0, shape="{length=0, vectors=1}"),
    "vector beyond the memory": named("vector", mode=0, shape="{length=8, vectors=1}", a=1024),
    "stride beyond the memory": named(
        "vector", mode=0, shape="{length=8, vectors=1}", b_stride=1 << 20
    ),
    "vector operation that does not exist": named("vector", mode=9, shape="{vectors=1}"),
    "NaN": named(
        "vector",
        mode="{op=set_scalar}",
        shape="{vectors=1}",
        scalars="{out=1}",
        immediate=0x7FC00000,
    ),
    "MXINT8 in two planes": named("mac", mode="{format=mxint8, two_planes}"),
    "more vectors than columns": named("mac", mode=0, last_vector=2),
    "more vectors than pairs": named("mac", mode="{paired}", last_vector=1),
    "row longer than max_k": named("mac", mode=0, last_vector=0, last_block=8),
    "activations beyond the buffer": named("mac", last_block=0, base=8),
    "row numbers beyond the index": named("mac", base=0, last_row=200, first_row=100),
    "NaN block": named("stream", address=NAN_SCALE_AT, beats=2).replace("halt\n", "")
    + "set mac.base, 0\nset mac.last_row, 1\nset mac.first_row, 0\nset mac.last_block, 0\n"
    + "set mac.last_vector, 0\nset mac.mode, {scaled, sink=top_k, select_first}\n"
    + "launch mac\nhalt\n",
    "stream of nothing": named("stream", beats=0),
    "stream beyond the store": named("stream", address=1 << 15, beats=1),
    "rows beyond the store": named("dma", source=(1 << 15) - 1, count=2),
    "rows of nothing": named("dma", count=0),
    "rows to a misaligned place": named("dma", source=0, count=1, dst=4),
    "rows beyond vector memory": named("dma", count=2, dst=1016),
    "kind of dma": named("dma", kind=3),
    "keys of no tokens": named("kv", rows=0, blocks=1),
    "kind of kv": named("kv", kind=3),
    "keys at a misaligned place": named("kv", kind=0, address=12, rows=1, blocks=1),
    "keys beyond the buffer": named("kv", address=504, rows=32, blocks=1),
    "no iterations": "set vector.count1, 0\nlaunch vector, loops 1\nhalt\n",
}
"""Programs that end with an error, all of them with the same memories."""


def store():
    """Return HBM with a matrix of 2 x 32 whose first block is NaN."""
    beats = np.zeros((16, 32), np.uint8)
    weights = quantize(np.ones((2, 32), np.float32), "mxfp4")
    packed = np.asarray(pack_weights(weights)).copy()
    packed[0, 0] = 0xFF
    beats[NAN_SCALE_AT : NAN_SCALE_AT + len(packed)] = packed
    return beats


def test_each_error_stops_the_tile_and_the_next_program_runs(play, golden):
    hbm = store()
    pieces = [piece for case in CASES.values() for piece in (case, GOOD)]
    program, starts, rtl = play(pieces, hbm, reads={Memory.SCALARS: (0, 1)})
    results, machine = golden(program, starts, hbm)
    events = iter(rtl.events)
    for name, failed, good in zip(CASES, results[0::2], results[1::2], strict=True):
        assert failed.events[-1].kind is EventKind.ERROR, name
        for expected in (*failed.events, *good.events):
            assert next(events) == expected, name
    assert not list(events)
    scalars = np.ascontiguousarray(rtl.memories[Memory.SCALARS]).view("<u4").ravel()
    assert scalars.tolist() == machine.memory.unit.scalars.view(np.uint32)[:8].tolist()
    assert scalars[3] == 0x40490FDB


def test_the_errors_cover_all_codes_that_a_program_alone_can_cause(golden, join):
    results, _ = golden(*join(list(CASES.values())), store())
    codes = {result.events[-1].code for result in results}
    data = {ErrorCode.HBM_ECC, ErrorCode.SRAM_ECC, ErrorCode.WATCHDOG, ErrorCode.STOPPED}
    assert codes == {int(code) for code in ErrorCode} - {int(code) for code in data}


STREAM_AND_MAC = """
    set stream.address, 0
    set stream.beats, 2
    set mac.mode, {scaled, sink=top_k, select_first, select_last}
    set mac.last_row, 1
    launch stream
    launch mac, signal 2
    wait 2
    event r0, 9
    halt
"""

KV_READ = """
    set kv.kind, {kind=configure}
    set kv.blocks, 1
    launch kv
    set dma.kind, {kind=scales}
    set dma.source, 0
    set dma.count, 1
    set dma.step, 72
    launch dma, signal 3
    wait 3
    event r0, 8
    halt
"""


@pytest.mark.parametrize(
    ("port", "piece", "code", "unit", "where"),
    [
        ("flip_hbm", STREAM_AND_MAC, ErrorCode.HBM_ECC, "stream", 0),
        ("flip_fifo", STREAM_AND_MAC, ErrorCode.SRAM_ECC, "mac", None),
    ],
)
def test_an_uncorrectable_word_stops_the_tile(play, port, piece, code, unit, where):
    _, _, rtl = play([piece, piece], flips={port: (0, 3)})
    error = rtl.events[0]
    assert (error.kind, error.code, error.unit) == (EventKind.ERROR, code, unit)
    if where is not None:
        assert error.detail == where
    assert [event.kind for event in rtl.events[1:]] == [EventKind.TOKEN, EventKind.DONE]


@pytest.mark.parametrize("port", ["flip_hbm", "flip_fifo"])
def test_a_single_wrong_bit_is_corrected(play, port):
    _, _, rtl = play([STREAM_AND_MAC], flips={port: (0, 1)}, events=2)
    assert [event.kind for event in rtl.events] == [EventKind.TOKEN, EventKind.DONE]
    if port == "flip_hbm":
        assert rtl.counters["hbm.ecc.corrected"] == 2


def test_a_wrong_word_of_the_kv_buffer_stops_the_tile(play):
    """The wrong word is written by the host while the port is set, before the start."""
    beats = np.arange(128 * 32, dtype=np.uint8).reshape(128, 32)
    _, _, rtl = play([KV_READ], loads=[(Memory.KV, 0, beats)], early_flips={"flip_kv": 3})
    error = rtl.events[0]
    assert (error.code, error.unit, error.detail) == (
        ErrorCode.SRAM_ECC,
        "dma",
        Memory.KV.value << 28 | 1,
    )


def test_a_wrong_word_of_the_program_stops_the_tile(play):
    _, _, rtl = play([GOOD], early_flips={"flip_program": 3})
    error = rtl.events[0]
    assert (error.code, error.unit, error.pc) == (ErrorCode.SRAM_ECC, "seq", 0)
    assert error.detail == Memory.PROGRAM.value << 28


HANGS = {
    "mac without weights": (MAC + "wait 6\nhalt\n", "seq", 6),
    "a semaphore that nobody signals": ("launch dma, wait 7\nhalt\n", "dma", 7),
    "drain without results": (
        named("drain", mode="{source=drain}", shape="{length=1, vectors=1}"),
        "drain",
        0xFFFFFFFF,
    ),
}


@pytest.mark.parametrize("name", HANGS)
def test_the_watchdog_names_the_unit_and_its_semaphore(play, name):
    text, unit, semaphore = HANGS[name]
    _, _, rtl = play([text, GOOD], watchdog=500)
    error = rtl.events[0]
    assert (error.kind, error.code) == (EventKind.ERROR, ErrorCode.WATCHDOG)
    assert (error.unit, error.detail) == (unit, semaphore)
    assert [(event.kind, event.value) for event in rtl.events[1:]] == [(EventKind.DONE, 77)]


def test_the_watchdog_waits_for_a_step_without_end(play):
    _, _, rtl = play(["step\nevent r0, 1\nhalt\n"], watchdog=100, stop_after=3000)
    assert [event.code for event in rtl.events] == [ErrorCode.STOPPED]


def test_the_host_stops_a_program_and_starts_another(play):
    endless = "again: addi r1, r1, 1\nj again\n"
    _, _, rtl = play([endless, GOOD], stop_after=640)
    stopped, done = rtl.events
    assert (stopped.kind, stopped.code, stopped.unit) == (
        EventKind.ERROR,
        ErrorCode.STOPPED,
        "seq",
    )
    assert done.kind is EventKind.DONE
    assert rtl.status["error"] & 0xFF == ErrorCode.STOPPED


def test_a_start_while_a_program_runs_is_refused(play):
    """The first program never ends, so its second start comes while it runs."""
    endless = "event r0, 1\nagain: addi r1, r1, 1\nj again\n"
    _, starts, rtl = play([endless, GOOD], stop_after=0)
    assert [event.kind for event in rtl.events] == [EventKind.DONE, EventKind.ERROR]
    assert (rtl.events[1].code, rtl.events[1].pc) == (16, starts[1])
    assert rtl.status["state"] & 1
