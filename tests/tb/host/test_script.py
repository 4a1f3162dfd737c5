"""Conversations from a file, played without Python."""

import numpy as np

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
