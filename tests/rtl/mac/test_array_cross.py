"""The whole array on `tiny`: scale extremes x formats x pairing x pauses, and random commands."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import ToolError
from pequin_sim import toolchain
from pequin_sim.campaigns.mac import Batch, Reached, cross_batches, random_batch
from pequin_sim.campaigns.operands import EXTREMES, FORMATS, PAUSES

BATCHES = cross_batches(TileParams(TileConfig.preset("tiny")))


@pytest.fixture(scope="module")
def reached(run_batch):
    """Run the cross, and random commands on top of it."""
    total = Reached()
    for batch in BATCHES:
        total.add(run_batch("tiny", batch))
    rng = np.random.default_rng(17)
    params = TileParams(TileConfig.preset("tiny"))
    for pauses in PAUSES:
        batch = random_batch(params, rng, 2500)
        total.add(run_batch("tiny", Batch(batch.commands, pauses, 5, batch.split)))
    return total


def test_the_cross_is_complete(reached):
    cells = {(str(f), paired, p) for f in FORMATS for paired in (False, True) for p in PAUSES}
    assert set(reached.cross) == cells
    for case in FORMATS:
        wanted = 4 * len(EXTREMES) if case.scaled else 4
        assert reached.cross[str(case), True, "bursts"] >= wanted


@pytest.mark.parametrize("fmt", ["mxfp4", "mxint8"])
def test_every_numeric_condition_was_reached(reached, fmt):
    for event in ("nan", "term_clamped", "result_clamped", "rounded to zero", "zero blocks"):
        assert reached.events[f"{fmt} {event}"] >= 20, event


def test_every_extreme_scale_was_reached_on_both_sides(reached):
    for side in ("weight", "act"):
        for code in EXTREMES:
            assert reached.events[f"{side} scale {code:02x}"] >= 16, (side, code)


@pytest.mark.parametrize(
    "feature",
    ["odd rows", "odd blocks", "paired odd blocks", "partial chunk", "several chunks",
     "one vector", "base above 0", "buffer reused", "top-k", "top-k kept", "random transfers"],
)  # fmt: skip
def test_every_feature_of_commands_was_reached(reached, feature):
    assert reached.events[feature] >= 5


def test_icarus_agrees(run_batch):
    # Icarus knows X; Verilator does not.
    try:
        toolchain.find_icarus()
    except ToolError as missing:
        pytest.skip(str(missing))
    rng = np.random.default_rng(3)
    batch = random_batch(TileParams(TileConfig.preset("tiny")), rng, 200)
    reached = run_batch("tiny", batch, simulator="icarus")
    assert reached.clocks > 100
