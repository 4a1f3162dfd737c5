"""The build cache: one build for a key, complete or not at all, also with two processes."""

import subprocess
import sys
import time

import pytest

from pequin.errors import ToolError
from pequin_sim.runner.cache import cache_root, digest, obtain


def test_the_directory_is_the_argument_then_the_variable_then_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("PEQUIN_CACHE", str(tmp_path / "variable"))
    assert cache_root(tmp_path / "argument") == tmp_path / "argument"
    assert cache_root() == tmp_path / "variable"
    monkeypatch.delenv("PEQUIN_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "pequin"
    assert cache_root().is_dir()


def test_a_place_that_cannot_be_written_is_refused_with_the_fix(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match=r"cannot be made .*: set PEQUIN_CACHE to a directory"):
        cache_root(tmp_path / "file" / "cache")
    with pytest.raises(ToolError, match="has a space in its path"):
        cache_root(tmp_path / "my cache")


def test_a_key_depends_on_every_input_but_not_on_their_order():
    key = digest({"verilog": "module", "flags": ["-O3"]})
    assert key == digest({"flags": ["-O3"], "verilog": "module"})
    assert key != digest({"verilog": "module", "flags": ["-O2"]})
    assert key != digest({"verilog": "module ", "flags": ["-O3"]})


def test_the_second_caller_builds_nothing(tmp_path):
    builds = []

    def build(directory):
        builds.append(directory)
        (directory / "program").write_text("x")

    first, again = obtain(tmp_path, "key", build), obtain(tmp_path, "key", build)
    assert first == (tmp_path / "key", False)
    assert again == (tmp_path / "key", True)
    assert (tmp_path / "key" / "program").read_text() == "x"
    assert len(builds) == 1
    assert not builds[0].exists()


def test_a_failed_build_leaves_nothing_and_can_be_repeated(tmp_path):
    def fail(directory):
        (directory / "half").write_text("")
        raise ToolError("no compiler")

    with pytest.raises(ToolError, match="no compiler"):
        obtain(tmp_path, "key", fail)
    assert [entry.name for entry in tmp_path.iterdir()] == ["locks"]
    assert obtain(tmp_path, "key", lambda directory: None)[1] is False


PROGRAM = """
import sys, time
from pathlib import Path
from pequin_sim.runner.cache import obtain

def build(directory):
    with open(sys.argv[2], "a") as journal:
        journal.write("built\\n")
    (directory / "first").write_text("")
    time.sleep(0.5)
    (directory / "last").write_text("")

directory, cached = obtain(Path(sys.argv[1]), "key", build)
assert (directory / "last").exists()
"""


def test_of_two_processes_one_builds_and_the_other_waits(tmp_path):
    journal = tmp_path / "journal"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(journal)]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert journal.read_text() == "built\n"


def test_a_killed_build_does_not_block_the_next(tmp_path):
    journal = tmp_path / "journal"
    slow = PROGRAM.replace("sleep(0.5)", "sleep(600)")
    first = subprocess.Popen([sys.executable, "-c", slow, str(tmp_path), str(journal)])
    deadline = time.monotonic() + 60
    while not journal.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    first.kill()
    first.wait()
    directory, cached = obtain(tmp_path, "key", lambda directory: None)
    assert (directory.name, cached) == ("key", False)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["journal", "key", "locks"]
