"""Proof by induction: the stream engine never asks for more than the FIFO takes."""

import pytest
from amaranth.hdl import Assert, Assume, Fragment, Module, Signal

from pequin.move.stream_engine import StreamEngine


def credit_proof(driven, params, *, honest=True):
    """Put the engine between an HBM that gives only what was asked for and a FIFO.

    Not `honest`: beats come that nobody asked for.
    """
    m = Module()
    dut = StreamEngine(params)
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    way = driven(inner, "on_the_way")
    size = params.config.fifo_beats
    held, taken = Signal(range(size + 1)), Signal(2)
    read, output = dut.port.read_data, dut.output
    pushed = output.valid & output.ready
    m.d.comb += [
        dut.room.eq(size - held),
        output.ready.eq(held != size),
        Assume(taken <= held),
    ]
    m.d.sync += held.eq(held + pushed - taken)
    if honest:
        m.d.comb += Assume(~read.valid | (way > output.valid))
    m.d.comb += [
        Assert(held <= size),
        Assert(way + held <= size),
        Assert(way >= output.valid),
        # So a beat always has a place, and the port is never held up.
        Assert(~output.valid | output.ready),
        Assert(~read.valid | read.ready),
    ]
    inputs = [dut.command.valid, dut.command.payload.as_value(), dut.port.request.ready]
    return m, [*inputs, read.valid, read.payload.as_value(), taken]


@pytest.mark.parametrize("preset", ["tiny", "ref"])
def test_a_beat_always_has_a_place(prove, driven, params_of, preset):
    assert prove(*credit_proof(driven, params_of(preset)), depth=2) == "PASS"


def test_the_proof_needs_a_memory_that_gives_what_was_asked_for(prove, driven, params_of):
    assert prove(*credit_proof(driven, params_of("tiny"), honest=False), depth=3) == "FAIL"
