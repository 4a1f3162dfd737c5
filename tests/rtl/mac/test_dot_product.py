"""Dot product: exact sums for both packings and both pipelines."""

import numpy as np
import pytest

from pequin.mac.dot_product import DotProduct
from pequin_sim import mx
from pequin_sim.golden.mac import block_sums

VARIANTS = [(13, True), (13, False), (18, True), (18, False), (24, False)]


def operands(rng, fmt, count):
    """Return group operands [count, 2, 32], activations and the exact sums [count, 2]."""
    acts = rng.integers(-128, 128, (count, 32))
    acts[0], acts[1], acts[2], acts[3] = -128, 127, -128, 0
    if fmt == 0:
        codes = rng.integers(0, 16, (count, 2, 32))
        codes[0], codes[1], codes[2] = 15, 15, 7
        groups = mx.e2m1_integers(codes).astype(np.int64)
        return groups, acts, np.einsum("ngi,ni->ng", groups, acts)
    weights = rng.integers(-128, 128, (count, 32))
    weights[0], weights[1], weights[2] = -128, -128, 127
    groups = np.stack([weights >> 4, weights & 0xF], axis=1)
    return groups, acts, np.einsum("ni,ni->n", weights, acts)[:, None]


def drive(dut, groups, acts, formats):
    packed = (groups[:, 1] + 16 << dut.pack) + groups[:, 0] + 16
    lifted = (acts + 128).astype(np.uint8)
    inputs = {f"operands.lanes.{i}": packed[:, i] for i in range(32)}
    late = [0] * dut.totals_clocks
    inputs |= {f"operands.totals.{g}": [*late, *groups[:, g].sum(axis=1) + 512] for g in range(2)}
    inputs |= {
        "block.elements": [int.from_bytes(row.tobytes(), "little") for row in lifted],
        "block.total": lifted.sum(axis=1, dtype=np.int64),
        "format": formats,
    }
    return inputs


@pytest.mark.parametrize("fmt", [0, 1], ids=["mxfp4", "mxint8"])
@pytest.mark.parametrize(("pack", "pipelined"), VARIANTS)
def test_sums_are_exact(clocked, pack, pipelined, fmt):
    rng = np.random.default_rng(pack + fmt)
    dut = DotProduct(pack=pack, pipelined=pipelined)
    groups, acts, expected = operands(rng, fmt, 60)
    got = clocked(
        dut, drive(dut, groups, acts, [fmt]), ["sums.0", "sums.1"], clocks=60 + dut.latency
    )
    assert dut.latency == (4 if pipelined else 2)
    for g in range(expected.shape[1]):
        np.testing.assert_array_equal(got[f"sums.{g}"][dut.latency :], expected[:, g])
    assert np.abs(expected).max() == (2**19 if fmt else 32 * 12 * 128)


@pytest.mark.parametrize(("pack", "pipelined"), VARIANTS[:4])
def test_formats_may_change_every_clock(clocked, pack, pipelined):
    rng = np.random.default_rng(3)
    dut = DotProduct(pack=pack, pipelined=pipelined)
    fp4, int8 = operands(rng, 0, 40), operands(rng, 1, 40)
    formats = rng.integers(0, 2, 40)
    groups = np.where(formats[:, None, None] == 1, int8[0], fp4[0])
    acts = np.where(formats[:, None] == 1, int8[1], fp4[1])
    got = clocked(dut, drive(dut, groups, acts, formats), ["sums.0"], clocks=40 + dut.latency)
    expected = np.where(formats == 1, int8[2][:, 0], fp4[2][:, 0])
    np.testing.assert_array_equal(got["sums.0"][dut.latency :], expected)


def test_reference_sums_equal_the_golden_model():
    rng = np.random.default_rng(1)
    groups, acts, expected = operands(rng, 0, 5)
    for i in range(5):
        golden = block_sums(groups[i].astype(np.int8), acts[i : i + 1].astype(np.int8))
        np.testing.assert_array_equal(golden[0, :, 0], expected[i])
