import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pequin.errors import InputError
from pequin.host import types as hardware
from pequin.host.sender import welcome_words
from pequin.tile import types as tile
from pequin_sim import protocol as p
from pequin_sim.protocol import codec, packets

DOCS = Path(__file__).parents[3] / "docs" / "protocol.md"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_round_trip(packets, data):
    packet = data.draw(packets)
    frame = p.encode(packet)
    assert p.decode(frame) == packet
    assert len(frame) % 8 == 4
    assert len(frame) <= codec.MAX_PACKET


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_wrong_byte_is_found(packets, data):
    frame = bytearray(p.encode(data.draw(packets)))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(p.ProtocolError) as found:
        p.decode(bytes(frame))
    wanted = {0: "SYNC", 1: "SYNC", 2: "VERSION", 6: "LENGTH", 7: "LENGTH"}.get(place, "CRC")
    assert found.value.rule.name == wanted


def write(**changes):
    return p.Write(**{"memory": 2, "address": 5, "data": bytes(64), **changes})


GOOD = p.encode(write())


def place(memory=2, zero=0, beats=2, address=5):
    return codec._PLACE.pack(memory, zero, beats, address)


@pytest.mark.parametrize(
    ("frame", "rule", "message"),
    [
        (b"", "SYNC", "0 bytes are no packet"),
        (b"PQ\x01", "SYNC", "3 bytes"),
        (b"QP" + GOOD[2:], "SYNC", "begins with 5051, not 5150"),
        (GOOD[:2] + b"\x02" + GOOD[3:], "VERSION", "the version is 1, not 2"),
        (GOOD[:-1], "LENGTH", "makes 84 bytes"),
        (GOOD + b"x", "LENGTH", "not 85"),
        (GOOD[:8], "LENGTH", "not 8"),
        (codec.seal(2, 0, place(), bytes(63)), "LENGTH", "a multiple of 8"),
        (GOOD[:-1] + b"\0", "CRC", "the checksum is"),
        (codec.seal(0, 0, bytes(8)), "TYPE", "no type 0x00"),
        (codec.seal(0x86, 0, bytes(8)), "TYPE", "no type 0x86"),
        (codec.seal(2, 0, place(beats=0)), "FIELD", "WRITE with 0 beats"),
        (codec.seal(3, 0, place(beats=65)), "FIELD", "READ with 65 beats"),
        (codec.seal(3, 0, place(zero=1)), "FIELD", "must be zero"),
        (codec.seal(4, 0, bytes([0, 0, 1, 0, 0, 0, 0, 0])), "FIELD", "program counter 65536"),
        (codec.seal(5, 0, b"\1" + bytes(7)), "FIELD", "STOP with bytes that must be zero"),
        (codec.seal(6, 0, bytes(7) + b"\1"), "FIELD", "CLEAR with bytes that must be zero"),
        (codec.seal(7, 0, bytes(8)), "FIELD", "STEP with 0 columns"),
        (codec.seal(7, 0, b"\0\1" + bytes(6)), "FIELD", "STEP with 256 columns"),
        (codec.seal(0x82, 0, bytes(8)), "FIELD", "request type 0"),
        (codec.seal(0x84, 0, bytes(8)), "FIELD", "NAK with code 0"),
        (codec.seal(0x85, 0, bytes(8), bytes(16)), "FIELD", "event kind 0"),
        (codec.seal(0x81, 0, bytes(8), bytes(40)), "FIELD", "denominator 0"),
        (codec.seal(2, 0, place(), bytes(32)), "LENGTH", "WRITE must have 64 bytes, not 32"),
        (codec.seal(3, 0, place(), bytes(64)), "LENGTH", "READ must have 0 bytes"),
        (codec.seal(7, 0, b"\2" + bytes(7), bytes(24)), "LENGTH", "STEP must have 48 bytes"),
        (codec.seal(5, 0, bytes(8), bytes(8)), "LENGTH", "STOP must have 0 bytes"),
        (codec.seal(2, 0, place(memory=7), bytes(64)), "MEMORY", "no memory 7"),
    ],
)
def test_every_rule_is_named(frame, rule, message):
    with pytest.raises(p.ProtocolError, match=f"^{rule.lower()}: .*{re.escape(message)}") as found:
        p.decode(frame)
    assert found.value.rule.name == rule


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (write(data=bytes(33)), "whole beats of 32 bytes, not 33"),
        (write(data=b""), "1 to 64 beats, not 0"),
        (write(data=bytes(65 * 32)), "1 to 64 beats, not 65"),
        (p.Read(memory=0, address=0, beats=65), "1 to 64 beats, not 65"),
        (p.Read(memory=0, address=1 << 32, beats=1), "does not fit its place"),
        (p.Stop(id=1 << 16), "does not fit its place"),
        (p.Step(columns=()), "1 to 255 columns, not 0"),
        (p.Packet(), "is no packet"),
    ],
)
def test_what_does_not_fit_is_not_encoded(packet, message):
    with pytest.raises(InputError, match=re.escape(message)):
        p.encode(packet)


def test_a_tile_refuses_more_than_the_format():
    step = p.encode(p.Step(columns=(p.Column(),) * 3))
    assert p.judge(step, columns=3) is None
    assert p.judge(step, columns=2) == p.Rule.FIELD
    assert p.judge(step[:-4] + bytes(4), columns=2) == p.Rule.CRC
    short = codec.seal(7, 0, b"\3" + bytes(7), bytes(24))
    assert p.judge(short, columns=2) == p.Rule.FIELD
    assert p.judge(short, columns=3) == p.Rule.LENGTH
    assert p.judge(p.encode(p.Ack(request=2)), columns=2) == p.Rule.TYPE
    assert p.judge(p.encode(p.Nak(code=p.Rule.CRC)), columns=2) == p.Rule.TYPE


def test_the_numbers_are_those_of_the_hardware():
    assert hardware.MAGIC.to_bytes(2, "little") == codec.MAGIC
    for name in ("VERSION", "MAX_BEATS", "MEMORY_REQUESTS", "REQUESTS"):
        assert getattr(packets, name) == getattr(hardware, name)
    pairs = [
        (p.PacketType, hardware.PacketType),
        (p.Rule, hardware.NakCode),
        (p.MemoryId, tile.Memory),
        (p.EventKind, tile.EventKind),
    ]
    for ours, theirs in pairs:
        their_numbers = {each.name: each.value for each in theirs if each.name != "NONE"}
        assert {each.name: each.value for each in ours} == their_numbers
    assert tile.ErrorCode.ACCESS.value == packets.ACCESS_ERROR


def test_welcome_of_a_preset():
    from pequin.config import TileConfig, TileParams

    config = TileConfig.preset("fpga").replace(host_bytes_per_clock=1.25)
    body = b"".join(w.to_bytes(8, "little") for w in welcome_words(TileParams(config)))
    welcome = p.decode(codec.seal(0x81, 9, codec._WELCOME.pack(4, 16, 64, 0), body))
    sizes = {n: getattr(welcome.sizes, n) for n in p.Sizes.__dataclass_fields__}
    assert sizes.pop("rate_numerator") / sizes.pop("rate_denominator") == 1.25
    assert sizes == {name: getattr(config, name) for name in sizes}


def test_packets_in_the_documentation_are_right():
    """Every line `PACKET = hex` of the page's examples decodes to what it says."""
    block = re.search(r"```\nHELLO.*?\n```", DOCS.read_text(), re.S)
    assert block is not None
    entries = re.findall(r"^([A-Z]+.*)\n((?:    [0-9a-f ]+\n)+)", block[0] + "\n", re.M)
    assert len(entries) >= 8
    for title, text in entries:
        packet = p.decode(bytes.fromhex(text))
        fields = dict(re.findall(r"(\w+)=(\w+)", title))
        assert type(packet).__name__.upper() == title.split()[0]
        for name, value in fields.items():
            found = getattr(packet, name)
            assert (found.hex() if isinstance(found, bytes) else int(found)) == (
                value if isinstance(found, bytes) else int(value, 0)
            )
