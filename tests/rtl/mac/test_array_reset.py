"""The array clocked by hand: reset in the middle of a command, activations at the last moment."""

import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Signal, Value
from amaranth.sim import Simulator

from pequin.mac.array import MacArray
from pequin.mac.types import WeightFormat
from pequin_sim.campaigns.operands import FORMATS, random_acts, random_weights
from pequin_sim.golden.mac import mac_array
from pequin_sim.layout import pack_weights


def as_int(data):
    return int.from_bytes(data.tobytes(), "little")


class Driver:
    """Drive a `tiny` array from Python, one clock at a time."""

    def __init__(self, params):
        self.dut = MacArray(params)
        self.reset = Signal()
        self.top = Module()
        self.top.submodules.dut = ResetInserter(self.reset)(self.dut)

    def run(self, bench):
        simulator = Simulator(self.top)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()

    async def load(self, ctx, acts):
        """Write unpaired vectors, the last block in the clock before this returns."""
        write = self.dut.activations
        ctx.set(write.valid, 1)
        for v in range(acts.rows):
            for b in range(acts.blocks):
                ctx.set(write.p.column, v)
                ctx.set(write.p.address, b)
                ctx.set(write.p.elements, as_int(acts.elements[0, v, 32 * b : 32 * b + 32]))
                ctx.set(write.p.scale, int(acts.scales[0, v, b]))
                await ctx.tick()
        ctx.set(write.valid, 0)

    async def multiply(self, ctx, weights, acts, *, stop_after=None):
        """Run a command; return fp32 bits [rows, vectors], or None if stopped after some beats."""
        dut, beats = self.dut, list(map(as_int, pack_weights(weights)))
        command = {
            "format": WeightFormat[weights.fmt.name],
            "two_planes": weights.planes - 1,
            "scaled": 1,
            "last_block": weights.blocks - 1,
            "last_row": weights.rows - 1,
            "last_vector": acts.rows - 1,
        }
        ctx.set(dut.command.payload, command)
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.results.ready, 1)
        ctx.set(dut.status.ready, 1)
        values = np.zeros((weights.rows, acts.rows), np.uint32)
        taken = 0
        for _ in range(400):
            ctx.set(dut.weights.valid, taken < len(beats))
            ctx.set(dut.weights.p.beats[0], beats[min(taken, len(beats) - 1)])
            accepted = ctx.get(dut.command.ready) and ctx.get(dut.command.valid)
            taken += ctx.get(dut.weights.ready) and taken < len(beats)
            group = ctx.get(dut.results.p) if ctx.get(dut.results.valid) else None
            done = ctx.get(dut.status.valid)
            await ctx.tick()
            if accepted:
                ctx.set(dut.command.valid, 0)
            if group is not None:
                values[group.row, group.vector] = Value.cast(group.lanes[0].value).value
            if done:
                return values
            if stop_after is not None and taken >= stop_after:
                return None
        raise AssertionError("no status after 400 clocks")


@pytest.fixture
def cases():
    rng = np.random.default_rng(12)
    acts = random_acts(rng, 2, 3)
    return acts, [random_weights(rng, case, 5, acts) for case in FORMATS[:3]]


def test_reset_at_any_clock_leaves_nothing_behind(params_of, cases):
    acts, weights = cases
    driver = Driver(params_of("tiny"))

    async def bench(ctx):
        await driver.load(ctx, acts)
        for i, stop_after in enumerate((1, 2, 5, 9, 13, 15)):
            matrix = weights[i % 3]
            assert await driver.multiply(ctx, matrix, acts, stop_after=stop_after) is None
            ctx.set(driver.dut.command.valid, 0)
            ctx.set(driver.dut.weights.valid, 0)
            ctx.set(driver.reset, 1)
            await ctx.tick()
            ctx.set(driver.reset, 0)
            got = await driver.multiply(ctx, weights[(i + 1) % 3], acts)
            expected = mac_array(weights[(i + 1) % 3], acts).values_u32
            np.testing.assert_array_equal(got, expected)

    driver.run(bench)


def test_activations_written_two_clocks_before_the_command_are_used(params_of, cases):
    _, weights = cases
    driver = Driver(params_of("tiny"))
    rng = np.random.default_rng(13)

    async def bench(ctx):
        for matrix in weights:
            fresh = random_acts(rng, 2, 3)
            await driver.load(ctx, fresh)
            await ctx.tick()  # the contract: two clocks from the write to the command
            got = await driver.multiply(ctx, matrix, fresh)
            np.testing.assert_array_equal(got, mac_array(matrix, fresh).values_u32)

    driver.run(bench)
