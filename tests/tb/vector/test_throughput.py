import pytest

from pequin_tb.vector.throughput import measure


@pytest.fixture(scope="module")
def measured():
    return {m.name: m for m in measure("ref")}


@pytest.mark.parametrize(
    "name", ["copy", "add", "mul", "scale", "exp2", "reciprocal", "rotary", "quantize"]
)
def test_long_vectors_take_a_row_per_clock(measured, name):
    m = measured[name]
    assert m.rows == 2048 // 16
    assert m.clocks <= m.rows / 0.95


def test_chained_residual_takes_one_pass(measured):
    m = measured["residual, sum of squares, quantize"]
    assert m.clocks <= m.rows / 0.95


def test_rms_norm(measured):
    m = measured["rms-norm of 2,880"]
    assert m.clocks <= 2.3 * 180


def test_softmax(measured):
    m = measured["softmax of 1,024"]
    assert m.clocks <= 3.3 * 64
