"""Proofs by induction: the beat window and the feeder's control, for all inputs and all time."""

import pytest
from amaranth.asserts import AnyConst, Initial
from amaranth.hdl import Assert, Assume, Cat, Fragment, Module, Mux, Signal

from pequin.mac.beat_window import _HELD, BeatWindow
from pequin.mac.drain_schedule import (
    STATUS_DEPTH,
    DrainSchedule,
    drain_clocks,
    longest_drain,
    result_depth,
)
from pequin.mac.feeder import Feeder
from pequin.mac.types import CHUNK_BLOCKS, Sink, WeightFormat

WATCHED_BITS = 8
"""Bits watched at either end of a beat; all bits of a beat move alike."""


def ends(beat):
    return Cat(beat[:WATCHED_BITS], beat[-WATCHED_BITS:])


def window_proof(state, honest=True):
    """Watch one beat of any number on its way through the window.

    The numbers of beats sent and taken differ by those held; the watched one is where its
    number says, with the value it was sent with. Numbers are modulo 64: far more than are held.
    """
    m = Module()
    dut = BeatWindow()
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    held = [state(inner, f"held_{i}") for i in range(_HELD)]
    first, count = state(inner, "first"), state(inner, "count")
    sent, taken, watched = Signal(6), Signal(6), AnyConst(6)
    value = Signal(2 * WATCHED_BITS)
    accept, place = Signal(), Signal(6)
    arrives = [Signal(), Signal()]
    beats = dut.weights.p.beats
    take = Signal(2)
    m.d.comb += [
        Assume(take <= (dut.level if honest else 2)),
        dut.take.eq(take),
        accept.eq(dut.weights.valid & dut.weights.ready),
        arrives[0].eq(accept & (watched == sent)),
        arrives[1].eq(accept & dut.weights.p.two & (watched == (sent + 1)[:6])),
        place.eq(watched - taken),
    ]
    m.d.sync += [
        sent.eq(sent + Mux(accept, 1 + dut.weights.p.two, 0)),
        taken.eq(taken + dut.take),
    ]
    for arrived, beat in zip(arrives, beats, strict=True):
        with m.If(arrived):
            m.d.sync += value.eq(ends(beat))
    inside = place < count
    m.d.comb += [
        Assert(count == (sent - taken)[:6]),
        Assert(count <= _HELD),
        Assert(dut.level == Mux(count < 2, count, 2)),
    ]
    for i in range(_HELD):
        with m.If(inside & ((first + place)[: len(first)] == i)):
            m.d.comb += Assert(ends(held[i]) == value)
    for i in range(2):
        with m.If(inside & (place == i) & (dut.level > i)):
            m.d.comb += Assert(ends(dut.head[i]) == value)
    ports = [take, dut.weights.valid, dut.weights.payload.as_value()]
    return m, ports


def test_beat_window_never_loses_or_reorders_a_beat(prove, register):
    assert prove(*window_proof(register)) == "PASS"


def test_the_window_proof_needs_takers_that_respect_the_level(prove, register):
    # The counterpart of every proof: without the rule for `take` it must fail.
    assert prove(*window_proof(register, honest=False), depth=2) == "FAIL"


def feeder_proof(state, params):
    """State what the feeder may take and that its position stays inside the command."""
    m = Module()
    dut = Feeder(params)
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    names = ("_active", "current", "_block", "left", "_plane", "_row", "_chunk_left", "foreseen")
    active, now_bits, block, left, plane, row, chunk_left, seen = (
        state(inner, name) for name in names
    )
    now = type(dut.command.payload)(dut.command.payload.shape(), now_bits)
    fresh, command = Initial(), dut.command.payload
    is_int8 = now.format == WeightFormat.MXINT8
    takes_scales = (dut.take != 0) & (dut.beats == 0)
    m.d.comb += [
        Assume(dut.level <= 2),
        # A window shows its oldest beat until it is taken.
        Assert(dut.take <= dut.level),
        Assert((dut.beats == 0) | (dut.beats == dut.take)),
        Assert(~takes_scales | (dut.take == 1)),
        Assert((dut.beats < 2) | (now.paired & ~block[0])),
        Assert(~now.scaled | (dut.beats <= chunk_left)),
        Assert(~takes_scales | (now.scaled & (chunk_left == 0))),
        Assert(~now.scaled | (chunk_left <= Mux(is_int8, CHUNK_BLOCKS, CHUNK_BLOCKS // 2))),
    ]
    rows_end = Mux(is_int8, now.last_row, now.last_row | 1)
    with m.If(active):
        m.d.comb += [
            Assert(block <= now.last_block),
            Assert((dut.beats == 0) | (block + dut.beats <= now.last_block + 1)),
            Assert(plane <= now.two_planes),
            Assert(row <= rows_end),
            Assert(is_int8 | ~row[0]),
            Assert(left == now.last_block - block),
        ]
        last_plane = plane == now.two_planes
        foresight = Cat(
            now.scaled & (chunk_left == 0),
            now.paired & ~block[0] & (left != 0) & ~(now.scaled & (chunk_left == 1)),
            (left == 0) & last_plane,
            (left == 1) & last_plane,
            Mux(is_int8, row == now.last_row, (row | 1) == (now.last_row | 1)),
        )
        m.d.comb += Assert(seen == foresight)
    with m.Else():
        m.d.comb += Assert(Cat(block, plane, row, chunk_left) == 0)
    held = Signal()
    m.d.sync += held.eq(active & ~dut.command.ready)
    with m.If(held & ~fresh):
        m.d.comb += Assert(active)  # a command stays until it accepts the next
    ports = [dut.level, *dut.may_end, dut.head[0], dut.head[1], dut.command.valid]
    return m, [*ports, command.as_value()]


@pytest.mark.parametrize("preset", ["tiny", "ref"])
def test_feeder_takes_what_is_there_and_stays_in_its_command(prove, register, params_of, preset):
    assert prove(*feeder_proof(register, params_of(preset))) == "PASS"


def schedule_proof(state, params, honest=True):
    """Model what a row group's end promises; nothing may end without its places.

    `drain` counts the clocks the read-out still needs, shifted to the ends. Places are taken at
    the end and given back when a result or a status was taken. An end is the schedule's input
    one clock later, and every end respects `may_end` (unless not `honest`).
    """
    m = Module()
    dut = DrainSchedule(params)
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    depth, longest = result_depth(params), longest_drain(params)
    end, ended, selecting = Signal(), Signal(), Signal()
    tag, held = Signal.like(dut.tag), Signal.like(dut.tag, name="held_tag")
    drain, results, statuses = (
        Signal(range(n), name=name)
        for n, name in ((longest + 1, "drain"), (2 * depth, "results"), (64, "statuses"))
    )
    to_top_k = tag.sink == Sink.TOP_K
    allowed = Mux(to_top_k, dut.may_end[Sink.TOP_K.value], dut.may_end[Sink.STREAM.value])
    clocks = Signal(range(longest + 1))
    counted = drain_clocks(params, held) + 1
    promised = Mux(ended & (held.sink == Sink.STREAM), counted, 0)
    selected = ended & held.final & held.select_last & (held.sink == Sink.TOP_K)
    m.d.comb += [
        clocks.eq(drain_clocks(params, tag) + 1),
        dut.ended.eq(ended),
        dut.tag.eq(held),
        Assume(tag.last_vector < params.config.columns),
        Assume(allowed | ~end) if honest else Assume(1),
        # Nothing can be taken in the clock after its promise.
        Assume(~dut.result_taken | (results > promised)),
        Assume(~dut.status_taken | (statuses > (ended & held.final))),
        Assume(~dut.selection_taken | (selecting & ~selected)),
    ]
    m.d.sync += [
        ended.eq(end),
        held.eq(tag),
        drain.eq(Mux(end, clocks - 1, Mux(drain == 0, 0, drain - 1))),
        results.eq(results + Mux(end & ~to_top_k, clocks, 0) - dut.result_taken),
        statuses.eq(statuses + (end & tag.final) - dut.status_taken),
    ]
    with m.If(end & to_top_k & tag.final & tag.select_last):
        m.d.sync += selecting.eq(1)
    with m.Elif(dut.selection_taken):
        m.d.sync += selecting.eq(0)
    m.d.comb += [
        Assert(~end | (drain == 0)),
        Assert(~(end & to_top_k) | ~selecting),
        Assert(results <= depth),
        Assert(statuses <= STATUS_DEPTH),
    ]
    left, count, status = (state(inner, name) for name in ("left", "result", "status"))
    room, status_room, choosing = (
        state(inner, name) for name in ("result_room", "status_room", "selecting")
    )
    fresh = Initial()
    before, status_before = Signal.like(count), Signal.like(status)
    m.d.sync += [before.eq(count), status_before.eq(status)]
    m.d.comb += [  # what ties the schedule's registers to the model, for the induction
        Assert(results == count + promised),
        Assert(statuses == status + (ended & held.final)),
        Assert(selecting == (choosing | selected)),
        Assert(drain == Mux(ended, counted - 1, left)),
    ]
    with m.If(~fresh):
        m.d.comb += [
            Assert(room == (before <= depth - longest - 2)),
            Assert(status_room == (status_before <= STATUS_DEPTH - 3)),
        ]
    ports = [end, tag.as_value(), dut.result_taken, dut.status_taken, dut.selection_taken]
    return m, ports


@pytest.mark.parametrize("preset", ["tiny", "fpga", "ref", "wide"])
def test_nothing_ends_without_its_places(prove, register, params_of, preset):
    assert prove(*schedule_proof(register, params_of(preset)), depth=4) == "PASS"


def test_the_schedule_proof_needs_ends_that_respect_it(prove, register, params_of):
    assert prove(*schedule_proof(register, params_of("ref"), honest=False), depth=4) == "FAIL"
