"""Beat window: random transfers and takes keep every beat and its order."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from pequin.mac.beat_window import BeatWindow


@pytest.mark.parametrize(
    ("offer", "take"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.3, 0.3)], ids=str
)
def test_no_beat_is_lost_doubled_or_reordered(offer, take):
    rng = np.random.default_rng(int(10 * offer + 100 * take))
    dut = BeatWindow()
    sent, taken, levels = [], [], set()

    async def bench(ctx):
        fresh = 1
        transfer = None
        for _ in range(1500):
            if transfer is None and rng.random() < offer:
                two = bool(rng.integers(2))
                transfer = [fresh, fresh + 1] if two else [fresh]
                fresh += len(transfer)
                ctx.set(dut.weights.p.two, two)
                ctx.set(dut.weights.p.beats[0], transfer[0] << 200 | transfer[0])
                # The second beat is noise when there is only one.
                second = transfer[-1] << 200 | transfer[-1] if two else (1 << 256) - 1
                ctx.set(dut.weights.p.beats[1], second)
            ctx.set(dut.weights.valid, transfer is not None)
            level = ctx.get(dut.level)
            levels.add(level)
            assert level == min(2, len(sent) - len(taken))
            heads = [ctx.get(dut.head[i]) for i in range(level)]
            expected = sent[len(taken) : len(taken) + level]
            assert heads == [n << 200 | n for n in expected]
            count = int(rng.integers(level + 1)) if rng.random() < take else 0
            ctx.set(dut.take, count)
            taken.extend(expected[:count])
            if transfer is not None and ctx.get(dut.weights.ready):
                sent.extend(transfer)
                transfer = None
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert levels == {0, 1, 2}
    assert len(taken) > 200


def test_sustains_two_beats_per_clock_also_after_single_ones():
    dut = BeatWindow()
    odd_clocks = {0: 0, 5: 1, 20: 1, 21: 1, 30: 1, 32: 1}

    async def bench(ctx):
        ctx.set(dut.weights.valid, 1)
        ctx.set(dut.weights.p.two, 1)
        for clock in range(50):
            assert ctx.get(dut.level) == (2 if clock else 0)
            ctx.set(dut.take, odd_clocks.get(clock, 2))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
