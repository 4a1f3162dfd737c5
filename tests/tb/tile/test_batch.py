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
    options = Options(
        max_positions=max(p for columns in plan for _, p in columns) + 1,
        formats=FORMATS,
        head=head,
        batch=params.config.columns,
    )
    compiled = compile_decoder(shape, params, options)
    image = compiled.image(quantize_model(random_model(shape, 1), FORMATS))
    steps = steps_of(plan, shape, compiled.map.kv.slot)
    comparison = compare_tile(
        params, compiled.program, image, steps, job={"timeout_clocks": 20_000_000, **PAUSED}
    )
    assert comparison.match, comparison.report()
    run = comparison.rtl
    check_counters(run.counters)
    assert [e.value for e in run.events if e.kind.name == "DONE"] == [len(c) for c in plan]
    rows = compiled.map.hbm.embedding_row + compiled.map.hbm.rotary_row
    columns = sum(len(c) for c in plan)
    assert run.counters["hbm.reads"] == len(plan) * compiled.weight_beats + columns * rows
    assert run.counters["hbm.writes"] == 0
