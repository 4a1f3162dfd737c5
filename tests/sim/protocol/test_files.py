import pytest

from pequin.errors import InputError
from pequin_sim.protocol import (
    Credit,
    Hello,
    LinkScript,
    Read,
    Recorded,
    Start,
    Stop,
    decode,
    play_record,
    read_records,
)
from pequin_sim.protocol.files import PLAY, RECORD


def entries(path):
    data, at = path.read_bytes(), 0
    found = []
    while at < len(data):
        size, after = PLAY.unpack_from(data, at)
        at += PLAY.size
        found.append((decode(data[at : at + size]) if size else None, after))
        at += size + -size % 8
    return found


def test_a_script_keeps_the_limits_and_waits_where_told(tmp_path):
    script = LinkScript()
    read = Read(memory=0, address=0, beats=1)
    for _ in range(6):
        script.add(read)
    script.add(Credit(total=5))
    script.wait()
    script.add(Start())
    script.expect(events=2)
    script.add(Stop())
    script.wait()
    script.add(read)
    script.write(tmp_path / "script")
    found = entries(tmp_path / "script")
    assert [after for _, after in found] == [0, 0, 0, 0, 1, 2, 0, 6, 6, 10, 11]
    assert [packet.id for packet, _ in found[:-1]] == list(range(10))
    assert found[-1][0] is None
    assert script.expected == 11
    with pytest.raises(InputError, match="at least 0, not -1"):
        script.expect(-1)


def test_sixteen_orders_go_out_at_once(tmp_path):
    script = LinkScript()
    for _ in range(18):
        script.add(Hello(credit=1))
    script.write(tmp_path / "script")
    assert [after for _, after in entries(tmp_path / "script")][:18] == [0] * 16 + [1, 2]


def test_records_are_read_when_they_are_complete():
    frame = b"abcdefghi"
    record = RECORD.pack(9, 3, 100, 105) + frame + bytes(7)
    wanted = Recorded(frame, 3, 100, 105)
    for cut in range(len(record)):
        assert list(read_records(record + record[:cut])) == [(wanted, len(record))]
    assert list(read_records(record * 2)) == [(wanted, 40), (wanted, 80)]


def test_a_record_to_play_is_padded():
    assert play_record(b"abc", after=7) == b"\x03\0\0\0\x07\0\0\0abc" + bytes(5)
    assert play_record(b"12345678") == b"\x08\0\0\0\0\0\0\0" + b"12345678"
