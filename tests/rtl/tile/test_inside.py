"""ActivationAccess and ScalarAccess against models of the buffers behind them."""

import numpy as np
import pytest

from pequin.tile.inside import ActivationAccess, ScalarAccess
from pequin.tile.types import ErrorCode


class Array:
    """The array's side: a buffer of blocks that can be looked at while there is no work.

    `peeked` follows the address two clocks later; nothing is said about it without `peek`.
    """

    def __init__(self, sim, dut, params, rate):
        self.dut, self.params = dut, params
        self.writes = sim.Sink(dut.output, rate=rate, answer=self.write)
        self.blocks, self.order = {}, []
        self.pipe = [None, None]

    def write(self, item):
        place = item["column"], item["address"]
        self.order.append((*place, item["elements"], item["scale"]))
        self.blocks[place] = item["elements"] | item["scale"] << 256

    def drive(self, ctx, rng):
        place = self.pipe.pop(0)
        noise = int.from_bytes(rng.bytes(33), "little")
        ctx.set(self.dut.peeked, noise if place is None else self.blocks.get(place, 0))

    def sample(self, ctx, clock):
        dut = self.dut
        place = (ctx.get(dut.peek_column), ctx.get(dut.peek_address))
        self.pipe.append(place if ctx.get(dut.peek) else None)

    @property
    def parts(self):
        return [self, self.writes]


def random_accesses(rng, params, count):
    c = params.config
    beats = 2 * c.columns * c.act_blocks
    near = [0, 1, 2, 3, 2 * c.act_blocks, 2 * c.act_blocks - 1, beats - 2, beats - 1]
    return [
        {
            "write": int(rng.integers(2)),
            "address": int(rng.choice(near)),
            "data": int.from_bytes(rng.bytes(32), "little"),
        }
        for _ in range(count)
    ]


def golden(params, accesses, busy):
    """Return the answers (error, data of a read) by docs/isa.md and the blocks that are written."""
    depth, elements, blocks, answers, writes = params.config.act_blocks, 0, {}, [], []
    for access, occupied in zip(accesses, busy, strict=True):
        number, is_scale = divmod(access["address"], 2)
        place = divmod(number, depth)
        if access["write"]:
            if is_scale:
                scale = access["data"] & 0xFF
                blocks[place] = (elements, scale)
                writes.append((*place, elements, scale))
            else:
                elements = access["data"]
            answers.append((0, None))
        elif occupied:
            answers.append((ErrorCode.BUSY.value, 0))
        else:
            answers.append((0, blocks.get(place, (0, 0))[is_scale]))
    return answers, writes


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("rates", [(1, 1, 1), (0.5, 0.4, 0.3)])
def test_activations(sim, params_of, preset, rates):
    params, rng = params_of(preset), np.random.default_rng(51)
    dut = ActivationAccess(params)
    given = random_accesses(rng, params, 120)
    access = sim.Source(dut.access, list(given), rate=rates[0])
    answer, array = sim.Sink(dut.answer, rate=rates[1]), Array(sim, dut, params, rates[2])
    busy = [int(n) for n in rng.random(4000) < 0.3]

    def each(ctx, clock):
        ctx.set(dut.busy, busy[clock])
        # Nobody looks into a buffer that is read.
        if clock and busy[clock - 1] and not peeking[-1]:
            assert not ctx.get(dut.peek)
        peeking.append(ctx.get(dut.peek))

    peeking = []
    sim.run(
        dut,
        [access, answer, *array.parts],
        seed=5,
        each=each,
        clocks=4000,
        until=lambda: len(answer.got) == len(given),
    )
    # `busy` counts in the clock after the access was accepted.
    occupied = [busy[clock + 1] for clock in access.clocks]
    answers, writes = golden(params, given, occupied)
    got = [(item["error"], item["data"]) for item in answer.got]
    expected = [
        (error, item["data"] if data is None else data)
        for (error, data), item in zip(answers, answer.got, strict=True)
    ]
    assert got == expected
    assert array.order == writes
    assert sum(error == ErrorCode.BUSY.value for error, _ in answers) > 5
    assert sum(data not in (None, 0) for _, data in answers) > 5


def vector_writes(rng, params, count):
    c = params.config
    return [
        {
            "column": int(rng.integers(c.columns)),
            "address": int(rng.integers(c.act_blocks)),
            "elements": n << 100,
            "scale": 200,
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("rates", [(1, 1), (0.3, 0.3), (0.9, 0.4)])
def test_writes_of_the_vector_unit_pass(sim, params_of, rates):
    params, rng = params_of("tiny"), np.random.default_rng(61)
    dut = ActivationAccess(params)
    given = vector_writes(rng, params, 100)
    host = [
        {"write": 1, "address": 2 * n + part, "data": 1 << 255 | n if part == 0 else 7}
        for n in range(8)
        for part in range(2)
    ]
    vector = sim.Source(dut.vector, list(given), rate=rates[0])
    access = sim.Source(dut.access, list(host), rate=1)
    answer = sim.Sink(dut.answer, rate=1)
    array = Array(sim, dut, params, rates[1])
    # The array's sink checks that no offered write changes.
    sim.run(
        dut,
        [vector, access, answer, *array.parts],
        seed=6,
        clocks=3000,
        until=lambda: len(answer.got) == 16 and len(array.order) == 108,
    )
    passed = [w for w in array.order if w[3] == 200]
    assert passed == [tuple(w.values()) for w in given]
    assert [w for w in array.order if w[3] == 7] == [(0, n, 1 << 255 | n, 7) for n in range(8)]


def test_the_host_waits_while_the_vector_unit_writes(sim, params_of):
    params = params_of("tiny")
    dut = ActivationAccess(params)
    vector = sim.Source(dut.vector, vector_writes(np.random.default_rng(0), params, 30), rate=1)
    access = sim.Source(dut.access, [{"write": 1, "address": 1, "data": 9}], rate=1)
    answer, array = sim.Sink(dut.answer, rate=1), Array(sim, dut, params, 1)
    sim.run(dut, [vector, access, answer, *array.parts], clocks=50)
    assert vector.clocks == list(range(30))
    assert array.writes.clocks == list(range(31))
    assert answer.clocks == [31]


def test_timing_of_activations(sim, params_of):
    params = params_of("tiny")
    dut = ActivationAccess(params)
    access = sim.Source(dut.access, [{"write": 0, "address": 4, "data": 0}] * 3, rate=1)
    answer, array = sim.Sink(dut.answer, rate=1), Array(sim, dut, params, 1)
    peeks = []

    def after(ctx, clock):
        if ctx.get(dut.peek):
            peeks.append(clock)

    sim.run(dut, [access, answer, *array.parts], after=after, clocks=30)
    assert answer.clocks == [clock + 5 for clock in access.clocks]
    # The buffer is free again four clocks after `busy` was looked at.
    assert peeks[:3] == [2, 3, 4]
    assert max(peeks) - access.clocks[-1] == 4


class Scalars:
    """Scalar registers that are read in the same clock."""

    def __init__(self, dut, values):
        self.dut, self.values = dut, values

    def drive(self, ctx, rng):
        ctx.set(self.dut.peeked, self.values[ctx.get(self.dut.peek_index)])

    def sample(self, ctx, clock):
        pass


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("rates", [(1, 1), (0.4, 0.4)])
def test_scalars(sim, params_of, preset, rates):
    params, rng = params_of(preset), np.random.default_rng(71)
    dut = ScalarAccess(params)
    count = params.config.scalars
    values = [int(n) for n in rng.integers(1 << 32, size=count)]
    given = [
        {"write": int(rng.random() < 0.2), "address": n % (count // 8), "data": 5}
        for n in range(40)
    ]
    access = sim.Source(dut.access, list(given), rate=rates[0])
    answer = sim.Sink(dut.answer, rate=rates[1])
    sim.run(
        dut,
        [access, answer, Scalars(dut, values)],
        clocks=2000,
        until=lambda: len(answer.got) == len(given),
    )
    for request, got in zip(given, answer.got, strict=True):
        if request["write"]:
            assert got["error"] == ErrorCode.ACCESS.value
            continue
        first = 8 * request["address"]
        beat = sum(value << 32 * i for i, value in enumerate(values[first : first + 8]))
        assert got == {"error": 0, "data": beat}


def test_timing_of_scalars(sim, params_of):
    dut = ScalarAccess(params_of("tiny"))
    access = sim.Source(dut.access, [{"write": 0, "address": 1, "data": 0}] * 2, rate=1)
    answer = sim.Sink(dut.answer, rate=1)
    sim.run(dut, [access, answer, Scalars(dut, [3] * 16)], clocks=40)
    assert answer.clocks == [clock + 9 for clock in access.clocks]
