"""The speed of the tile: that the bench runs and finds differences. No test judges a speed."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from pequin.config import TileConfig, TileParams
from pequin.errors import ConfigError, InputError
from pequin_sim.bench.link import run_bare_link
from pequin_sim.bench.speed import Engine
from pequin_sim.bench.tile import CASES, TARGET, TileSpeed, TileSpeedBench, converse
from pequin_sim.cli.bench import command

TINY = TileParams(TileConfig.preset("tiny"))
CASE = CASES["hidden-72"]


@pytest.fixture(scope="module")
def conversation():
    return converse(CASE, TINY)


@pytest.mark.parametrize(
    ("played", "host", "match", "passed"),
    [
        (90.0, 85.0, True, True),
        (84.9, 99.0, True, False),
        (99.0, 84.9, True, False),
        (99.0, 99.0, False, False),
        (None, 99.0, True, False),
    ],
)
def test_both_cocotb_engines_must_reach_the_target_with_equal_results(played, host, match, passed):
    assert TARGET == 0.85
    engines = [
        Engine("bare", "", [100.0]),
        Engine("played", "", [] if played is None else [played]),
        Engine("host", "", [host]),
    ]
    speed = TileSpeed(engines, match)
    assert speed.passed == speed.describe()["pass"] == passed


def test_the_conversation_is_the_golden_machine_s(conversation):
    kinds = [event[0] for event in conversation.events]
    assert kinds.count(1) == kinds.count(2) == CASE.positions  # a token and its end each
    assert kinds.count(3) == 0
    # The port answers what is asked: more packets than there are events.
    assert conversation.script.expected > len(conversation.events)


def test_report_of_a_small_decoder():
    words = ["tile", "--preset", "tiny", "--case", "hidden-72", "--repeats", "2", "--json"]
    result = CliRunner().invoke(command, words)
    assert result.exit_code in (0, 1), result.output
    report = json.loads(result.stdout)
    engines = {engine["name"]: engine for engine in report["engines"]}
    assert list(engines) == ["bare", "played", "host"]
    assert all(len(engine["samples"]) == 2 for engine in engines.values())
    assert all(engine["clocks_per_second"] > 0 for engine in engines.values())
    assert engines["bare"]["clocks"] == engines["played"]["clocks"] > 10_000
    for name in ("played", "host"):
        speeds = [engines[n]["clocks_per_second"] for n in (name, "bare")]
        assert report["ratios"][f"{name}_over_bare"] == pytest.approx(speeds[0] / speeds[1])
    assert report["match"] is True
    assert report["target"] == TARGET
    assert report["pass"] == (result.exit_code == 0)
    assert (report["preset"], report["case"], report["positions"]) == ("tiny", "hidden-72", 3)
    assert report["shape"]["hidden"] == 72


def test_a_wrong_event_is_noticed(conversation):
    kind, unit, code, pc, value, detail = conversation.events[0]
    events = [(kind, unit, code, pc, value, detail ^ 1), *conversation.events[1:]]
    changed = dataclasses.replace(conversation, events=events)
    assert not TileSpeedBench(TINY, changed, repeats=1, quiet=True).run().match


def test_a_packet_that_came_at_another_clock_is_noticed(conversation, monkeypatch):
    def late(*arguments, **options):
        run = run_bare_link(*arguments, **options)
        last = dataclasses.replace(run.records[-1], end=run.records[-1].end + 1)
        return dataclasses.replace(run, records=[*run.records[:-1], last])

    monkeypatch.setattr("pequin_sim.bench.tile.run_bare_link", late)
    assert not TileSpeedBench(TINY, conversation, repeats=1, quiet=True).run().match


def test_a_model_that_does_not_fit_the_tile():
    with pytest.raises(InputError, match="the tile's max_k is 256"):
        converse(CASES["hidden-512"], TINY)


def test_at_least_one_turn(conversation):
    with pytest.raises(ConfigError, match="repeats must be at least 1, not 0"):
        TileSpeedBench(TINY, conversation, repeats=0)
