"""The decoder of a byte stream finds packets again after whatever comes between them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pequin_sim.protocol import (
    Damage,
    Rule,
    Start,
    Stop,
    StreamDecoder,
    Write,
    encode,
    seal,
)

FIRST, SECOND = Write(id=1, memory=0, address=3, data=bytes(range(64))), Stop(id=2)
STREAM = encode(FIRST) + encode(SECOND)


def everything(data, cuts=()):
    decoder = StreamDecoder()
    found, at = [], 0
    for cut in [*sorted(cuts), len(data)]:
        found += decoder.feed(data[at:cut])
        at = cut
    return found + decoder.finish()


@settings(deadline=None)
@given(st.data())
def test_packets_come_out_however_the_stream_is_cut(packets, data):
    sent = data.draw(st.lists(packets, max_size=4))
    stream = b"".join(map(encode, sent))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert everything(stream, cuts) == sent


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=3, max_size=3), st.lists(st.integers(0, 250)))
def test_garbage_between_packets_costs_nothing(garbage, cuts):
    # Random bytes that pretend to be the beginning of a packet are the next test.
    pieces = [part.replace(b"PQ", b"pq").rstrip(b"P") for part in garbage]
    stream = pieces[0] + encode(FIRST) + pieces[1] + encode(SECOND) + pieces[2]
    found = everything(stream, [c for c in cuts if c < len(stream)])
    assert [item for item in found if not isinstance(item, Damage)] == [FIRST, SECOND]
    lost = [item for item in found if isinstance(item, Damage)]
    assert sum(item.length for item in lost) == sum(map(len, pieces))
    assert all(item.rule == Rule.SYNC for item in lost)


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        (b"PQ", Rule.VERSION),
        (b"PQ\x01\x02\x00\x00\x00\x08" + bytes(8), Rule.CRC),  # claims 2048 bytes
        (b"PQ\x01\x02\x00\x00\xff\xff", Rule.LENGTH),
        (b"PQ\x01\x02\x00\x00\x04\x00", Rule.LENGTH),
        (b"PQ\x07", Rule.VERSION),
        (encode(FIRST)[:-1] + b"\x00", Rule.CRC),
        (encode(FIRST)[:50], Rule.CRC),
        (b"PPPP", Rule.SYNC),
    ],
)
def test_the_packets_after_a_damaged_one_are_found(damaged, rule):
    rest = STREAM * 40
    found = everything(damaged + rest)
    assert found[0] == Damage(0, len(damaged), rule)
    assert found[1:] == [FIRST, SECOND] * 40


def test_a_good_packet_inside_a_damaged_one_is_found():
    inner = encode(Start(id=9, pc=1))
    outer = bytearray(encode(Write(memory=0, address=0, data=inner.ljust(64, b"\0"))))
    outer[-1] ^= 1
    found = everything(bytes(outer))
    assert [item for item in found if not isinstance(item, Damage)] == [Start(id=9, pc=1)]


def test_a_bad_field_skips_the_packet_as_a_whole():
    bad = seal(0x05, 3, b"\1" + bytes(7))
    found = everything(encode(FIRST) + bad + encode(SECOND))
    assert found == [FIRST, Damage(len(encode(FIRST)), len(bad), Rule.FIELD), SECOND]


def test_a_stream_that_ends_inside_a_packet():
    decoder = StreamDecoder()
    assert decoder.feed(STREAM[:-1]) == [FIRST]
    assert decoder.finish() == [Damage(len(encode(FIRST)), len(encode(SECOND)) - 1, Rule.LENGTH)]
