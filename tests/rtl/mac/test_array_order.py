"""The same bits for any order, for every preset, and paired or not."""

import dataclasses

import numpy as np

from pequin_sim.campaigns.operands import FORMATS, random_acts, random_weights
from pequin_sim.compare import require_same
from pequin_sim.mx import MxTensor
from pequin_sim.rtl.mac import Multiply

PRESETS = ("tiny", "fpga", "ref")


def permuted(tensor, blocks, rows=None):
    """Return a tensor with its blocks, and its rows, in another order."""
    p, r, k = tensor.elements.shape
    elements = tensor.elements.reshape(p, r, k // 32, 32)[:, :, blocks]
    scales = tensor.scales[:, :, blocks]
    if rows is not None:
        elements, scales = elements[:, rows], scales[:, rows]
    return MxTensor(tensor.fmt, elements.reshape(p, r, k).copy(), scales.copy())


def test_order_of_rows_and_blocks_does_not_matter(run):
    rng = np.random.default_rng(21)
    acts = random_acts(rng, 16, 32)
    order, rows = rng.permutation(32), rng.permutation(41)
    moved = permuted(acts, order)
    plain, shuffled = [], []
    for i, case in enumerate(FORMATS):
        weights = random_weights(rng, case, 41, acts)
        first = Multiply(weights, acts, scaled=case.scaled, load=i == 0)
        plain.append(first)
        shuffled.append(
            dataclasses.replace(first, weights=permuted(weights, order, rows), acts=moved, base=32)
        )
    outcome, _ = run("ref", [*plain, *shuffled])
    half = len(plain)
    flagged = 0
    for before, after in zip(outcome.results[:half], outcome.results[half:], strict=True):
        require_same(before.values_u32[rows], after.values_u32, axes=("row", "vector"))
        require_same(before.flags[rows], after.flags, "flags", axes=("row", "vector"))
        assert before.status["errors"] == after.status["errors"]
        assert before.status["zeros"] == after.status["zeros"]
        flagged += int(np.count_nonzero(before.flags))
    assert flagged > 0


def test_presets_and_pairing_give_the_same_bits(run):
    rng = np.random.default_rng(22)
    acts = random_acts(rng, 1, 5)
    commands = []
    for i, case in enumerate(FORMATS):
        weights = random_weights(rng, case, 9, acts)
        plain = Multiply(weights, acts, scaled=case.scaled, load=i == 0)
        commands += [plain, dataclasses.replace(plain, paired=True, base=5)]
    results = {preset: run(preset, commands)[0].results for preset in PRESETS}
    for i in range(0, len(commands), 2):
        reference = results["ref"][i]
        for preset in PRESETS:
            for other in results[preset][i : i + 2]:
                require_same(reference.values_u32, other.values_u32, preset)
                require_same(reference.flags, other.flags, f"{preset} flags")
                assert reference.status == other.status
