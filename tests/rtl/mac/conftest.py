"""Components clocked in Amaranth's simulator, bench designs, and a sum of simulated clocks."""

import functools

import numpy as np
import pytest
from amaranth.hdl import ClockDomain, Module, Value
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin_sim.campaigns import mac as campaign
from pequin_sim.rtl import mac as rtl_mac


def port(component, path):
    """Return the port at a dotted path (`total.sum`, `operands.lanes.3`) as a plain value."""
    found = component
    for step in path.split("."):
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    return Value.cast(found)


def clock_through(component, inputs, outputs, *, clocks=None):
    """Drive one item per clock and sample before each edge; the last item is held.

    `inputs` maps dotted paths to sequences of integers; the result maps each path of `outputs`
    to an array of samples, one per clock.
    """
    count = clocks or max(len(values) for values in inputs.values())
    driven = [(port(component, name), list(map(int, v))) for name, v in inputs.items()]
    sampled = {name: port(component, name) for name in outputs}
    got = {name: [] for name in outputs}

    async def bench(ctx):
        for i in range(count):
            for signal, values in driven:
                if i < len(values):
                    ctx.set(signal, values[i])
            for name, signal in sampled.items():
                got[name].append(ctx.get(signal))
            await ctx.tick()

    # The domain is given, because a combinational component brings none.
    top = Module()
    top.domains.sync = ClockDomain()
    top.submodules.dut = component
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return {name: np.array(values, dtype=object) for name, values in got.items()}


def named_register(fragment, name):
    """Return a register inside an elaborated component by its name."""
    found = {
        signal.name: signal
        for statements in fragment.statements.values()
        for statement in statements
        for signal in statement._lhs_signals()
    }
    return found[name]


@pytest.fixture
def register():
    """Return `named_register`."""
    return named_register


@pytest.fixture
def clocked():
    """Return `clock_through`."""
    return clock_through


@pytest.fixture
def member():
    """Return `port`."""
    return port


@functools.lru_cache
def _params(preset):
    return TileParams(TileConfig.preset(preset))


@pytest.fixture(scope="session")
def params_of():
    """Return a function from a preset's name to its parameters."""
    return _params


@pytest.fixture(scope="session")
def bench_of():
    """Return a function from a preset's name to the array between players and recorders."""
    return functools.lru_cache(lambda preset: rtl_mac.mac_bench(_params(preset)))


SIMULATED_CLOCKS = []
"""Clocks of every RTL simulation of the array."""


def pytest_terminal_summary(terminalreporter):
    if SIMULATED_CLOCKS:
        count, clocks = len(SIMULATED_CLOCKS), sum(SIMULATED_CLOCKS)
        terminalreporter.write_line(f"MAC array: {clocks} clocks in {count} RTL simulations")


@pytest.fixture(scope="session")
def total_clocks():
    """Return the list that collects the clocks of the array's simulations."""
    return SIMULATED_CLOCKS


@pytest.fixture(scope="session")
def run(bench_of, total_clocks):
    """Run commands on a preset, compare with the golden model, return run and golden results."""

    def run_commands(preset, commands, **options):
        params = _params(preset)
        outcome = rtl_mac.run_mac(params, commands, design=bench_of(preset), **options)
        total_clocks.append(outcome.clocks)
        return outcome, campaign.check_run(params, commands, outcome)

    return run_commands


@pytest.fixture(scope="session")
def run_batch(bench_of, total_clocks):
    """Run a batch of a campaign on a preset and return what it reached."""

    def run_one(preset, batch, **options):
        reached = campaign.run_batch(_params(preset), batch, design=bench_of(preset), **options)
        total_clocks.append(reached.clocks)
        return reached

    return run_one
