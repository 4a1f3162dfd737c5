import random

import pytest
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin.export import elaborate
from pequin.vector.masks import RowMasks
from pequin_sim.toolchain import lint


def params(preset):
    return TileParams(TileConfig.preset(preset))


@pytest.mark.parametrize("preset", ["tiny", "fpga", "ref", "wide"])
def test_masks_rows(preset):
    p = params(preset)
    lanes, columns = p.config.lanes, p.config.columns
    dut = RowMasks(p)
    draw = random.Random(2)
    limits = [(draw.randrange(80), draw.randrange(120)) for _ in range(columns)]
    rows = [
        (
            draw.randrange(columns),
            lanes * draw.randrange(128 // lanes),
            draw.randrange(100),
            limited,
        )
        for limited in (0, 1)
        for _ in range(100)
    ]

    def expected(vector, element, left, limited):
        start, end = limits[vector] if limited else (0, 1 << 17)
        mask = sum(1 << i for i in range(lanes) if i < left)
        live = sum(1 << i for i in range(lanes) if i < left and start <= element + i < end)
        return mask, live

    async def bench(ctx):
        for vector, (start, end) in enumerate(limits):
            ctx.set(dut.update, {"valid": 1, "index": vector, "start": start, "end": end})
            await ctx.tick()
        ctx.set(dut.update.valid, 0)
        for at in range(len(rows) + 2):
            if at >= 2:
                assert (ctx.get(dut.mask), ctx.get(dut.live)) == expected(*rows[at - 2])
            vector, element, left, limited = rows[min(at, len(rows) - 1)]
            ctx.set(dut.vector, vector)
            ctx.set(dut.element, element)
            ctx.set(dut.left, left)
            ctx.set(dut.limited, limited)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()


def test_converts_to_verilog():
    lint(elaborate(RowMasks(params("tiny")), name="row_masks"))
