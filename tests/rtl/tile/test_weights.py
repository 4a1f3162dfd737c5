"""WeightSelect: the beats of each command from its source, in the order of the commands."""

import numpy as np
import pytest

from pequin.tile.weights import IN_FLIGHT, WeightSelect


class Beats:
    """Give beats numbers, pack them into transfers, and take transfers apart again."""

    def __init__(self, rng):
        self.rng, self.number = rng, 0

    def take(self, count):
        first, self.number = self.number, self.number + count
        return list(range(first, first + count))

    def transfers(self, beats, two):
        """Return transfers of one or two; the second beat of a single one is noise."""
        made, at = [], 0
        while at < len(beats):
            pair = len(beats) - at > 1 and self.rng.random() < two
            given = beats[at : at + 1 + pair]
            made.append({"beats": [given[0], given[-1] if pair else 1 << 255], "two": int(pair)})
            at += len(given)
        return made


def play(sim, commands, *, two, rates, seed):
    """Send commands (source, beats); return what came out, with what was expected."""
    rng = np.random.default_rng(seed)
    dut, beats = WeightSelect(), Beats(rng)
    given = [(kv, beats.take(count)) for kv, count in commands]
    from_fifo = [n for kv, numbers in given if not kv for n in numbers]
    kv_transfers = [beats.transfers(numbers, two) for kv, numbers in given if kv]
    last = [[i + 1 == len(t) for i in range(len(t))] for t in kv_transfers]
    last = [flag for flags in last for flag in flags]
    kv = sim.Source(dut.kv, [t for transfers in kv_transfers for t in transfers], rate=rates[0])
    parts = [
        sim.Source(dut.source, [kv for kv, _ in commands], rate=rates[1]),
        sim.Source(dut.beats, [count for kv, count in commands if not kv], rate=rates[2]),
        sim.Source(dut.fifo, beats.transfers(from_fifo, two), rate=rates[0]),
        kv,
    ]
    got = []

    def beats_of(item):
        return item["beats"][: 1 + item["two"]]

    output = sim.Sink(
        dut.output,
        rate=rates[3],
        answer=lambda item: got.append(beats_of(item)),
        relevant=beats_of,
    )
    expected = [n for _, numbers in given for n in numbers]

    def each(ctx, clock):
        ctx.set(dut.kv_last, last[min(kv.sent, len(last) - 1)] if last else 0)
        # Whoever waits has nothing to give.
        assert not (ctx.get(dut.waiting) and ctx.get(dut.output.valid))

    clocks = sim.run(
        dut,
        [*parts, output],
        seed=seed,
        each=each,
        clocks=40 * len(expected) + 200,
        until=lambda: sum(map(len, got)) >= len(expected),
    )
    assert [n for item in got for n in item] == expected
    assert all(not part.items for part in parts)
    return got, given, clocks


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("two", [0.0, 0.5, 1.0])
def test_random_commands(sim, seed, two):
    rng = np.random.default_rng(100 + seed)
    commands = [
        (int(rng.integers(2)), int(rng.choice([1, 1, 2, 3, 4, 5, 8, 11]))) for _ in range(40)
    ]
    rates = rng.choice([0.2, 0.6, 1.0], size=4)
    got, given, _ = play(sim, commands, two=two, rates=rates, seed=seed)
    ends = np.cumsum([len(numbers) for _, numbers in given])
    at = 0
    for item in got:
        # No transfer joins two commands.
        assert not any(at < end < at + len(item) for end in ends)
        at += len(item)


@pytest.mark.parametrize(
    "commands",
    [
        [(0, 1)] * 9,
        [(1, 1)] * 9,
        [(0, 1), (1, 1)] * 8,
        [(0, 3), (0, 3), (0, 1), (0, 2), (0, 3)],
        [(0, 3), (1, 5), (1, 2), (0, 3), (0, 2)],
        [(0, 1), (0, 2), (1, 4), (0, 4), (0, 1)],
    ],
    ids=["fifo-ones", "kv-ones", "alternating-ones", "odd", "kept-over-kv", "kept-then-even"],
)
def test_ends_and_beginnings_in_one_transfer(sim, commands):
    play(sim, commands, two=1.0, rates=[1.0] * 4, seed=1)


def test_two_beats_in_every_clock(sim):
    # Even commands that are known early: no clock is lost between them.
    _, _, clocks = play(sim, [(0, 16), (1, 16)] * 4, two=1.0, rates=[1.0] * 4, seed=2)
    assert clocks <= 64 + 3


def test_commands_are_known_ahead_while_nothing_comes(sim):
    dut = WeightSelect()
    source = sim.Source(dut.source, [0] * 2 * IN_FLIGHT, rate=1)
    beats = sim.Source(dut.beats, [3] * 2 * IN_FLIGHT, rate=1)
    waiting = []

    def each(ctx, clock):
        waiting.append((ctx.get(dut.waiting), ctx.get(dut.waits_for_kv)))

    sim.run(dut, [source, beats, sim.Sink(dut.output)], each=each, clocks=3 * IN_FLIGHT)
    assert source.sent == beats.sent == IN_FLIGHT + 1
    assert waiting[-1] == (1, 0)


def test_waits_for_kv_and_for_a_count(sim):
    dut = WeightSelect()
    source = sim.Source(dut.source, [1], rate=1)
    seen = []

    def each(ctx, clock):
        seen.append((ctx.get(dut.waiting), ctx.get(dut.waits_for_kv)))

    sim.run(dut, [source], each=each, clocks=10)
    assert seen[-1] == (1, 1)
    # A command whose count is not known yet is not begun.
    dut = WeightSelect()
    source = sim.Source(dut.source, [0], rate=1)
    fifo = sim.Source(dut.fifo, [{"beats": [1, 2], "two": 1}], rate=1)
    output = sim.Sink(dut.output, rate=1)
    sim.run(dut, [source, fifo, output], clocks=10)
    assert not output.got
    assert not fifo.sent
