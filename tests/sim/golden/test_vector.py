import ml_dtypes
import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim.golden import fp32
from pequin_sim.golden.vector import (
    Status,
    VectorCommand,
    VectorMachine,
    dequantize,
    quantize_value,
)
from pequin_sim.golden.vector_sum import fixed_sum, fixed_terms, sum_to_fp32

PARAMS = TileParams(TileConfig.preset("ref"))


def machine(*vectors):
    """A machine with each vector at a multiple of 4,096."""
    m = VectorMachine(PARAMS)
    for i, vector in enumerate(vectors):
        m.memory[4096 * i : 4096 * i + len(vector)] = vector
    return m


def bits(x):
    return int(np.float32(x).view(np.uint32))


def test_rms_norm_against_float64():
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(2880) * 3).astype(np.float32)
    m = machine(x)
    m.run(
        [
            VectorCommand(op="set_scalar", out=0, immediate=bits(1 / 2880)),
            VectorCommand(op="set_scalar", out=1, immediate=bits(1e-5)),
            VectorCommand(
                length=2880,
                factor="square",
                reduce="sum",
                out=2,
                multiplier=0,
                addend=1,
                finish="rsqrt",
            ),
            VectorCommand(length=2880, s1=2, dst=8192, store=True),
        ]
    )
    exact = x.astype(np.float64)
    exact /= np.sqrt(np.mean(exact**2) + 1e-5)
    assert np.allclose(m.memory[8192 : 8192 + 2880], exact, rtol=2.0**-20, atol=0)


@pytest.mark.parametrize("sink", [None, 4.0])
def test_softmax_against_float64(sink):
    rng = np.random.default_rng(2)
    scores = (rng.standard_normal(1024) * 4).astype(np.float32)
    m = machine(scores)
    first, last = 100, 901
    m.scalars[7] = -np.inf if sink is None else sink
    m.run(
        [
            VectorCommand(op="set_limits", immediate=first | last << 16),
            VectorCommand(length=1024, limits=True, reduce="max", start=True, s3=7, out=0),
            # exp2(sink - max), which joins the sum.
            VectorCommand(op="set_scalar", out=3, immediate=bits(-1)),
            VectorCommand(op="scalar", s1=0, multiplier=3, addend=7, finish="exp2", out=1),
            VectorCommand(
                length=1024,
                limits=True,
                s2=0,
                minus_s2=True,
                function="exp2",
                reduce="sum",
                addend=1,
                finish="reciprocal",
                out=2,
                dst=8192,
                store=True,
            ),
            VectorCommand(length=1024, a=8192, s1=2, dst=12288, store=True),
        ]
    )
    live = scores[first:last].astype(np.float64)
    top = max(live.max(), -np.inf if sink is None else sink)
    p = np.exp2(live - top)
    total = p.sum() + (0 if sink is None else np.exp2(sink - top))
    result = m.memory[12288 : 12288 + 1024]
    assert np.allclose(result[first:last], p / total, rtol=2.0**-19)
    assert not result[:first].any()
    assert not result[last:].any()


def test_swiglu_against_float64():
    rng = np.random.default_rng(3)
    gate, value = rng.standard_normal((2, 2048)).astype(np.float32) * 4
    m = machine(gate, value)
    m.scalars[0], m.scalars[1] = -np.log2(np.e), 1
    m.run(
        [
            VectorCommand(length=2048, s1=0, function="exp2", dst=8192, store=True),
            VectorCommand(
                length=2048,
                a=8192,
                s2=1,
                function="reciprocal",
                factor="b",
                b=0,
                dst=8192,
                store=True,
            ),
            VectorCommand(op="mul", length=2048, a=8192, b=4096, dst=12288, store=True),
        ]
    )
    exact = gate / (1 + np.exp(-gate.astype(np.float64))) * value
    assert np.allclose(m.memory[12288 : 12288 + 2048], exact, rtol=2.0**-18)


@pytest.mark.parametrize(("op", "apart"), [("rotary", 1), ("rotary", 8), ("rotary_half", 64)])
def test_rotary_is_a_complex_product(op, apart):
    rng = np.random.default_rng(4)
    x = rng.standard_normal(128).astype(np.float32)
    place = np.arange(128)
    first = place[place // apart % 2 == 0]
    angle = rng.uniform(0, 100, 64)
    table = np.empty(128, np.float32)
    table[first], table[first + apart] = np.cos(angle), np.sin(angle)
    m = machine(x, table)
    distance = apart.bit_length() - 1 if op == "rotary" else 0
    m.run([VectorCommand(op=op, length=128, b=4096, distance=distance, dst=8192, store=True)])
    turned = (x[first] + 1j * x[first + apart]) * np.exp(1j * angle)
    result = m.memory[8192:8320]
    assert np.allclose(result[first] + 1j * result[first + apart], turned, atol=1e-5)


def test_quantized_elements_against_ml_dtypes_style_rounding():
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(256) * np.exp2(rng.integers(-20, 20, 256))).astype(np.float32)
    m = machine(x)
    m.run([VectorCommand(length=256, quantize="activations", column=3, address=5)])
    assert [w.address for w in m.activations] == list(range(5, 13))
    for w, block in zip(m.activations, x.reshape(-1, 32), strict=True):
        scale = np.array(w.scale, np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
        top = np.abs(block.astype(np.float64)).max()
        assert scale <= top < 2 * scale
        elements = np.frombuffer(w.elements, np.int8).astype(np.float64)
        error = np.abs(elements / 64 * scale - block)
        assert (error <= scale / 128 + (np.abs(elements) == 127) * scale / 64).all()
        assert np.array_equal(
            dequantize(w.elements, w.scale), (elements / 64 * scale).astype(np.float32)
        )


def test_values_share_one_scale():
    x = np.float32([1.0, -0.5, 3.99, 1e-9] + [0.25] * 60)
    elements, scale = quantize_value(x)
    assert scale == 128
    assert np.frombuffer(elements, np.int8)[:4].tolist() == [32, -16, 127, 0]


def test_sums_do_not_depend_on_order_and_are_exact():
    rng = np.random.default_rng(6)
    x = (rng.standard_normal(5000) * np.exp2(rng.integers(-40, 28, 5000))).astype(np.float32)
    terms, overflow = fixed_terms(x)
    assert not overflow.any()
    total = fixed_sum(terms)
    assert total == sum(int(t) for t in rng.permutation(terms))
    assert abs(total / 2**32 - np.sum(x.astype(np.float64))) <= 5000 * 2.0**-33 + 1e-3
    assert sum_to_fp32(total) == np.float32(total / 2**32)
    assert fixed_terms(np.float32(2.0**31))[1]
    # Half a unit rounds up, towards plus infinity.
    assert fixed_terms(np.float32([2.0**-33, -(2.0**-33)]))[0].tolist() == [1, 0]


def test_arg_max_takes_the_lowest_place_of_a_tie():
    x = np.float32([1, 5, -0.0, 5, 4, np.float32(4)])
    m = machine(x)
    found = m.run([VectorCommand(length=6, reduce="arg_max", rank=3)])
    assert [r.index for r in found[:-1]] == [1, 3, 4, 5]


def test_errors_and_events():
    m = machine(np.float32([np.inf, 1]))
    cases = [
        (VectorCommand(length=0), Status.LENGTH),
        (VectorCommand(vectors=0, op="set_scalar"), Status.LENGTH),
        (VectorCommand(a=16), Status.RANGE),
        (VectorCommand(a=(1 << 18) - 32, length=33), Status.RANGE),
        (VectorCommand(function="rsqrt"), Status.OPCODE),
        (VectorCommand(length=2, dst=4096, store=True), Status.NOT_FINITE),
        (VectorCommand(a=4096, function="reciprocal"), Status.NOT_FINITE),
    ]
    for command, status in cases:
        assert m.execute(command)[-1].status == status, command


def test_races_are_refused():
    m = machine()
    with pytest.raises(InputError, match="writes elements 32 to 95 and reads operand a there"):
        m.execute(VectorCommand(length=64, a=0, dst=32, store=True, tag=9))
    with pytest.raises(InputError, match="writes scalars 3 to 3 and reads addend there"):
        m.execute(VectorCommand(reduce="sum", out=3, addend=3))


def test_subnormals_in_memory_are_flushed():
    m = machine(np.float32([1e-41]))
    m.execute(VectorCommand(dst=64, store=True))
    assert fp32.to_bits(m.memory[64]) == 0
