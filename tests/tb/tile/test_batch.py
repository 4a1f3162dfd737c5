"""Steps of several columns on the simulated tile: every value is the golden machine's."""

import dataclasses

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.machine import Column, Step
from pequin_sim.model import Formats, ModelShape, quantize_model, random_model
from pequin_sim.rtl.bench import Pauses
from pequin_sim.tile.compare import compare_tile
from pequin_sim.tile.slots import Request, SlotTable

SMALL = ModelShape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=172, vocab=250)
TINY = dataclasses.replace(SMALL, heads=2, kv_heads=1, hidden=40, mlp=60, vocab=50)
FORMATS = Formats.of("mxfp4", head="mxint8", k="mxfp4x2", down="mxint8")

REST = Pauses(rate=64, burst_rate=16, burst_clocks=200, seed=5)
PAUSED = {"hbm_pauses": REST, "pauses": {name: REST for name in ("steps", "control", "events")}}

SIXTEEN = [[(s, p) for s, p in enumerate(places)] for places in ([0] * 16, [1] * 16)]
PLAN = [
    *SIXTEEN,
    [(5, 2)],
    [(s, 2) for s in (0, 3, 7)],
    [(s, 2) for s in (1, 2, 4, 6, 8, 9, 10, 11)],
    # A prompt of 35 tokens beside four sequences, cut where a granule ends in a chunk.
    [*((0, p) for p in range(3, 15)), (3, 3), (5, 3), (7, 3), (9, 3)],
    [(0, p) for p in range(15, 31)],
    [*((0, p) for p in range(31, 35)), (1, 3), (3, 4)],
    [(s, p) for s, p in enumerate([35, 4, 3, 5, 3, 4, 3, 4, 3, 4, 3, 3, 2, 2, 2, 2])],
]
"""Steps: (slot, position) of each column."""

TINY_PLAN = [[(0, 0), (1, 0)], [(1, 1)], [(0, 1), (0, 2)], [(1, 2), (0, 3)], [(0, 4)]]


def steps_of(plan, shape, slot):
    """Return the steps with random tokens; of a chunk, only the last column wants logits.

    Odd slots attend to the later half of their positions.
    """
    rng = np.random.default_rng(9)
    steps = []
    for columns in plan:
        last = {s: max(p for t, p in columns if t == s) for s, _ in columns}
        tokens = rng.integers(0, shape.vocab, len(columns))
        steps.append(
            Step(
                Column(s, int(t), p, s % 2 * (p // 2), int(last[s] == p), s * slot)
                for (s, p), t in zip(columns, tokens, strict=True)
            )
        )
    return steps


def compiled_for(params, shape, positions, head):
    options = Options(
        max_positions=positions, formats=FORMATS, head=head, batch=params.config.columns
    )
    return compile_decoder(shape, params, options)


def compared(compiled, shape, steps):
    """Run steps on both; everything must be equal."""
    image = compiled.image(quantize_model(random_model(shape, 1), FORMATS))
    job = {"timeout_clocks": 20_000_000, **PAUSED}
    comparison = compare_tile(compiled.plan.params, compiled.program, image, steps, job=job)
    assert comparison.match, comparison.report()
    return comparison.rtl


@pytest.mark.parametrize(
    ("preset", "shape", "plan", "head"),
    [
        ("tiny", TINY, TINY_PLAN, "logits"),
        ("fpga", TINY, TINY_PLAN, "top_k"),
        ("ref", SMALL, PLAN, "logits"),
        ("ref", SMALL, PLAN[:6], "top_k"),
    ],
)
def test_mixed_steps_with_random_pauses(preset, shape, plan, head, check_counters):
    params = TileParams(TileConfig.preset(preset))
    compiled = compiled_for(params, shape, max(p for c in plan for _, p in c) + 1, head)
    run = compared(compiled, shape, steps_of(plan, shape, compiled.map.kv.slot))
    check_counters(run.counters)
    assert [e.value for e in run.events if e.kind.name == "DONE"] == [len(c) for c in plan]
    rows = compiled.map.hbm.embedding_row + compiled.map.hbm.rotary_row
    columns = sum(len(c) for c in plan)
    assert run.counters["hbm.reads"] == len(plan) * compiled.weight_beats + columns * rows
    assert run.counters["hbm.writes"] == 0


def random_steps(compiled, shape, seed, count):
    """Return steps of sequences that come, take their prompt in chunks, decode, and go."""
    rng = np.random.default_rng(seed)
    table, options = SlotTable(compiled), compiled.plan.options
    steps, live = [], []
    while len(steps) < count:
        if len(live) < table.slots and (not live or rng.random() < 0.5):
            live.append(table.admit())
        requests, room = [], options.batch
        for slot in rng.permutation(live).tolist():
            at = table.length(slot)
            most = min(room, options.max_positions - at, 6 if rng.random() < 0.3 else 1)
            for position in range(at, at + int(rng.integers(0, most + 1))):
                start = int(rng.integers(0, position + 1)) if rng.random() < 0.2 else 0
                token, wants = int(rng.integers(shape.vocab)), bool(rng.random() < 0.6)
                requests.append(Request(slot, token, position, wants, start))
            room = options.batch - len(requests)
        if requests:
            steps.append(table.step(requests))
        for slot in list(live):
            if table.length(slot) == options.max_positions or rng.random() < 0.1:
                table.release(slot)
                live.remove(slot)
    return steps


@pytest.mark.parametrize(
    ("preset", "seed", "count"),
    [
        ("tiny", 1, 6),
        ("ref", 2, 10),
        *(pytest.param("tiny", seed, 20, marks=pytest.mark.soak) for seed in range(10, 30)),
        *(pytest.param("ref", seed, 40, marks=pytest.mark.soak) for seed in range(30, 50)),
    ],
)
def test_random_steps(preset, seed, count):
    params = TileParams(TileConfig.preset(preset))
    shape = TINY if preset == "tiny" else SMALL
    compiled = compiled_for(params, shape, 8 if preset == "tiny" else 40, "logits")
    compared(compiled, shape, random_steps(compiled, shape, seed, count))
