"""The runner: results, failures, the cache, waveforms, and both simulators."""

import dataclasses
import json
import re
import secrets
import shutil
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError, PequinError, ToolError
from pequin.export import elaborate
from pequin_sim import toolchain
from pequin_sim.runner import SimulationFailed, Waves, simulate
from pequin_sim.runner.build import control_file
from pequin_sim.runner.cache import cache_root
from pequin_sim.runner.run import LEDGER

TESTBENCH = '''
import random

import cocotb
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly, RisingEdge, Timer
from pequin_tb import job


@cocotb.test()
async def counts(dut):
    dut.enable.value = 1
    job.start_clock(dut)
    await job.reset(dut)
    await ClockCycles(dut.clk, job.load().get("clocks", 10))
    await FallingEdge(dut.clk)
    job.finish({"count": int(dut.count.value), "echo": job.load(), "dice": random.random()})


@cocotb.test()
async def fails(dut):
    job.start_clock(dut)
    await ClockCycles(dut.clk, 3)
    assert 2 + 2 == 5, "arithmetic is broken\\nhere is more"


@cocotb.test()
async def raises(dut):
    await Timer(1, "ns")
    raise KeyError("nothing")


@cocotb.test()
async def hangs(dut):
    while True:
        pass


@cocotb.test()
async def dies(dut):
    import os
    print("last words", flush=True)
    os._exit(7)


@cocotb.test()
async def edges(dut):
    """What is seen at a rising edge is the state before it; what is driven acts after it."""
    dut.enable.value = 0
    job.start_clock(dut)
    await job.reset(dut)
    dut.enable.value = 1
    seen = []
    for _ in range(4):
        await RisingEdge(dut.clk)
        before = int(dut.count.value)
        await ReadOnly()
        seen.append([before, int(dut.count.value), int(dut.doubled.value)])
    await FallingEdge(dut.clk)
    dut.enable.value = 0
    await ReadOnly()
    seen.append([int(dut.count.value), int(dut.count.value), int(dut.doubled.value)])
    job.finish({"seen": seen})


@cocotb.test()
async def looks_inside(dut):
    job.start_clock(dut)
    await job.reset(dut)
    dut.enable.value = 1
    await ClockCycles(dut.clk, 5)
    job.finish(
        {
            "hidden": int(dut.inner.hidden.value) if hasattr(dut.inner, "hidden") else None,
            "count": int(dut.count.value),
        }
    )
'''


class Inner(wiring.Component):
    enable: In(1)
    count: Out(16)

    def elaborate(self, platform):
        m = Module()
        hidden = Signal(16)
        m.d.sync += hidden.eq(hidden + self.enable)
        m.d.comb += self.count.eq(hidden)
        return m


class Counter(wiring.Component):
    """Counts the clocks in which it is enabled; `doubled` follows `enable` at once."""

    enable: In(1)
    count: Out(16)
    doubled: Out(17)

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = Inner()
        m.d.comb += [
            inner.enable.eq(self.enable),
            self.count.eq(inner.count),
            self.doubled.eq((inner.count << 1) | self.enable),
        ]
        return m


@pytest.fixture(scope="module")
def design():
    return elaborate(Counter(), "counter")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    (tmp_path / "counter_bench.py").write_text(TESTBENCH)
    monkeypatch.syspath_prepend(tmp_path)
    return "counter_bench"


def has(find):
    try:
        find()
    except ToolError:
        return False
    return True


needs_icarus = pytest.mark.skipif(
    not has(toolchain.find_icarus), reason="Icarus Verilog is not installed"
)
needs_fst = pytest.mark.skipif(
    not has(toolchain.require_fst_headers), reason="the headers of zlib or lz4 are missing"
)
ENGINES = ["verilator", pytest.param("icarus", marks=needs_icarus)]


@pytest.mark.parametrize("simulator", ENGINES)
def test_a_job_goes_in_and_a_result_comes_out(design, bench, simulator):
    job = {"clocks": 25, "words": ["a", 1, None]}
    done = simulate(design, test_module=bench, testcase="counts", job=job, simulator=simulator)
    assert done.result["count"] == 25
    assert done.result["echo"] == job
    assert [test.status for test in done.tests if test.status == "passed"] == ["passed"]
    assert done.run_seconds > 0
    assert "Running tests" in done.log


@pytest.mark.parametrize("simulator", ENGINES)
def test_edges_see_the_state_before_and_drive_after(design, bench, simulator):
    done = simulate(design, test_module=bench, testcase="edges", simulator=simulator)
    expected = [[n, n + 1, 2 * (n + 1) + 1] for n in range(4)]
    assert done.result["seen"] == [*expected, [4, 4, 8]]


def test_every_run_is_written_into_the_ledger(design, bench, monkeypatch, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    monkeypatch.setenv(LEDGER, str(ledger))
    done = simulate(design, test_module=bench, testcase="edges")
    # Two clocks of reset, four edges, half a clock to the falling one; the first came half late.
    assert done.clocks == 6
    with pytest.raises(SimulationFailed):
        simulate(design, test_module=bench, testcase="fails")
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [line["design"] for line in lines] == [design.top] * 2
    assert lines[0]["clocks"] == done.clocks
    assert lines[0]["test"].endswith("test_every_run_is_written_into_the_ledger")


def test_a_seed_repeats_a_run(design, bench):
    dice = [
        simulate(design, test_module=bench, testcase="counts", seed=seed).result["dice"]
        for seed in (3, 3, 4)
    ]
    assert dice[0] == dice[1] != dice[2]


@pytest.mark.parametrize(
    ("testcase", "message"),
    [
        ("fails", r"cocotb test counter_bench\.fails failed: AssertionError: .*arithmetic is bro"),
        ("raises", r"cocotb test counter_bench\.raises failed: KeyError"),
    ],
)
def test_a_failing_test_fails_the_caller_with_its_name_and_message(
    design, bench, testcase, message
):
    with pytest.raises(SimulationFailed, match=message) as failed:
        simulate(design, test_module=bench, testcase=testcase)
    assert isinstance(failed.value, PequinError)
    assert failed.value.test == f"counter_bench.{testcase}"
    assert "\n" not in str(failed.value)
    assert "Traceback" in failed.value.log


def test_outside_pytest_a_failing_test_fails_the_caller_too(design, bench, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(SimulationFailed, match="arithmetic is broken"):
        simulate(design, test_module=bench, testcase="fails")


def test_a_hung_simulation_is_stopped(design, bench):
    with pytest.raises(SimulationFailed, match=r"counter .* did not finish in 3 s"):
        simulate(design, test_module=bench, testcase="hangs", timeout=3)


def test_a_simulation_that_dies_is_reported_with_its_last_words(design, bench):
    with pytest.raises(SimulationFailed, match="ended with code 7: last words"):
        simulate(design, test_module=bench, testcase="dies")


def test_a_missing_test_module_or_test_is_reported(design, bench):
    with pytest.raises(SimulationFailed, match="counter"):
        simulate(design, test_module="no_such_bench")
    with pytest.raises(SimulationFailed, match="ran no test"):
        simulate(design, test_module=bench, testcase="no_such_test")


def test_an_unknown_simulator_is_refused(design, bench):
    with pytest.raises(ConfigError, match="must be verilator or icarus, not 'vcs'"):
        simulate(design, test_module=bench, simulator="vcs")


def fresh(design):
    """Return a design that no cache has seen."""
    note = f"// {secrets.token_hex(8)}\n"
    return dataclasses.replace(design, verilog=note + design.verilog)


def test_a_second_run_compiles_nothing(design, bench, monkeypatch):
    new = fresh(design)
    first = simulate(new, test_module=bench, testcase="counts")
    try:
        assert not first.build_cached
        assert first.build_seconds > 0
        program = first.build_directory / "counter"
        written = program.stat().st_mtime_ns

        def compiled(*_arguments):
            raise AssertionError("a second run must not compile")

        monkeypatch.setattr("pequin_sim.runner.build.run_logged", compiled)
        second = simulate(new, test_module=bench, testcase="counts")
        assert second.build_cached
        assert second.build_seconds == 0
        assert second.build_directory == first.build_directory
        assert program.stat().st_mtime_ns == written
        with pytest.raises(AssertionError, match="must not compile"):
            simulate(fresh(design), test_module=bench, testcase="counts")
        with pytest.raises(AssertionError, match="must not compile"):
            simulate(new, test_module=bench, testcase="counts", build_args=["-DOTHER=1"])
    finally:
        shutil.rmtree(first.build_directory)


def test_verilog_that_does_not_compile_is_one_line(design, bench):
    broken = dataclasses.replace(design, verilog=fresh(design).verilog + "module ( ;\n")
    with pytest.raises(ToolError, match=r"verilator_bin failed with code 1: %Error.*syntax"):
        simulate(broken, test_module=bench)


def test_without_a_compiler_the_fix_is_named(design, bench, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"g\+\+ is not installed: apt-get install g\+\+"):
        simulate(fresh(design), test_module=bench)


def test_only_ports_and_named_signals_are_public(design):
    lines = control_file(design, ["inner.hidden"]).splitlines()
    assert 'public_flat_rw -module "counter" -var "enable"' in lines
    assert 'public_flat_rd -module "counter" -var "count"' in lines
    assert 'public_flat_rd -module "counter.inner" -var "hidden"' in lines
    assert len(lines) == 1 + len(design.ports) + 1
    with pytest.raises(ConfigError, match=r"has no signal 'inner\.nothing'"):
        control_file(design, ["inner.nothing"])
    with pytest.raises(ConfigError, match=r"has no signal 'other\.hidden'"):
        control_file(design, ["other.hidden"])


def test_a_named_signal_can_be_read(design, bench):
    done = simulate(design, test_module=bench, testcase="looks_inside", public=["inner.hidden"])
    assert done.result["hidden"] == done.result["count"] > 0


def test_nothing_is_left_behind(design, bench, monkeypatch, tmp_path):
    places = [tmp_path / "here", tmp_path / "temporary"]
    for place in places:
        place.mkdir()
    monkeypatch.chdir(places[0])
    monkeypatch.setattr("tempfile.tempdir", str(places[1]))
    simulate(design, test_module=bench, testcase="counts")
    with pytest.raises(SimulationFailed):
        simulate(design, test_module=bench, testcase="fails")
    assert [list(place.iterdir()) for place in places] == [[], []]
    assert not list(cache_root().glob("building-*-counter*"))


def vcd_times(path):
    return [int(time) for time in re.findall(r"^#(\d+)$", Path(path).read_text(), re.M)]


def vcd_scopes(path):
    return re.findall(r"\$scope module (\S+) \$end", Path(path).read_text())


def wave_run(design, bench, waves, simulator="verilator"):
    return simulate(
        design,
        test_module=bench,
        testcase="counts",
        job={"clocks": 50},
        waves=waves,
        simulator=simulator,
    )


def test_waves_are_off_unless_asked_for(design, bench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate(design, test_module=bench, testcase="counts")
    assert not [*tmp_path.glob("*.vcd"), *tmp_path.glob("*.fst")]


def test_a_window_bounds_the_times_in_the_file(design, bench, tmp_path):
    whole, part = tmp_path / "whole.vcd", tmp_path / "part.vcd"
    wave_run(design, bench, Waves(path=whole))
    wave_run(design, bench, Waves(path=part, start=20, stop=30))
    assert vcd_times(whole)[0] == 0
    assert vcd_times(whole)[-1] >= 100
    assert vcd_times(part) == list(range(40, 60))


def test_a_module_filter_leaves_the_rest_out(design, bench, tmp_path):
    whole, part = tmp_path / "whole.vcd", tmp_path / "part.vcd"
    wave_run(design, bench, Waves(path=whole))
    wave_run(design, bench, Waves(path=part, module="inner"))
    assert {"counter", "inner"} <= set(vcd_scopes(whole))
    assert vcd_scopes(part)[-1] == "inner"
    assert "$var wire 1" in whole.read_text()
    names = re.findall(r"\$var \w+ +\d+ \S+ (\S+)", part.read_text())
    assert "hidden" in names
    assert "doubled" not in names


@needs_fst
def test_fst_is_written_on_request(design, bench, tmp_path):
    path = tmp_path / "waves.fst"
    wave_run(design, bench, Waves(path=path, start=5, stop=15))
    header = path.read_bytes()
    # An FST file begins with a header block: type 0, its length, first and last time.
    assert header[0] == 0
    assert int.from_bytes(header[9:17], "big") == 10
    assert int.from_bytes(header[17:25], "big") == 29


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": Path("a.txt")}, r"ends in \.vcd or \.fst, not 'a\.txt'"),
        ({"path": Path("a.vcd"), "start": -1}, "start at 0 or later"),
        ({"path": Path("a.vcd"), "start": 5, "stop": 5}, "stop after its start, not 5 to 5"),
    ],
)
def test_a_bad_request_for_waves_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Waves(**arguments)


def test_a_waveform_that_cannot_be_written_is_refused_before_the_build(design, bench, tmp_path):
    with pytest.raises(PequinError, match=r"cannot write .*no directory"):
        wave_run(design, bench, Waves(path=tmp_path / "missing" / "a.vcd"))


def test_an_unknown_module_for_waves_is_refused(design, bench, tmp_path):
    with pytest.raises(ConfigError, match="counter has no instance 'outer'"):
        wave_run(design, bench, Waves(path=tmp_path / "a.vcd", module="outer"))


@needs_icarus
def test_icarus_writes_waves_as_well(design, bench, tmp_path):
    path = tmp_path / "waves.vcd"
    wave_run(design, bench, Waves(path=path, start=20, stop=30), simulator="icarus")
    times = vcd_times(path)
    assert times[0] == 40
    assert times[-1] <= 60
