import random

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator

from pequin.fp32.types import add_or_subtract, negated, out_of_range, rounded


def settle(m, inputs, outputs, cases):
    """Return the outputs for each case of inputs, all combinational."""
    seen = []

    async def bench(ctx):
        for case in cases:
            for signal, value in zip(inputs, case, strict=True):
                ctx.set(signal, value)
            await ctx.delay(1e-9)
            seen.append(tuple(ctx.get(o) for o in outputs))

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()
    return seen


@pytest.mark.parametrize("width", [10, 11])
def test_out_of_range(width):
    m = Module()
    exponent, below, above = Signal(signed(width)), Signal(), Signal()
    m.d.comb += [o.eq(v) for o, v in zip((below, above), out_of_range(exponent), strict=True)]
    cases = [(e,) for e in range(-(1 << (width - 1)), 1 << (width - 1))]
    assert settle(m, [exponent], [below, above], cases) == [(e < 1, e > 254) for (e,) in cases]


def test_rounding_carries_into_the_exponent():
    m = Module()
    exponent, fraction, up, out = Signal(signed(10)), Signal(23), Signal(), Signal(31)
    m.d.comb += out.eq(rounded(m, exponent, fraction, up))
    full = (1 << 23) - 1
    cases = [(127, 5, 0), (127, 5, 1), (127, full, 0), (127, full, 1), (254, full, 1), (1, 0, 1)]
    expected = [((e << 23) + f + u,) for e, f, u in cases]
    assert expected[4] == (0x7F800000,)
    assert settle(m, [exponent, fraction, up], [out], cases) == expected


def test_one_chain_adds_subtracts_and_negates():
    m = Module()
    a, b, minus = Signal(12), Signal(9), Signal()
    total, negative = Signal(12), Signal(12)
    m.d.comb += [total.eq(add_or_subtract(a, b, minus)), negative.eq(negated(b, minus, 12))]
    draw = random.Random(1)
    cases = [(draw.getrandbits(12), draw.getrandbits(9), draw.getrandbits(1)) for _ in range(300)]
    cases += [(0, 511, 1), (4095, 1, 0), (7, 0, 1)]
    expected = [((a - b if s else a + b) & 0xFFF, (-b if s else b) & 0xFFF) for a, b, s in cases]
    assert settle(m, [a, b, minus], [total, negative], cases) == expected
