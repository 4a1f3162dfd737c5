"""Status: joined flags, the first error in drain order, a saturating count of zeros."""

import numpy as np
from amaranth.hdl import Fragment, Value
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin.mac.status import StatusCollector
from pequin.mac.types import mac_status


def test_random_commands():
    rng = np.random.default_rng(6)
    params = TileParams(TileConfig(columns=8, drain_lanes=4))
    dut = StatusCollector(params)
    errors_seen = 0

    async def bench(ctx):
        nonlocal errors_seen
        for _ in range(60):
            joined, first, zeros = 0, None, 0
            count = int(rng.integers(1, 12))
            for i in range(count):
                row, vector = i // 2 + 7, 4 * (i % 2)
                mask = int(rng.integers(1, 16))
                for d in range(4):
                    flags = int(rng.integers(1, 8)) if rng.random() < 0.05 else 0
                    ctx.set(Value.cast(dut.drained.flags[d]), flags)
                    if mask >> d & 1 and flags:
                        joined |= flags
                        first = first or (row, vector + d)
                part = int(rng.integers(0, 2000))
                zeros += part
                ctx.set(dut.drained.mask, mask)
                ctx.set(dut.drained.row, row)
                ctx.set(dut.drained.vector, vector)
                ctx.set(dut.drained.zeros, part)
                ctx.set(dut.drained.last, i == count - 1)
                ctx.set(dut.valid, 1)
                await ctx.tick()
                ctx.set(dut.valid, 0)
                assert ctx.get(dut.status.valid) == (i == count - 1)
                if i < count - 1 and rng.random() < 0.3:
                    await ctx.tick()
            status = ctx.get(dut.status.p)
            assert ctx.get(Value.cast(dut.status.p.errors)) == joined
            assert status.zeros == zeros
            if first is not None:
                errors_seen += 1
                assert (status.error_row, status.error_vector) == first

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert errors_seen > 10


def test_count_of_zeros_saturates(register):
    params = TileParams(TileConfig(columns=8, drain_lanes=8))
    dut = StatusCollector(params)
    inner = Fragment.get(dut, None)
    so_far = register(inner, "so_far")
    layout = mac_status(params)

    async def bench(ctx):
        ctx.set(so_far, layout.const({"zeros": 2**32 - 100}).as_value())
        ctx.set(dut.valid, 1)
        for zeros, expected in ((99, 2**32 - 1), (1, 2**32 - 1), (4000, 2**32 - 1)):
            ctx.set(dut.drained.zeros, zeros)
            await ctx.tick()
            assert ctx.get(dut.status.p.zeros) == expected

    simulator = Simulator(inner)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
