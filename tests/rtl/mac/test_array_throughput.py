"""Clocks of `ref` in closed form, from the array's own counters."""

import re

import numpy as np
import pytest

from pequin_sim.campaigns.operands import FormatCase, acts_of, weights_of
from pequin_sim.layout import beat_count
from pequin_sim.mx import Format
from pequin_sim.rtl.bench import Pauses
from pequin_sim.rtl.mac import Multiply

CASES = {
    "mxfp4": FormatCase(Format.MXFP4, 1, True),
    "mxfp4 x 2": FormatCase(Format.MXFP4, 2, True),
    "mxint8": FormatCase(Format.MXINT8, 1, True),
    "mxint8 unscaled": FormatCase(Format.MXINT8, 1, False),
}


def command(case, rows, blocks, vectors, paired=False, load=True):
    rng = np.random.default_rng(rows + blocks)
    acts = acts_of(rng, vectors, blocks, 0x7F)
    weights = weights_of(rng, case, rows, blocks, 0x7F)
    return Multiply(weights, acts, paired=paired, scaled=case.scaled, load=load)


def payload_clocks(case, rows, blocks, paired):
    """Return the clocks in which payload is taken: pairs split only at chunk and row ends."""
    beats = beat_count(rows, 32 * blocks, case.fmt, case.planes, case.scaled).payload
    if not paired:
        return beats
    chunk = 16 if case.fmt is Format.MXFP4 else 32
    clocks = at = 0
    while at < beats:
        block = at % blocks
        whole = block % 2 == 0 and block + 1 < blocks
        if case.scaled and at % chunk == chunk - 1:
            whole = False
        at += 2 if whole else 1
        clocks += 1
    return clocks


@pytest.mark.parametrize(
    ("name", "paired", "blocks"),
    [
        ("mxfp4", False, 90),
        ("mxfp4", True, 90),
        ("mxint8", False, 90),
        ("mxint8", True, 90),
        ("mxfp4 x 2", True, 91),
        ("mxint8 unscaled", True, 91),
    ],
)
def test_long_rows_keep_the_array_busy(run, name, paired, blocks):
    case, vectors = CASES[name], 8 if paired else 16
    one = command(case, 64, blocks, vectors, paired)
    outcome, _ = run("ref", [one, command(case, 64, blocks, vectors, paired, load=False)])
    causes = outcome.causes
    scale = beat_count(64, 32 * blocks, case.fmt, case.planes, case.scaled).scale
    busy = payload_clocks(case, 64, blocks, paired)
    assert causes["weights"] == 0
    assert causes["output"] == 0
    assert causes["scale"] == 2 * scale
    assert causes["busy"] == 2 * busy
    # Both commands, and nothing but the pipeline's length and the last drain.
    assert outcome.clocks - 2 * (busy + scale) < 32
    if blocks % 2 == 0:
        assert busy == beat_count(64, 32 * blocks, case.fmt).payload // (2 if paired else 1)


@pytest.mark.parametrize("vectors", [8, 16])
@pytest.mark.parametrize("name", ["mxfp4", "mxint8"])
def test_short_rows_are_limited_by_the_drain_alone(run, name, vectors):
    case = CASES[name]
    short, long = (run("ref", [command(case, rows, 1, vectors)])[0] for rows in (64, 128))
    group_rows = 2 if case.fmt is Format.MXFP4 else 1
    drain = 64 * -(-vectors // 8)  # 64 more rows, at one group of eight vectors per clock
    stream = sum(beat_count(64, 32, case.fmt))
    assert long.clocks - short.clocks == max(drain, stream)
    assert long.causes["weights"] == 0
    assert long.causes["busy"] == 128 // group_rows
    assert long.causes["scale"] == 4
    assert (long.causes["output"] > 0) == (drain > stream)


def test_late_beats_count_as_waiting_for_weights(run):
    case = CASES["mxfp4"]
    one = [command(case, 16, 40, 16)]
    outcome, _ = run("ref", one, pauses={"weights": Pauses(burst_rate=4000, burst_clocks=50)})
    assert outcome.causes["weights"] >= 100
    assert outcome.causes["output"] == 0
    assert outcome.causes["busy"] == 320


def test_slow_results_count_as_waiting_for_output(run):
    case = CASES["mxint8"]
    outcome, _ = run("ref", [command(case, 128, 2, 16)], pauses={"results": Pauses(rate=230)})
    assert outcome.causes["output"] > 500
    assert outcome.causes["weights"] == 0
    assert outcome.causes["busy"] == 256


@pytest.mark.parametrize("preset", ["tiny", "ref"])
def test_causes_sum_to_the_elapsed_clocks(run, preset):
    pauses = {name: Pauses(rate=100, seed=7) for name in ("weights", "results", "command")}
    commands = [command(CASES[name], 5, 3, 1) for name in CASES]
    outcome, _ = run(preset, commands, pauses=pauses)
    log = outcome.bench.simulation.log
    nanoseconds = float(re.search(r"play\s+PASS\s+([\d.]+)", log)[1])
    # Two clocks of reset do not count; the run ends half a clock after an edge.
    assert (nanoseconds - 1) / 2 - 2 == sum(outcome.causes.values())
    assert all(outcome.causes[cause] > 0 for cause in ("busy", "scale", "weights", "idle"))
