"""`pequin asm` and `pequin disasm`."""

import pytest
from click.testing import CliRunner

from pequin.errors import InputError
from pequin_sim.cli import cli

SOURCE = "start: step\n  signal 3\n  wait 3\n  j start\n"


@pytest.fixture
def pequin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli, arguments, catch_exceptions=False)

    return call


def test_there_and_back(pequin, tmp_path):
    (tmp_path / "a.s").write_text(SOURCE)
    result = pequin("asm", "a.s")
    assert result.exit_code == 0
    assert result.stderr == "wrote a.bin: 4 instructions\n"
    image = (tmp_path / "a.bin").read_bytes()
    assert len(image) == 32
    text = pequin("disasm", "a.bin").stdout
    assert text == "L0:\n    step\n    signal 3\n    wait 3\n    beq r0, r0, L0\n"
    (tmp_path / "b.s").write_text(text)
    pequin("asm", "b.s", "-o", "c.img")
    assert (tmp_path / "c.img").read_bytes() == image
    assert not (tmp_path / "b.bin").exists()


def test_listings(pequin, tmp_path):
    (tmp_path / "a.s").write_text(SOURCE)
    result = pequin("asm", "a.s", "--listing")
    assert result.stdout.splitlines()[1] == "    1 0000000300000012      2 |   signal 3"
    assert not (tmp_path / "a.bin").exists()
    assert pequin("asm", "a.s", "--listing", "-o", "a.bin").stdout == result.stdout
    assert "signal 3" in pequin("disasm", "a.bin", "--listing").stdout


def test_errors_name_the_line_and_leave_no_file(pequin, tmp_path):
    (tmp_path / "a.s").write_text("halt\nwait 3x\n")
    with pytest.raises(InputError, match=r"^a\.s:2: '3x' is not an expression"):
        pequin("asm", "a.s")
    (tmp_path / "a.s").write_text("wait 3\nhalt\n")
    with pytest.raises(InputError, match=r"^a\.s:1: deadlock"):
        pequin("asm", "a.s")
    assert not (tmp_path / "a.bin").exists()
    assert pequin("asm", "a.s", "--no-check").exit_code == 0


def test_files_that_cannot_be_used(pequin, tmp_path):
    with pytest.raises(InputError, match=r"cannot read none\.s"):
        pequin("asm", "none.s")
    with pytest.raises(InputError, match=r"cannot read none\.bin"):
        pequin("disasm", "none.bin")
    (tmp_path / "a.bin").write_bytes(b"\xff" * 7)
    with pytest.raises(InputError, match="would be overwritten"):
        pequin("asm", "a.bin")
    with pytest.raises(InputError, match="not UTF-8"):
        pequin("asm", "a.bin", "-o", "b")
    with pytest.raises(InputError, match=r"a\.bin: a program has 8 bytes"):
        pequin("disasm", "a.bin")
    (tmp_path / "a.s").write_text("halt\n")
    with pytest.raises(InputError, match="there is no directory"):
        pequin("asm", "a.s", "-o", "no/where")


def test_a_program_must_fit_the_preset(pequin, tmp_path):
    (tmp_path / "a.s").write_text("halt\n" * 1025)
    assert pequin("asm", "a.s").exit_code == 0
    with pytest.raises(InputError, match=r"1025 instructions do not fit .* tiny, which has 1024"):
        pequin("asm", "a.s", "--preset", "tiny")
