"""`pequin synth` as a user meets it."""

import json

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from click.testing import CliRunner

import pequin.tops
from pequin.errors import ConfigError
from pequin_sim.cli.synth import command


class Multiplier(wiring.Component):
    """A registered product: one multiplier block between registers."""

    a: In(8)
    b: In(8)
    product: Out(16)

    def elaborate(self, platform):
        m = Module()
        left, right = Signal(8), Signal(8)
        m.d.sync += [left.eq(self.a), right.eq(self.b), self.product.eq(left * right)]
        return m


@pytest.fixture
def invoke(monkeypatch, tmp_path_factory):
    monkeypatch.setitem(pequin.tops.TOPS, "multiplier", lambda params: Multiplier())
    cache = tmp_path_factory.getbasetemp() / "synth-cache"
    monkeypatch.setenv("PEQUIN_CACHE", str(cache))

    def run(*words):
        return CliRunner().invoke(command, list(words))

    return run


def test_json_alone_on_stdout(invoke):
    done = invoke("--top", "multiplier", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["target"] == "ecp5"
    assert (found["dsp"], found["bram"], found["ff"]) == (1, 0, 32)
    assert found["fmax_mhz"] is None
    assert found["macs_per_clock"] is None
    assert "nextpnr" not in str(found["tools"])


def test_place_and_route_of_two_seeds(invoke):
    done = invoke("--top", "multiplier", "--pnr", "--seeds", "2", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    runs = found["place_and_route"]["runs"]
    assert [run["seed"] for run in runs] == [1, 2]
    assert found["fmax_mhz"] == min(run["fmax_mhz"] for run in runs) > 50
    assert found["fmax_best_mhz"] == max(run["fmax_mhz"] for run in runs)
    assert found["place_and_route"]["critical_path"]["end"] == "product"


def test_tables_name_resources_and_path(invoke):
    done = invoke("--top", "multiplier", "--pnr")
    assert done.exit_code == 0, done.output
    for text in ("LUT4", "MULT18X18D", "DP16KD", "LFE5U-85F", "out of context", "product"):
        assert text in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--top", "no-such"), "top 'no-such' is unknown; choose one of mac-array"),
        (("--preset", "huge"), "preset 'huge' is unknown; choose one of ref"),
        (("--target", "ice40"), "target 'ice40' is unknown; choose one of ecp5"),
        (("--target", "xilinx-us+", "--pnr"), "--pnr needs --target ecp5"),
    ],
)
def test_bad_input_is_one_clear_error(invoke, words, message):
    done = invoke(*words)
    assert done.exit_code != 0
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
