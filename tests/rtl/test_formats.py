"""The hardware's number formats agree with numpy's, code by code."""

import numpy as np
import pytest
from amaranth.hdl import Module, Shape, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.sim import Simulator

from pequin.formats import E2M1, E8M0, MXFP4_BEAT, MXINT8, MXINT8_BEAT, SCALE_BEAT
from pequin_sim import mx
from pequin_sim.layout import pack_weights


def sweep(layout, codes, expression):
    """Return `expression` of every code, as the simulator computes it, and its shape."""
    m = Module()
    element = Signal(layout)
    value = expression(element)
    out = Signal(value.shape())
    m.d.comb += out.eq(value)
    got = []

    async def bench(ctx):
        for code in codes:
            ctx.set(element.as_value(), code)
            await ctx.delay(1e-9)
            got.append(ctx.get(out))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return np.array(got), value.shape()


def test_e2m1_integer_is_twice_the_value():
    got, shape = sweep(E2M1, range(16), lambda e: e.integer)
    np.testing.assert_array_equal(got, 2 * mx.E2M1_VALUES)
    np.testing.assert_array_equal(got, mx.e2m1_integers(np.arange(16)))
    assert shape == signed(5)


def test_e2m1_magnitude():
    got, shape = sweep(E2M1, range(16), lambda e: e.magnitude)
    np.testing.assert_array_equal(got, np.abs(2 * mx.E2M1_VALUES))
    assert shape == unsigned(4)


@pytest.mark.parametrize("code", range(16))
def test_e2m1_fields_spell_the_value(code):
    element = E2M1.from_bits(code)
    if element.exponent:
        magnitude = (1 + element.mantissa / 2) * 2.0 ** (element.exponent - 1)
    else:
        magnitude = element.mantissa / 2
    value = mx.E2M1_VALUES[code]
    assert (-1) ** element.sign * magnitude == value
    assert bool(element.sign) == bool(np.signbit(value))


def test_e8m0_names_nan_alone():
    got, _ = sweep(E8M0, range(256), lambda e: e.is_nan)
    np.testing.assert_array_equal(got == 1, np.isnan(mx.decode_scale(np.arange(256))))


def test_e8m0_field_spells_the_value():
    for code in range(255):
        scale = E8M0.from_bits(code)
        assert 2.0 ** (scale.exponent - E8M0.BIAS) == mx.decode_scale(code)


def test_e8m0_constants_agree():
    assert (E8M0.BIAS, E8M0.NAN) == (mx.SCALE_BIAS, mx.SCALE_NAN)
    assert Shape.cast(E8M0).width == 8


def test_mxint8_integer_and_nibbles():
    codes = np.arange(256)
    expected = codes.astype(np.uint8).view(np.int8)
    got, shape = sweep(MXINT8, codes.tolist(), lambda e: e.integer)
    np.testing.assert_array_equal(got, expected)
    assert shape == signed(8)
    joined, _ = sweep(MXINT8, codes.tolist(), lambda e: 16 * e.high + e.low)
    np.testing.assert_array_equal(joined, expected)
    np.testing.assert_array_equal(mx.decode_mxint8(got.astype(np.int8)), got / 2**6)
    assert MXINT8.FRACTION_BITS == 6


def beat_const(layout, beat):
    return data.Const(layout, int.from_bytes(beat.tobytes(), "little"))


def test_beats_have_the_order_of_the_packed_stream():
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 16, (2, 64))
    scales = rng.integers(0, 256, (2, 2))
    stream = pack_weights(mx.MxTensor.single("mxfp4", codes, scales))
    scale = beat_const(SCALE_BEAT, stream[0])
    for block in range(2):
        payload = beat_const(MXFP4_BEAT, stream[1 + block])
        for row in range(2):
            got = [payload[row][i].as_bits() for i in range(32)]
            assert got == codes[row, 32 * block : 32 * block + 32].tolist()
            assert scale[2 * block + row].exponent == scales[row, block]


def test_int8_beat_has_the_order_of_the_packed_stream():
    rng = np.random.default_rng(6)
    elements = rng.integers(-128, 128, (3, 32))
    stream = pack_weights(mx.MxTensor.single("mxint8", elements, np.zeros((3, 1))))
    for row in range(3):
        payload = beat_const(MXINT8_BEAT, stream[1 + row])
        assert [16 * e.high + e.low for e in payload] == elements[row].tolist()
