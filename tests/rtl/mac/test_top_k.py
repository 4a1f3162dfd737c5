"""Top-k registers against the golden model: ties, negatives, NaN, few results, emission."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin.mac.top_k import TopK
from pequin_sim.golden.topk import top_k


def tile(columns, lanes, k):
    return TileParams(TileConfig(columns=columns, drain_lanes=lanes, top_k=k))


def insert_groups(ctx, dut, params, values, rows, *, clear, vectors):
    """Return the groups of a matrix of results: one call per clock, the last with `emit`."""
    lanes = params.config.drain_lanes
    starts = range(0, vectors, lanes)
    for i in range(len(rows)):
        for start in starts:
            last = i == len(rows) - 1 and start == starts[-1]
            mask = 0
            for d in range(lanes):
                v = start + d
                # Lanes without a vector carry a value that would win.
                bits = int(values[i, v]) if v < vectors else 0x7F000000
                mask |= (v < vectors) << d
                ctx.set(dut.group.values[d], bits)
                ctx.set(dut.group.flags[d].nan, bits == 0x7FC00000)
            ctx.set(dut.group.mask, mask)
            ctx.set(dut.group.row, int(rows[i]))
            ctx.set(dut.group.vector, start)
            ctx.set(dut.clear, clear and i == 0 and start == 0)
            ctx.set(dut.emit, last)
            ctx.set(dut.last_vector, vectors - 1)
            ctx.set(dut.insert, 1)
            yield


async def collect(ctx, dut, rng, entries):
    """Take all entries with random pauses."""
    while True:
        ready = bool(rng.integers(2))
        ctx.set(dut.selected.ready, ready)
        valid, entry = ctx.get(dut.selected.valid), ctx.get(dut.selected.p)
        assert ctx.get(dut.busy) or not valid
        await ctx.tick()
        if valid and ready:
            entries.append(entry)
            if entry.last:
                assert not ctx.get(dut.busy)
                return


def run_matrices(params, matrices, rng):
    """Feed (values, rows, clear, vectors) one after the other; return the entries of each."""
    dut = TopK(params)
    collected = []

    async def bench(ctx):
        for values, rows, clear, vectors in matrices:
            for _ in insert_groups(ctx, dut, params, values, rows, clear=clear, vectors=vectors):
                await ctx.tick()
                if rng.random() < 0.2:
                    ctx.set(dut.insert, 0)
                    await ctx.tick()
            ctx.set(dut.insert, 0)
            collected.append([])
            await collect(ctx, dut, rng, collected[-1])

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return collected


def check(params, entries, values, rows, vectors):
    """Compare with the golden model; `values` are in the order of `rows`, ascending."""
    k = params.config.top_k
    best = top_k(values[:, :vectors], k)
    order = [(e.vector, e.rank) for e in entries]
    assert order == [(v, r) for v in range(vectors) for r in range(k)]
    for entry in entries:
        place = entry.vector, entry.rank
        assert entry.valid == (entry.rank < best.counts[entry.vector])
        if entry.valid:
            assert entry.index == rows[best.indices[place]]
            assert entry.value == best.values_u32[place]


def results(rng, rows, columns, kind):
    if kind == "ties":
        values = rng.choice([-1.5, -1.0, 0.0, 2.0], (rows, columns))
    elif kind == "negative":
        values = -rng.random((rows, columns)) * 2.0 ** rng.integers(-20, 20, (rows, columns))
    else:
        values = rng.standard_normal((rows, columns)) * 2.0 ** rng.integers(
            -20, 20, (rows, columns)
        )
    values = values.astype(np.float32)
    values[values == 0] = 0.0
    bits = values.view(np.uint32).copy()
    if kind == "nan":
        bits[rng.random(bits.shape) < 0.5] = 0x7FC00000
    return bits


@pytest.mark.parametrize("kind", ["ties", "negative", "mixed", "nan"])
@pytest.mark.parametrize(("columns", "lanes", "k"), [(2, 1, 1), (4, 2, 3), (4, 4, 8), (2, 2, 2)])
def test_selection_equals_the_golden_model(columns, lanes, k, kind):
    rng = np.random.default_rng(columns + 10 * k)
    params = tile(columns, lanes, k)
    matrices = []
    for count in (1, 3, 40):
        rows = np.sort(rng.choice(1 << 18, count, replace=False))
        vectors = int(rng.integers(1, columns + 1))
        matrices.append((results(rng, count, columns, kind), rows, True, vectors))
    collected = run_matrices(params, matrices, rng)
    for entries, (values, rows, _, vectors) in zip(collected, matrices, strict=True):
        check(params, entries, values, rows, vectors)


def test_lowest_index_wins_whatever_the_order_of_rows():
    rng = np.random.default_rng(8)
    params = tile(2, 1, 4)
    rows = rng.permutation(60)
    values = results(rng, 60, 2, "ties")
    collected = run_matrices(params, [(values, rows, True, 2)], rng)
    check(params, collected[0], values[np.argsort(rows)], np.arange(60), 2)


def test_registers_are_kept_without_clear():
    rng = np.random.default_rng(9)
    params = tile(2, 2, 3)
    first, second = results(rng, 20, 2, "ties"), results(rng, 20, 2, "ties")
    matrices = [(first, np.arange(100, 120), True, 2), (second, np.arange(20), False, 2)]
    collected = run_matrices(params, matrices, rng)
    check(params, collected[0], first, np.arange(100, 120), 2)
    both = np.concatenate([second, first])
    check(params, collected[1], both, np.concatenate([np.arange(20), np.arange(100, 120)]), 2)


def test_all_nan_gives_no_entry():
    rng = np.random.default_rng(1)
    values = np.full((5, 2), 0x7FC00000, np.uint32)
    (entries,) = run_matrices(tile(2, 1, 2), [(values, np.arange(5), True, 2)], rng)
    assert len(entries) == 4
    assert not any(entry.valid for entry in entries)
