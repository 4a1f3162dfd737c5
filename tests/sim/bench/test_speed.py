import json

import pytest
from click.testing import CliRunner

from pequin.config import TileConfig, TileParams
from pequin.errors import ConfigError
from pequin_sim.bench.speed import Engine, SpeedBench, ratios
from pequin_sim.cli.bench import command

TINY = TileParams(TileConfig.preset("tiny"))


def test_ratios_are_of_medians():
    engines = [
        Engine("bare", "", [100.0, 200.0, 900.0]),
        Engine("cocotb_idle", "", [50.0, 160.0, 170.0]),
        Engine("icarus", "", note="not installed"),
    ]
    assert ratios(engines) == {"cocotb_idle_over_bare": 0.8}
    assert ratios(engines[1:]) == {}


def test_report_of_a_small_design():
    result = CliRunner().invoke(
        command,
        ["speed", "--preset", "tiny", "--clocks", "20000", "--json"]
        + [f"--engine={name}" for name in ("bare", "cocotb_idle", "cocotb_drive", "amaranth")],
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    speeds = {engine["name"]: engine["clocks_per_second"] for engine in report["engines"]}
    assert list(speeds) == ["bare", "cocotb_idle", "cocotb_drive", "amaranth"]
    assert all(len(engine["samples"]) == 5 for engine in report["engines"])
    assert report["ratios"]["cocotb_idle_over_bare"] == pytest.approx(
        speeds["cocotb_idle"] / speeds["bare"]
    )
    # Compiled C++ is faster than an interpreter by orders of magnitude on any machine.
    assert speeds["bare"] > 10 * speeds["amaranth"] > 0


def test_unknown_engine_is_named():
    bench = SpeedBench("mac-array", TINY, clocks=1000)
    with pytest.raises(ConfigError, match="engine 'modelsim' is unknown; choose from bare, "):
        bench.run(("modelsim",))


def test_too_few_clocks():
    with pytest.raises(ConfigError, match="clocks must be at least 500, not 10"):
        SpeedBench("mac-array", TINY, clocks=10)
