"""Conversations from a file, played without Python."""

import numpy as np
import pytest

from pequin.errors import ToolError
from pequin_sim.bench.link import run_bare_link
from pequin_sim.protocol import (
    Ack,
    Clear,
    Column,
    Data,
    Event,
    EventKind,
    Hello,
    LinkScript,
    MemoryId,
    Read,
    Start,
    Step,
    Welcome,
    Write,
    decode,
)
from pequin_sim.runner import SimulationFailed

ALL = 0x7FFFFFFF


def test_a_file_is_played_and_its_answers_recorded(run):
    rng = np.random.default_rng(3)
    data = rng.bytes(64 * 32)
    script = LinkScript()
    script.add(Hello(credit=ALL))
    script.add(Write(memory=MemoryId.KV, address=100, data=data))
    script.wait()
    script.add(Read(memory=MemoryId.KV, address=110, beats=20))
    script.add(Clear())
    script.add(Start(pc=7))
    script.add(Step(columns=(Column(token=5, slot=1), Column(token=9, position=3))))
    script.expect(events=3)
    result = run(script=script)
    packets = [decode(r.frame) for r in result.records]
    assert isinstance(packets[0], Welcome)
    assert packets[0].sizes.columns == 2
    assert packets[0].sent == 0
    (read,) = [p for p in packets if isinstance(p, Data)]
    assert read.data == data[320:960]
    assert len([p for p in packets if isinstance(p, Ack)]) == 4
    events = [p for p in packets if isinstance(p, Event)]
    assert [(e.kind, e.code, e.value, e.detail) for e in events] == [
        (EventKind.TOKEN, 0, 6, 6),
        (EventKind.TOKEN, 256, 10, 12),
        (EventKind.DONE, 0, 2, 0),
    ]
    assert [e.id for e in events] == [0, 1, 2]
    assert len(packets) == script.expected


def conversation(bursts=40):
    """Return a script of writes and reads, with a step at the end."""
    script = LinkScript()
    script.add(Hello(credit=ALL))
    for number in range(bursts):
        data = bytes((number + i) & 0xFF for i in range(64 * 32))
        script.add(Write(memory=MemoryId.HBM, address=number, data=data))
        script.add(Read(memory=MemoryId.HBM, address=number // 2, beats=1 + number))
    script.add(Start(pc=1))
    script.add(Step(columns=tuple(Column(token=number) for number in range(2))))
    script.expect(events=3)
    return script


def test_bare_cpp_plays_the_same_conversation(bench, run):
    script = conversation()
    ours, bare = run(script=script), run_bare_link(bench(), script)
    # Clocks and stamps included.
    assert bare.records == ours.records
    assert len(bare.records) == script.expected
    assert abs(bare.clocks - ours.simulation.result["clocks"]) <= 1
    assert bare.seconds > 0


def test_a_script_that_does_not_end_is_told(bench):
    script = conversation(1)
    script.expect(events=1)
    with pytest.raises(ToolError, match=r"not done after 5000 clocks: 8 of 9 packets came"):
        run_bare_link(bench(), script, timeout_clocks=5000)


def test_a_script_that_does_not_end_times_out_in_cocotb(run):
    script = conversation(1)
    script.expect(events=1)
    with pytest.raises(SimulationFailed, match=r"not over in 5000 clocks: 5 packets .* 8 have"):
        run(script=script, timeout_clocks=5000)
