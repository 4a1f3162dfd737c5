import random

import pytest
from amaranth.hdl import unsigned
from amaranth.sim import Simulator

from pequin.export import elaborate
from pequin.vector.buffer import StageBuffer
from pequin_sim.toolchain import lint


@pytest.mark.parametrize(
    ("offers", "takes", "clocks"), [(1.0, 1.0, 101), (0.5, 0.7, None), (1.0, 0.4, None)]
)
def test_keeps_order_and_a_full_rate(offers, takes, clocks):
    dut = StageBuffer(unsigned(8))
    draw = random.Random(3)
    sent, got = list(range(100)), []
    used = 0

    async def bench(ctx):
        nonlocal used
        waiting = list(sent)
        offered = False
        while len(got) < len(sent):
            offered = offered or (bool(waiting) and draw.random() < offers)
            ctx.set(dut.input.valid, offered)
            ctx.set(dut.input.payload, waiting[0] if offered else 0)
            ctx.set(dut.output.ready, draw.random() < takes)
            if offered and ctx.get(dut.input.ready):
                waiting.pop(0)
                offered = False
            if ctx.get(dut.output.valid) and ctx.get(dut.output.ready):
                got.append(ctx.get(dut.output.payload))
            await ctx.tick()
            used += 1
            assert used < 2000

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()
    assert got == sent
    assert clocks is None or used == clocks


def test_ready_does_not_follow_the_output():
    dut = StageBuffer(unsigned(8))

    async def bench(ctx):
        ctx.set(dut.input.valid, 1)
        for ready in (1, 1, 0, 0):
            assert ctx.get(dut.input.ready) == ready
            ctx.set(dut.output.ready, 1)
            assert ctx.get(dut.input.ready) == ready
            ctx.set(dut.output.ready, 0)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()


def test_converts_to_verilog():
    lint(elaborate(StageBuffer(unsigned(8)), name="stage_buffer"))
