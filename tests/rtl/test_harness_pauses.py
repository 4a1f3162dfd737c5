"""Pauser: the share of clocks paused, the length of bursts, and the seed."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from pequin.export import elaborate
from pequin.harness.pauses import PauseControl, Pauser
from pequin_sim.rtl.bench import Pauses
from pequin_sim.toolchain import lint


def record(pauses, clocks):
    """Return the pause signal clock by clock; a new item comes whenever there is no pause."""
    dut = Pauser()
    got = []

    async def bench(ctx):
        ctx.set(dut.control.as_value(), pauses.packed())
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.draw, 1)
        for _ in range(clocks):
            got.append(ctx.get(dut.pause))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return np.array(got, bool)


def runs(paused):
    """Return the lengths of uninterrupted pauses that end inside the recording."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], paused.astype(int), [0]])))
    lengths = edges[1::2] - edges[::2]
    return lengths[:-1] if paused[-1] else lengths


@pytest.mark.parametrize("rate", [64, 128, 224])
def test_rate_is_the_share_of_clocks_paused(rate):
    share = record(Pauses(rate=rate, seed=5), 12000).mean()
    assert share == pytest.approx(rate / 256, abs=0.015)


def test_no_rate_means_no_pause():
    assert not record(Pauses(seed=9), 2000).any()


def test_bursts_have_their_length_and_their_rate():
    paused = record(Pauses(burst_rate=1000, burst_clocks=200, seed=3), 60000)
    lengths = runs(paused)
    assert (lengths % 200 == 0).all()
    started = lengths.sum() / 200
    free = (~paused).sum()
    assert started == pytest.approx((free + started) * 1000 / 65536, rel=0.25)
    assert started > 100


def test_singles_and_bursts_together():
    lengths = runs(record(Pauses(rate=64, burst_rate=500, burst_clocks=50, seed=3), 20000))
    assert lengths.max() >= 50
    assert (lengths < 10).sum() > 1000


def test_the_seed_decides():
    first, second, other = (record(Pauses(rate=128, seed=seed), 500) for seed in (7, 7, 0xDEADBEEF))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_packed_settings_are_those_of_the_control():
    pauses = Pauses(rate=3, burst_rate=500, burst_clocks=200, seed=0x12345678)
    shown = PauseControl.from_bits(pauses.packed())
    assert (shown.rate, shown.burst_rate, shown.burst_clocks, shown.seed) == (
        3,
        500,
        200,
        0x12345678,
    )


def test_converts_and_is_lint_clean():
    lint(elaborate(Pauser(), "pauser"))
