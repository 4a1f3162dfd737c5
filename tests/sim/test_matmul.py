"""A user's matrices on the array: the cut into runs, the results, the counters, the checks."""

import dataclasses
import shutil

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin.harness.stream_bench import StreamBench
from pequin.mac import lane_decode
from pequin.mac.array import MacArray
from pequin_sim import matmul
from pequin_sim.golden.mac import mac_array
from pequin_sim.layout import beat_count
from pequin_sim.matrices import generate
from pequin_sim.mx import Format, dequantize, quantize, quantize_activations
from pequin_sim.rtl import mac as rtl_mac
from pequin_sim.rtl.designs import cached_design

TINY = TileParams(TileConfig.preset("tiny"))
REF = TileConfig.preset("ref")


@pytest.fixture(scope="module")
def bench():
    return rtl_mac.mac_bench(TINY)


def cover(cut, rows, vectors):
    """Count how often a plan computes each result."""
    seen = np.zeros((rows, vectors), int)
    for part in cut.parts:
        seen[part.rows, part.vectors] += 1
    return seen


@pytest.mark.parametrize("preset", ["tiny", "fpga", "ref", "wide"])
@pytest.mark.parametrize(("fmt", "planes"), [("mxfp4", 1), ("mxfp4", 2), ("mxint8", 1)])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("shape", [(1, 32, 1), (5, 64, 3), (2880, 256, 20), (70001, 256, 2)])
def test_a_plan_computes_every_result_once_within_the_limits(preset, fmt, planes, paired, shape):
    config, fmt = TileConfig.preset(preset), Format(fmt)
    rows, k, vectors = shape
    cut = matmul.plan(config, shape, fmt, planes, paired)
    assert (cover(cut, rows, vectors) == 1).all()
    payload = scale = 0
    for part in cut.parts:
        count = part.rows.stop - part.rows.start
        beats = beat_count(count, k, fmt, planes)
        width = part.vectors.stop - part.vectors.start
        assert width <= (config.columns // 2 if paired else config.columns)
        assert count <= 1 << config.index_bits
        transfers = -(-beats.total // 2) if paired else beats.total
        assert transfers <= rtl_mac.WEIGHT_TRANSFERS
        assert count * -(-width // config.drain_lanes) <= rtl_mac.RESULT_GROUPS
        payload, scale = payload + beats.payload, scale + beats.scale
    assert cut.beats == (payload, scale)


def test_a_plan_fills_its_runs():
    cut = matmul.plan(REF, (2880, 2880, 16), Format.MXFP4)
    # 65,536 transfers hold 685 pairs of rows: 685 * 90 payload beats and a sixteenth of scales.
    assert [part.rows.stop for part in cut.parts] == [1370, 2740, 2880]


@pytest.mark.parametrize(("vectors", "paired"), [(1, True), (8, True), (9, False), (40, False)])
def test_columns_are_paired_when_all_vectors_fit_half_of_them(vectors, paired):
    cut = matmul.plan(REF, (64, 2880, vectors), Format.MXFP4)
    assert cut.paired is paired
    assert cut.rate == (2 if paired else 1)


def test_a_batch_streams_the_weights_again():
    one = matmul.plan(REF, (64, 2880, 16), Format.MXFP4)
    three = matmul.plan(REF, (64, 2880, 33), Format.MXFP4)
    assert len(three.parts) == 3
    assert three.beats.payload == 3 * one.beats.payload


def exact_product(weights, acts, fmt, rule, planes):
    w, x = quantize(weights, fmt, rule, planes), quantize_activations(acts)
    return dequantize(w) @ dequantize(x).T


@pytest.mark.parametrize(
    ("fmt", "planes", "rule"),
    [("mxfp4", 1, "floor"), ("mxfp4", 2, "mse"), ("mxint8", 1, "even")],
)
@pytest.mark.parametrize(
    ("shape", "paired"),
    [((9, 96, 2), False), ((9, 96, 1), True), ((4, 32, 3), True), ((3, 256, 5), None)],
)
def test_rtl_computes_the_product_of_the_quantized_matrices(
    bench, fmt, planes, rule, shape, paired
):
    weights, acts = generate(*shape, seed=3)
    product = matmul.multiply(
        TINY, weights, acts, fmt=fmt, planes=planes, scale_rule=rule, paired=paired, design=bench
    )
    assert product.golden_match is True, product.difference
    exact = exact_product(weights, acts, fmt, rule, planes)
    # Each term is off by at most 2**-25, and fp32 keeps 24 bits.
    bound = planes * shape[1] / 32 * 2.0**-25 + np.abs(exact) * 2.0**-24
    assert product.values.shape == (shape[0], shape[2])
    assert (np.abs(product.values - exact) <= bound).all()


def test_error_is_the_distance_from_float64(bench):
    weights, acts = generate(12, 64, 2, seed=5)
    product = matmul.multiply(TINY, weights, acts, design=bench)
    reference = weights.astype(np.float64) @ acts.astype(np.float64).T
    away = product.values - reference
    assert product.error.max_abs == np.abs(away).max() > 0
    assert product.error.rms == pytest.approx(np.sqrt((away**2).mean()))
    assert product.error.relative == pytest.approx(np.linalg.norm(away) / np.linalg.norm(reference))


def test_more_bits_come_nearer_to_float64():
    weights, acts = generate(64, 256, 2, seed=6)
    options = [("mxfp4", 1), ("mxfp4", 2), ("mxint8", 1)]
    rms = [
        matmul.multiply(TINY, weights, acts, fmt=fmt, planes=planes).error.rms
        for fmt, planes in options
    ]
    assert rms[0] > 4 * rms[1] > 4 * rms[2]


def test_a_product_of_zeros_has_no_relative_error(bench):
    product = matmul.multiply(
        TINY, np.zeros((2, 32), np.float32), np.ones((1, 32), np.float32), design=bench
    )
    assert product.error == matmul.Error(0.0, 0.0, None)
    assert not product.values.any()


def test_counters_add_up_and_only_scale_beats_stall(bench):
    weights, acts = generate(64, 256, 2, seed=7)
    product = matmul.multiply(TINY, weights, acts, design=bench)
    counted = product.counted
    assert counted.busy == counted.payload_beats == 256
    assert counted.stalls == {"scale": 16, "weights": 0, "output": 0}
    assert counted.stall_clocks == 16
    assert counted.clocks == counted.busy + counted.stall_clocks + counted.idle
    assert 0 < counted.idle < 40
    assert product.beat_share == 256 / counted.clocks


def test_pairing_nearly_halves_the_clocks_of_the_same_bits(bench):
    weights, acts = generate(64, 256, 1, seed=8)
    single, double = (
        matmul.multiply(TINY, weights, acts, paired=paired, design=bench)
        for paired in (False, True)
    )
    assert (single.values.view(np.uint32) == double.values.view(np.uint32)).all()
    assert double.counted.busy == single.counted.busy / 2
    assert double.counted.payload_beats == single.counted.payload_beats


def test_short_rows_stall_on_the_drain(bench):
    # A pair of rows of one block arrives every clock and takes 2 rows * 2 vectors to drain.
    weights, acts = generate(128, 32, 2, seed=9)
    product = matmul.multiply(TINY, weights, acts, design=bench)
    assert product.golden_match
    assert product.counted.stalls["output"] > 2 * product.counted.busy


def test_many_runs_give_the_bits_of_one(bench, monkeypatch):
    weights, acts = generate(30, 64, 3, seed=10)
    whole = matmul.multiply(TINY, weights, acts, design=bench)
    monkeypatch.setattr(matmul, "WEIGHT_TRANSFERS", 12)
    steps = []
    cut = matmul.multiply(
        TINY, weights, acts, design=bench, progress=lambda *step: steps.append(step)
    )
    assert len(whole.plan.parts) == 2
    assert len(cut.plan.parts) == 6
    assert steps == [(done, 6) for done in range(7)]
    assert cut.golden_match is True
    assert (cut.values.view(np.uint32) == whole.values.view(np.uint32)).all()
    assert cut.counted.payload_beats == whole.counted.payload_beats == cut.plan.beats.payload


def test_clamped_results_are_counted_and_still_equal(bench):
    weights, acts = generate(6, 64, 2, seed=11)
    product = matmul.multiply(TINY, weights * 1e20, acts * 1e10, design=bench)
    assert product.golden_match is True, product.difference
    assert product.flags["term_clamped"] == 12
    assert product.flags["nan"] == 0


def test_tiny_products_are_counted_as_rounded_to_zero(bench):
    weights, acts = generate(6, 64, 2, seed=11)
    product = matmul.multiply(TINY, weights * 1e-20, acts, design=bench)
    assert product.golden_match is True, product.difference
    assert product.zeros == 6 * 2 * 2


def test_the_golden_backend_has_no_clocks_and_no_verdict(bench):
    weights, acts = generate(9, 96, 2, seed=3)
    alone = matmul.multiply(TINY, weights, acts)
    assert alone.counted is None
    assert alone.golden_match is None
    assert alone.beat_share is None
    simulated = matmul.multiply(TINY, weights, acts, design=bench)
    assert (alone.values == simulated.values).all()


def test_planes_of_mxint8_are_refused():
    weights, acts = generate(2, 32, 1, seed=1)
    with pytest.raises(InputError, match="mxint8 takes planes = 1, not 2"):
        matmul.multiply(TINY, weights, acts, fmt="mxint8", planes=2)


def altered(monkeypatch, change):
    """Let `change` rewrite what the simulation returns."""
    honest = matmul.run_mac
    monkeypatch.setattr(matmul, "run_mac", lambda *a, **k: change(honest(*a, **k)))


def with_result(run, **changes):
    return dataclasses.replace(run, results=[dataclasses.replace(run.results[0], **changes)])


def flip_value(run):
    values = run.results[0].values_u32.copy()
    values[3, 1] ^= 1
    return with_result(run, values_u32=values)


def raise_flag(run):
    flags = run.results[0].flags.copy()
    flags[2, 0] |= 4
    return with_result(run, flags=flags)


def count_zero(run):
    status = run.results[0].status
    return with_result(run, status={**status, "zeros": status["zeros"] + 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip_value, "values differ at row 3, vector 1: "),
        (raise_flag, "flags differ at row 2, vector 0: "),
        (count_zero, "status zeros .*: expected 0, actual 1"),
        (lambda run: dataclasses.replace(run, payload_beats=11), "took 11 payload and 1 scale"),
    ],
)
def test_any_difference_is_found_and_named(bench, monkeypatch, change, message):
    altered(monkeypatch, change)
    weights, acts = generate(8, 96, 2, seed=12)
    product = matmul.multiply(TINY, weights, acts, design=bench)
    assert product.golden_match is False
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(product.difference)


def test_a_status_that_names_the_wrong_place_is_found(bench, monkeypatch):
    weights, acts = generate(6, 64, 2, seed=11)
    weights[4] *= 1e30
    assert matmul.multiply(TINY, weights, acts, design=bench).golden_match is True
    altered(
        monkeypatch,
        lambda run: with_result(run, status={**run.results[0].status, "error_row": 3}),
    )
    product = matmul.multiply(TINY, weights, acts, design=bench)
    assert "status error_row for the rows from 0" in product.difference


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
def test_a_broken_array_is_found(monkeypatch):
    depths = {
        "command": 4, "weights": 64, "activations": 16, "results": 64, "selected": 8, "status": 4,
    }  # fmt: skip
    monkeypatch.setattr(lane_decode, "WEIGHT_OFFSET", 15)
    broken = cached_design(
        "mac_bench",
        TINY,
        lambda: StreamBench(MacArray(TINY), depths=depths, preload=("activations",)),
        variant=f"weight offset 15, {depths}",
    )
    weights, acts = generate(8, 32, 2, seed=12)
    # Icarus compiles this one-off design in a fraction of Verilator's time.
    product = matmul.multiply(TINY, weights, acts, design=broken, simulator="icarus")
    assert product.golden_match is False
    assert product.difference.startswith("values differ at row 0, vector 0")
    golden = mac_array(quantize(weights), quantize_activations(acts))
    assert (product.values != golden.values).all()
