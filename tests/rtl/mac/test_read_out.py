"""Read-out: capture, pairing, clamping, conversion, drain order and hold."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin.mac.read_out import ReadOut
from pequin_sim.golden.mac import CANONICAL_NAN, fixed_to_fp32

TOP, BOTTOM = 2**47 - 1, -(2**47)


def random_capture(rng, params):
    """Return random totals [columns][2] and a tag."""
    c = params.config
    paired = bool(rng.integers(2))
    limit = c.columns // 2 if paired else c.columns
    span = 1 << (params.acc_bits - 2)
    sums = rng.integers(-span, span, (c.columns, 2)) >> rng.integers(0, params.acc_bits, 2)
    edge = rng.random((c.columns, 2))
    sums[edge < 0.15] = rng.choice([TOP, TOP + 1, BOTTOM, BOTTOM - 1])
    totals = {
        "sum": sums,
        "nan": rng.random((c.columns, 2)) < 0.1,
        "term_clamped": rng.random((c.columns, 2)) < 0.1,
        "zeros": rng.integers(0, 100, (c.columns, 2)),
    }
    tag = {
        "row": int(rng.integers(0, 1000)),
        "second_row": int(rng.integers(2)),
        "final": int(rng.integers(2)),
        "paired": int(paired),
        "last_vector": int(rng.integers(limit)),
        "sink": int(rng.integers(2)),
        "select_first": int(rng.integers(2)),
        "select_last": int(rng.integers(2)),
    }
    return totals, tag


def expected_groups(params, totals, tag):
    """Return the groups of one capture in drain order."""
    lanes = params.config.drain_lanes
    groups = []
    vectors = tag["last_vector"] + 1
    starts = range(0, vectors, lanes)
    for row in range(1 + tag["second_row"]):
        for start in starts:
            group = {"row": tag["row"] + row, "vector": start, "lanes": [], "zeros": 0}
            for v in range(start, min(start + lanes, vectors)):
                places = [2 * v, 2 * v + 1] if tag["paired"] else [v]
                total = {n: sum(int(x[p, row]) for p in places) for n, x in totals.items()}
                fixed = min(TOP, max(BOTTOM, total["sum"]))
                value = int(fixed_to_fp32(np.array([fixed]))[0])
                nan, clamped = total["nan"] > 0, fixed != total["sum"]
                flags = nan | (total["term_clamped"] > 0) << 1 | clamped << 2
                group["lanes"].append((CANONICAL_NAN if nan else value, flags))
                group["zeros"] += total["zeros"]
            first = row == 0 and start == 0
            final = row == tag["second_row"] and start == starts[-1]
            group["last"] = bool(final and tag["final"])
            group["select_first"] = bool(first and tag["select_first"])
            group["select_last"] = bool(group["last"] and tag["select_last"])
            groups.append(group)
    return groups


class Follower:
    """Collect drained groups and compare them in order."""

    def __init__(self, dut):
        self.dut, self.expected, self.seen = dut, [], 0

    def look(self, ctx):
        if not ctx.get(self.dut.valid):
            return
        drained, want = self.dut.drained, self.expected[self.seen]
        self.seen += 1
        assert ctx.get(drained.mask) == (1 << len(want["lanes"])) - 1
        for name in ("row", "vector", "last", "zeros"):
            assert ctx.get(getattr(drained, name)) == want[name], name
        for name in ("select_first", "select_last"):
            assert ctx.get(drained.tag[name]) == want[name], name
        for d, (value, flags) in enumerate(want["lanes"]):
            assert ctx.get(drained.values[d]) == value
            assert ctx.get(drained.flags[d].as_value()) == flags


@pytest.mark.parametrize(("columns", "lanes"), [(2, 1), (2, 2), (6, 2), (8, 4)])
def test_random_captures(columns, lanes):
    rng = np.random.default_rng(columns + lanes)
    params = TileParams(TileConfig(columns=columns, drain_lanes=lanes))
    dut = ReadOut(params)
    follower = Follower(dut)

    def drive(ctx, totals, tag):
        for c in range(columns):
            for g in range(2):
                for name, values in totals.items():
                    ctx.set(getattr(dut.totals[c][g], name), int(values[c, g]))
        ctx.set(dut.tag, tag)

    async def clock(ctx):
        follower.look(ctx)
        await ctx.tick()

    async def bench(ctx):
        for _ in range(60):
            totals, tag = random_capture(rng, params)
            drive(ctx, totals, tag)
            ctx.set(dut.capture, 1)
            assert ctx.get(dut.ready)
            await clock(ctx)
            ctx.set(dut.capture, 0)
            groups = expected_groups(params, totals, tag)
            follower.expected += groups
            drive(ctx, *random_capture(rng, params))  # the sums of the next rows move on
            # The next capture comes with the last group at the earliest.
            for _ in range(len(groups) - 1):
                assert not ctx.get(dut.ready)
                await clock(ctx)
            for _ in range(int(rng.integers(2)) * 3):
                assert ctx.get(dut.ready)
                await clock(ctx)
        for _ in range(200):
            await clock(ctx)
        assert ctx.get(dut.ready)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert follower.seen == len(follower.expected) > 60
