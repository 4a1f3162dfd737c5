import pytest

from pequin.errors import InputError
from pequin_sim.hbm.trace import read_trace

STORE = 64 << 20


def lines(tmp_path, text):
    path = tmp_path / "trace"
    path.write_text(text)
    return list(read_trace(path, STORE))


def test_reads_writes_comments_and_clocks(tmp_path):
    text = "# a trace\nR 0x40\n\nW 0x3ffffe0 12\nR 20 12\n"
    assert lines(tmp_path, text) == [(0, 2, 1, 0), (1, 2097151, 1, 12), (0, 1, 1, 12)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X 0x40\n", r":1: a line is"),
        ("R\n", r":1: a line is"),
        ("R 0x40\nR 0x60 1 2\n", r":2: a line is"),
        ("R zebra\n", r"'zebra' is not a byte address"),
        ("R 0x41\n", r"multiple of 32"),
        ("R 0x4000000\n", r"past the store of 67108864 bytes"),
        ("R -20\n", r"must not be negative"),
        ("R 0x40 soon\n", r"'soon' is not an earliest clock"),
        ("R 0x40 9\nR 0x40 8\n", r":2: clock 8 is earlier than 9"),
        ("# nothing\n", r"has no request"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        lines(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere cannot be read"):
        list(read_trace(tmp_path / "nowhere", STORE))


def test_the_file_is_read_as_a_stream(tmp_path):
    path = tmp_path / "trace"
    path.write_text("R 0x40\nbroken\n")
    requests = read_trace(path, STORE)
    assert next(requests) == (0, 2, 1, 0)
    with pytest.raises(InputError):
        next(requests)
