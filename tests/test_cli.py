"""The command line's frame: help, unknown names, errors as one line."""

import os
import subprocess
import sys

import click
import pytest

import pequin_sim.cli as cli
from pequin.errors import InputError


def call(monkeypatch, *words):
    """Run `pequin WORDS` in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["pequin", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code or 0


def test_help_lists_every_command_without_importing_any(monkeypatch, capsys):
    monkeypatch.setattr(cli.importlib, "import_module", None)
    assert call(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    for name, text in cli.COMMANDS.items():
        assert name in shown
        assert text.split(".")[0][:30] in shown


def test_version_is_the_package_s(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert "0.1.0" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["matmull"], ["matmul", "--no-such-option"], []])
def test_unknown_words_fail(monkeypatch, capsys, words):
    assert call(monkeypatch, *words) == 2


def test_a_user_error_is_one_line_and_code_1(monkeypatch, capsys):
    @click.command()
    def command():
        raise InputError("W.npy has no rows: add some")

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)
    assert call(monkeypatch, "anything") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "pequin: error: W.npy has no rows: add some\n"


def test_a_bug_keeps_its_traceback(monkeypatch):
    @click.command()
    def command():
        raise ZeroDivisionError

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)
    monkeypatch.setattr(sys, "argv", ["pequin", "anything"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_explains_itself(monkeypatch, capsys, name):
    assert call(monkeypatch, name, "--help") == 0
    assert "Usage: pequin " + name in capsys.readouterr().out


def test_the_console_command_is_installed():
    program = os.path.join(os.path.dirname(sys.executable), "pequin")  # noqa: PTH118, PTH120
    done = subprocess.run(
        [program, "matmul", "--preset", "huge", "--generate", "1x32x1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("pequin: error: preset 'huge' is unknown; choose one of ref,")
    assert done.stderr.count("\n") == 1
