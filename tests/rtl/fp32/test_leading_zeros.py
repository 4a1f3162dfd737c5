import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from pequin.fp32.types import leading_zeros


@pytest.mark.parametrize("width", [2, 8, 32, 128])
def test_counts(width):
    m = Module()
    value, count = Signal(width), Signal(8)
    m.d.comb += count.eq(leading_zeros(m, "zeros", value))
    draw = random.Random(1)
    values = [0, 1, (1 << width) - 1]
    values += [draw.getrandbits(width) >> draw.randrange(width) for _ in range(200)]

    async def bench(ctx):
        for v in values:
            ctx.set(value, v)
            await ctx.delay(1e-9)
            assert ctx.get(count) == (width - v.bit_length() if v else width - 1)

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()
