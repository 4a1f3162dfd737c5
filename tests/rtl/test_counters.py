"""Cause counters: each clock is counted once, under its cause."""

import numpy as np
from amaranth.lib import enum
from amaranth.sim import Simulator

from pequin.counters import COUNTER_BITS, CauseCounters, cause_counts
from pequin.export import elaborate
from pequin.mac.types import Cause
from pequin_sim.toolchain import lint


class Phase(enum.Enum, shape=2):
    WORK = 0
    WAIT = 3


def test_every_clock_is_counted_under_its_cause():
    rng = np.random.default_rng(0)
    dut = CauseCounters(Cause)
    expected = dict.fromkeys(Cause, 0)

    async def bench(ctx):
        for clock in range(400):
            cause = Cause(int(rng.integers(len(Cause))))
            ctx.set(dut.cause, cause)
            await ctx.tick()
            expected[cause] += 1
            counts = ctx.get(dut.counts)
            assert {c: counts[c.name.lower()] for c in Cause} == expected
            assert sum(expected.values()) == clock + 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_counters_are_named_after_the_causes():
    layout = cause_counts(Phase)
    assert [name for name, _ in layout] == ["work", "wait"]
    assert layout.size == 2 * COUNTER_BITS


def test_converts_and_is_lint_clean():
    lint(elaborate(CauseCounters(Phase), "cause_counters"))
