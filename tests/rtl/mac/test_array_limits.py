"""Full accumulators at K = 8192, and selection over several commands."""

import dataclasses

import numpy as np
import pytest

from pequin_sim.golden.mac import MacFlag
from pequin_sim.golden.topk import top_k
from pequin_sim.mx import Format, MxTensor
from pequin_sim.rtl.mac import Multiply

TOP, BOTTOM = 2**47 - 1, -(2**47)
SUM_ROWS = ("all at the top", "all at the bottom", "half and half", "mixed, in halves of rows")


def extreme_operands(fmt, planes, vectors, blocks):
    """Return operands every one of whose terms is clamped, with signs chosen per row."""
    big = 7 if fmt is Format.MXFP4 else 127
    small = 15 if fmt is Format.MXFP4 else -127
    sign = np.ones((planes, 4, blocks), bool)
    sign[:, 1] = False
    sign[:, 2, blocks // 2 :] = False
    sign[:, 3, ::2] = False
    elements = np.repeat(np.where(sign, big, small), 32, axis=2).astype(np.int8)
    weights = MxTensor(fmt, elements, np.full((planes, 4, blocks), 0xFE, np.uint8))
    acts = MxTensor(
        Format.MXINT8,
        np.full((1, vectors, 32 * blocks), -128, np.int8),
        np.full((1, vectors, blocks), 0xFE, np.uint8),
    )
    return weights, acts


@pytest.mark.parametrize("preset", ["ref", "fpga"])
def test_extreme_terms_of_the_largest_k_do_not_overflow(run, preset):
    commands = []
    columns = 16 if preset == "ref" else 2
    for fmt, planes in ((Format.MXFP4, 2), (Format.MXINT8, 1)):
        for paired in (False, True):
            weights, acts = extreme_operands(fmt, planes, 1 if paired else columns, 256)
            # All blocks are equal: every command finds the buffer as it wants it.
            commands.append(Multiply(weights, acts, paired=paired, load=not commands))
    outcome, golden = run(preset, commands)
    for result, expected, command in zip(outcome.results, golden, commands, strict=True):
        terms = 256 * command.weights.planes
        for row, total in enumerate((terms * BOTTOM, terms * TOP, -terms // 2, -terms // 2)):
            assert (expected.fixed[row] == min(TOP, max(BOTTOM, total))).all(), SUM_ROWS[row]
        assert (result.flags & MacFlag.TERM_CLAMPED).all()
        assert (result.flags[:2] & MacFlag.RESULT_CLAMPED).all()
        assert not (result.flags[2:] & MacFlag.RESULT_CLAMPED).any()
        value = np.float32(-terms / 2 * 2.0**-24)
        assert (result.values_u32[2:].view(np.float32) == value).all()


@pytest.mark.parametrize("preset", ["ref", "fpga", "tiny"])
def test_ties_over_several_commands_go_to_the_lowest_row(run, params_of, preset):
    rng = np.random.default_rng(9)
    columns = params_of(preset).config.columns
    few = rng.integers(0, 16, (3, 64)).astype(np.int8)
    elements = rng.integers(-128, 128, (columns, 64))
    acts = MxTensor.single("mxint8", elements, np.full((columns, 2), 127))
    commands = []
    for first_row in (60, 20, 40):
        elements = few[rng.integers(0, 3, 15)]
        weights = MxTensor.single("mxfp4", elements, np.full((15, 2), 127))
        commands.append(Multiply(weights, acts, top_k=True, first_row=first_row, load=not commands))
    chain = [
        dataclasses.replace(c, select_first=i == 0, select_last=i == 2)
        for i, c in enumerate(commands)
    ]
    between = Multiply(chain[0].weights, acts, load=False)
    again = dataclasses.replace(chain[1], select_first=True, select_last=True)
    outcome, golden = run(preset, [chain[0], between, chain[1], chain[2], again, between])
    assert outcome.results[0].selected is None
    k = params_of(preset).config.top_k
    by_row = np.concatenate([golden[i].values_u32 for i in (2, 3, 0)])
    best = top_k(by_row, k)
    rows = np.concatenate([np.arange(15) + first for first in (20, 40, 60)])
    selected = outcome.results[3].selected
    for v in range(columns):
        assert [index for index, _ in selected[v]] == rows[best.indices[v]].tolist()
    values = best.values_u32.view(np.float32)
    if k > 1:
        assert (values[:, 1:] == values[:, :-1]).any(), "no tie was among the selected"
    assert all(index < 35 for v in outcome.results[4].selected for index, _ in v)
