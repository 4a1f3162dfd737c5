"""The monitor finds what a tile does wrong, and nothing else."""

import pytest

from pequin_sim.protocol import (
    Ack,
    Credit,
    Data,
    Event,
    EventKind,
    Hello,
    Nak,
    Read,
    Recorded,
    Rule,
    Sizes,
    Start,
    Step,
    Welcome,
    encode,
)
from pequin_sim.protocol.packets import Column, PacketType
from pequin_tb.host.monitor import check_link

SIZES = Sizes(**dict.fromkeys(Sizes.__dataclass_fields__, 1))
PLAYED = [
    encode(Hello(id=0, credit=200)),
    encode(Start(id=1)),
    encode(Read(id=2, memory=0, address=5, beats=2)),
    encode(Step(id=3, columns=(Column(),))),
    b"garbage of a line",
    encode(Credit(id=4, total=1000)),
]
ANSWERS = [
    Welcome(id=0, memory_requests=4, requests=16, max_beats=64, sent=0, sizes=SIZES),
    Ack(id=1, request=PacketType.START),
    Event(id=7, kind=EventKind.TOKEN, stamp=5),
    Event(id=8, kind=EventKind.DONE, stamp=5),
    Nak(id=3, code=Rule.BUSY),
    Nak(id=int.from_bytes(PLAYED[4][4:6], "little"), code=Rule.SYNC),
    Data(id=2, memory=0, address=5, data=bytes(64)),
]


def record(packets, played=6):
    frames = [p if isinstance(p, bytes) else encode(p) for p in packets]
    return [Recorded(frame, played, 0, 0) for frame in frames]


def rules(packets, **options):
    recorded = packets if isinstance(packets[0], Recorded) else record(packets)
    return {v.rule for v in check_link(PLAYED, recorded, columns=2, **options)}


def test_a_good_conversation_has_no_violation():
    assert rules(ANSWERS) == set()
    assert rules(ANSWERS[:4], complete=False) == set()


def replaced(index, packet):
    return [*ANSWERS[:index], packet, *ANSWERS[index + 1 :]]


@pytest.mark.parametrize(
    ("packets", "rule"),
    [
        (replaced(2, encode(ANSWERS[2])[:-1] + b"x"), "damage"),
        (ANSWERS[:-1], "answer"),
        ([*ANSWERS, ANSWERS[1]], "answer"),
        (replaced(1, Ack(id=1, request=PacketType.STOP)), "answer"),
        (replaced(1, Nak(id=1, code=Rule.CRC)), "answer"),
        (replaced(6, Data(id=2, memory=0, address=6, data=bytes(64))), "answer"),
        (replaced(5, Nak(id=9, code=Rule.SYNC)), "answer"),
        (replaced(5, Nak(id=9, code=Rule.OVERRUN, detail=2)), "answer"),
        (replaced(3, Event(id=9, kind=EventKind.DONE, stamp=5)), "event"),
        (replaced(3, Event(id=8, kind=EventKind.DONE, stamp=4)), "stamp"),
    ],
)
def test_each_violation_is_found(packets, rule):
    assert rule in rules(packets)


def test_a_packet_beyond_the_credit_is_found():
    # 60 + 20 + 36 + 36 + 20 + 20 = 192 bytes fit into 200; the DATA needs the CREDIT.
    early = record(ANSWERS[:-1], played=5)
    assert rules(early + record(ANSWERS[-1:], played=6)) == set()
    assert rules(early + record(ANSWERS[-1:], played=5)) == {"credit"}


def test_dropped_packets_are_missing_answers():
    packets = [*ANSWERS[:-1], Nak(id=2, code=Rule.OVERRUN, detail=1)]
    assert rules(packets) == set()
