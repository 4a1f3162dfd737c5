import itertools
import random

import numpy as np
import pytest
from amaranth.sim import Simulator

from pequin.hbm.ecc import COLUMNS, EccDecoder
from pequin_sim.hbm.codes import check_bytes, columns


def _encode(word):
    data = np.frombuffer(word.to_bytes(32, "little"), np.uint8)
    return int.from_bytes(check_bytes(data.reshape(1, 32)).tobytes(), "little")


def _decode(cases):
    dut, results = EccDecoder(), []

    async def process(ctx):
        for data, check in cases:
            ctx.set(dut.data, data)
            ctx.set(dut.check, check)
            await ctx.delay(1e-9)
            results.append(tuple(ctx.get(s) for s in (dut.fixed, dut.single, dut.double)))

    simulator = Simulator(dut)
    simulator.add_testbench(process)
    simulator.run()
    return results


def test_columns_are_distinct_and_odd():
    assert list(COLUMNS) == columns()
    assert len(set(COLUMNS)) == 64
    assert all(column.bit_count() % 2 for column in COLUMNS)


def test_every_single_error_of_a_beat_is_corrected():
    data = random.Random(1).getrandbits(256)
    check = _encode(data)
    cases = [(data, check)]
    cases += [(data ^ 1 << bit, check) for bit in range(256)]
    cases += [(data, check ^ 1 << bit) for bit in range(32)]
    results = _decode(cases)
    assert results[0] == (data, 0, 0)
    assert all(result == (data, 1, 0) for result in results[1:])


@pytest.mark.parametrize("word", range(4))
def test_every_double_error_of_a_word_is_told(word):
    data = random.Random(word).getrandbits(256)
    check = _encode(data)
    bits = [64 * word + b for b in range(64)] + [256 + 8 * word + b for b in range(8)]
    pairs = list(itertools.combinations(bits, 2))
    whole = data | check << 256
    cases = [whole ^ 1 << a ^ 1 << b for a, b in pairs]
    results = _decode([(case & (1 << 256) - 1, case >> 256) for case in cases])
    assert all(result == (0, 0, 1) for result in results)


def test_errors_in_different_words_are_all_corrected():
    data = random.Random(9).getrandbits(256)
    check = _encode(data)
    flipped = data ^ 1 << 3 ^ 1 << 70 ^ 1 << 200
    assert _decode([(flipped, check ^ 1 << 17)]) == [(data, 1, 0)]


def test_a_store_of_zeros_is_valid():
    assert _decode([(0, 0)]) == [(0, 0, 0)]
