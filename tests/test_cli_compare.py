"""`pequin compare`: what it says of a good run, of a difference, and of bad input."""

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner

from pequin.errors import InputError
from pequin_sim.cli import cli
from pequin_sim.cli import compare as command
from pequin_sim.tile.decode import decode_greedily

MODEL = ("--model", "1x32x2x1x16x32x20", "--positions", "2", "--preset", "tiny")

SOURCE = """
    set vector.mode, {op=set_scalar}
    set vector.shape, {vectors=1}
    set vector.scalars, {out=3}
    set vector.immediate, 0x40490fdb
    launch vector, signal 1
    wait 1
    event r0, 5
    halt
"""


@pytest.fixture
def pequin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli, ["compare", *arguments], catch_exceptions=False)

    return call


def test_a_decoder_is_equal_in_every_place(pequin):
    result = pequin(*MODEL, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["match"] is True
    assert report["first"] is None
    assert report["compared"]["kv"] == 512 * 32
    assert set(report["differing"].values()) == {0}
    assert report["clocks"] > 0
    assert report["counters"]["hbm.writes"] == 0


def test_a_program_and_its_events(pequin, tmp_path):
    (tmp_path / "a.s").write_text(SOURCE)
    result = pequin("a.s", "--preset", "tiny")
    assert result.exit_code == 0
    assert "equal: 1 events" in result.stdout


def broken(change):
    """Decode, then give the golden machine's answer a fault."""

    def run(*arguments, **options):
        decoded = decode_greedily(*arguments, **options)
        change(decoded.result)
        return decoded

    return run


def test_the_first_difference_names_place_values_and_instruction(pequin, monkeypatch):
    places = []

    def change(result):
        """Change a word that the last command to vector memory wrote, and one of an earlier one."""
        writes = [
            (number, write.slice.start)
            for number, record in enumerate(result.commands)
            for write in record.writes
            if write.memory == "vector"
        ]
        last = {place: number for number, place in writes}
        early, late = sorted(last, key=last.get)[0], sorted(last, key=last.get)[-1]
        for place in (late, early):
            places.append((place, int(result.vector[place])))
            result.vector[place] ^= 1
        places.append(result.commands[last[early]])

    monkeypatch.setattr(command, "decode_greedily", broken(change))
    result = pequin(*MODEL)
    assert result.exit_code == 1
    (_, _), (place, value), record = places
    text = " ".join(result.stdout.split())
    assert "2 places differ, the first written: " in text
    assert f"vector {place}: golden 0x{value ^ 1:08x}, RTL 0x{value:08x}" in text
    assert f"written by {record.unit} command {record.number}, pc {record.pc}: launch" in text


def test_a_byte_that_nothing_writes_is_told_as_such(pequin, monkeypatch):
    def change(result):
        assert not np.asarray(result.kv).reshape(-1)[-1]
        np.asarray(result.kv).reshape(-1)[-1] = 7

    monkeypatch.setattr(command, "decode_greedily", broken(change))
    result = pequin(*MODEL, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["match"] is False
    assert report["first"] == "kv 16383: golden 0x07, RTL 0x00; the program does not write there"


def test_an_event_that_differs_is_told_with_both(pequin, monkeypatch):
    def change(result):
        at = next(n for n, event in enumerate(result.events) if event.kind.name == "DONE")
        result.events[at] = dataclasses.replace(result.events[at], value=99)

    monkeypatch.setattr(command, "decode_greedily", broken(change))
    result = pequin(*MODEL, "--json")
    assert result.exit_code == 1
    event = json.loads(result.stdout)["event"]
    assert event.startswith("event 0 of seq: golden DONE code 0")
    assert "value 99" in event


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a PROGRAM or --model"),
        (["a.s", *MODEL], "give either a PROGRAM or --model"),
        (["--model", "2x3", "--preset", "tiny"], "--model wants 7 whole numbers"),
        (["--model", "1x32x2x1x16x32x20", "--preset", "huge"], "preset 'huge' is unknown"),
        ([*MODEL, "--formats", "mxfp5"], "mxfp5"),
        ([*MODEL, "--formats", "mxfp4,head"], "--formats wants a format and then matrix=format"),
        ([*MODEL[:2], "--positions", "0", "--preset", "tiny"], "--positions must be at least 1"),
        (["--model", "2x512x8x2x64x1536x1000", "--preset", "tiny"], "max_k|act_blocks|vector"),
        (["missing.s", "--preset", "tiny"], "cannot read missing.s"),
        (["a.s", "--steps", "steps.json", "--preset", "tiny"], "expected a list of steps"),
    ],
)
def test_bad_input_is_refused_before_any_simulation(pequin, tmp_path, arguments, message):
    (tmp_path / "a.s").write_text(SOURCE)
    (tmp_path / "steps.json").write_text('{"token": 1}')
    with pytest.raises((InputError, ValueError), match=message):
        pequin(*arguments)
