"""Activation buffer: offset binary with its sum, banks, latency, hold."""

import numpy as np
from amaranth.sim import Simulator

from pequin.mac.activation_buffer import ActivationBuffer


def test_written_blocks_come_back_lifted_with_their_sums(params_of):
    params = params_of("tiny")
    rng = np.random.default_rng(4)
    columns, depth = params.config.columns, params.config.act_blocks
    data = rng.integers(-128, 128, (columns, depth, 32)).astype(np.int8)
    data[0, 0], data[1, 0] = -128, 127
    scales = rng.integers(0, 256, (columns, depth))
    dut = ActivationBuffer(params)

    def check(ctx, address):
        for c in range(columns):
            block = dut.blocks[c]
            lifted = (data[c, address].astype(int) + 128).astype(np.uint8)
            assert ctx.get(block.elements) == int.from_bytes(lifted.tobytes(), "little")
            assert ctx.get(block.total) == lifted.sum()
            assert ctx.get(block.scale) == scales[c, address]

    async def bench(ctx):
        order = [(c, a) for a in range(depth) for c in range(columns)]
        rng.shuffle(order)
        for c, a in order:
            elements = int.from_bytes(data[c, a].tobytes(), "little")
            ctx.set(dut.write.valid, 1)
            ctx.set(dut.write.p.column, int(c))
            ctx.set(dut.write.p.address, int(a))
            ctx.set(dut.write.p.elements, elements)
            ctx.set(dut.write.p.scale, int(scales[c, a]))
            assert ctx.get(dut.write.ready)
            await ctx.tick()
        ctx.set(dut.write.valid, 0)
        ctx.set(dut.write.p.elements, 0)
        await ctx.tick()  # the last write lands two clocks after it was accepted
        for _ in range(200):
            address = int(rng.integers(depth))
            ctx.set(dut.address, address)
            await ctx.tick()
            check(ctx, address)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
