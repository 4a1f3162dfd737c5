import pytest

from pequin_tb.hbm.scoreboard import Scoreboard, pattern


def check(tmp_path, lines, store_beats=1 << 21):
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    board = Scoreboard(store_beats)
    return board.check(path), board.counts


def value(address, number, port):
    return f"{pattern(address, number, port):x}"


GOOD = [
    "A 0 10 1 100 1",
    "K 0 12 0",
    "A 1 20 0 100 1",
    f"D 1 40 0 1 {value(0x100, 0, 0)}",
]


def test_a_good_log_passes(tmp_path):
    errors, counts = check(tmp_path, GOOD)
    assert errors == []
    assert counts["beats"] == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*GOOD[:3], "D 1 40 0 1 0"], "wrong data at 0x100"),
        ([*GOOD[:3], f"D 1 40 0 1 {value(0x101, 0, 0)}"], "wrong data"),
        ([*GOOD[:3], f"D 1 40 0 0 {value(0x100, 0, 0)}"], "last = 0"),
        (GOOD[:3], "no response"),
        ([*GOOD, f"D 1 41 0 1 {value(0x100, 0, 0)}"], "read data without a read"),
        ([*GOOD, "K 0 50 0"], "acknowledge without a write"),
        (["A 0 10 1 100 1", "K 0 12 1"], "acknowledge with error 1"),
        (["A 0 10 0 100 0", "D 0 12 0 1 0"], "error 0"),
        (["A 0 10 0 200000 1", "D 0 12 1 1 5"], "data 5"),
        (["A 0 10 0 100 1", "D 0 30 2 1 7"], "data of an uncorrectable beat"),
        (["A 0 10 0 100 1", "E 0 29 1 100", "D 0 30 0 1 0"], "without an error response"),
    ],
)
def test_each_fault_is_told(tmp_path, lines, message):
    errors, _ = check(tmp_path, lines)
    assert any(message in error for error in errors), errors


def test_a_replaced_value_is_wrong_after_the_second_acknowledge(tmp_path):
    lines = [
        "A 0 10 1 100 1", "K 0 12 0", "A 2 20 1 100 1", "K 2 22 0", "A 1 30 0 100 1",
        f"D 1 50 0 1 {value(0x100, 0, 0)}",
    ]  # fmt: skip
    assert "wrong data" in check(tmp_path, lines)[0][0]
    lines[-1] = f"D 1 50 0 1 {value(0x100, 0, 2)}"
    assert check(tmp_path, lines)[0] == []


def test_a_read_may_not_see_its_ports_later_write(tmp_path):
    lines = [
        "A 0 10 0 100 1", "A 0 11 1 100 1", "K 0 13 0", f"D 0 40 0 1 {value(0x100, 0, 0)}",
    ]  # fmt: skip
    assert "wrong data" in check(tmp_path, lines)[0][0]


def test_a_read_must_see_its_ports_earlier_write(tmp_path):
    lines = ["A 0 10 1 100 1", "A 0 11 0 100 1", "K 0 13 0", "D 0 40 0 1 0"]
    assert "wrong data" in check(tmp_path, lines)[0][0]


def test_error_responses_and_uncorrectable_beats(tmp_path):
    lines = [
        "A 0 10 0 100 0", "D 0 12 1 1 0", "A 0 20 1 1fffff 2", "K 0 22 1",
        "A 0 30 0 100 2", "E 0 49 1 101", "D 0 50 0 0 0", "D 0 51 2 1 0",
    ]  # fmt: skip
    errors, counts = check(tmp_path, lines)
    assert errors == []
    assert counts["uncorrectable"] == 1
    assert counts["bad"] == 2
