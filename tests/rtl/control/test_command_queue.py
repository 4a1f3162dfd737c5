"""Command queues against a Python expansion: loops, waits, signals, pauses, faults, timing."""

import itertools
import random

import pytest
from amaranth.hdl import ClockDomain, Module, ResetInserter, Signal, Value
from amaranth.sim import Simulator

from pequin.control.command_queue import CommandQueue
from pequin.control.types import IN_FLIGHT, QueueCause
from pequin.errors import ConfigError
from pequin.tile.types import UnitId

MASK = 0xFFFFFFFF
WORDS = {1: 6, 2: 2, 3: 5, 4: 14, 5: 14, 6: 5}
STRIDED = {1: (3, 5), 2: (0,), 3: (1,), 6: (1, 2)}
STRIDED |= dict.fromkeys((4, 5), (2, 3, 4, 8, 10, 11, 13))


def launch_word(levels=0, signal=None, wait_a=None, wait_b=None, rest=0):
    """Return a launch word; semaphores are pairs of number and whether for each command."""
    word = levels | rest
    for low, part in ((2, signal), (10, wait_a), (18, wait_b)):
        if part is not None:
            word |= (1 | part[0] << 1 | int(part[1]) << 7) << low
    return word


def expand(unit, registers, word):
    """Return a launch's commands: semaphores to take, words, semaphore to signal."""
    levels = word & 3
    parts = [(word >> low & 1, word >> low + 1 & 31, word >> low + 7 & 1) for low in (2, 10, 18)]
    (signals, number, signal_each), *waits = parts
    counts = [registers.get(16 * level + 15, 1) for level in range(levels, 0, -1)]
    commands = []
    for place in itertools.product(*(range(count) for count in counts)):
        words = [registers.get(w, 0) for w in range(WORDS[unit])]
        for w in STRIDED[unit]:
            for level, i in zip(range(levels, 0, -1), place, strict=True):
                words[w] += i * registers.get(16 * level + w, 0)
        takes = [n for use, n, each in waits if use and (each or not commands)]
        commands.append([takes, [w & MASK for w in words], number if signal_each else None])
    if signals and not signal_each:
        commands[-1][2] = number
    if not signals:
        for command in commands:
            command[2] = None
    return commands


class QueueBench:
    """A queue between a giver of items, a unit and semaphores that pause at random.

    `log` has what happened in order: takes, commands, completions with signals, items. `supply`
    is the chance in a clock that what is asked for can be taken.
    """

    def __init__(self, unit, params, *, seed=0, pause=0.0, supply=1.0, latency=0):
        self.dut, self.reset = CommandQueue(unit, params), Signal()
        self.random, self.pause, self.supply, self.latency = (
            random.Random(seed),
            pause,
            supply,
            latency,
        )
        self.log, self.causes, self.faults, self.signal_pcs = [], [], [], []
        self.in_flight, self.clock, self.stop_done = [], 0, False

    def run(self, script):
        """Run an async function of this bench and a simulator's context."""
        top = Module()
        top.domains.sync = ClockDomain()
        top.submodules.dut = ResetInserter(self.reset)(self.dut)

        async def bench(ctx):
            await script(self, ctx)

        simulator = Simulator(top)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
        return self

    async def restart(self, ctx):
        """Reset the queue for a clock."""
        ctx.set(self.reset, 1)
        ctx.set(self.dut.items.valid, 0)
        ctx.set(self.dut.command.ready, 0)
        ctx.set(self.dut.done, 0)
        await ctx.tick()
        ctx.set(self.reset, 0)
        self.in_flight.clear()

    async def give(self, ctx, items):
        """Give items (launch, register, value, pc) as the queue takes them."""
        for launch, register, value, pc in items:
            while self.random.random() < self.pause:
                await self.tick(ctx, None)
            raw = launch | register << 1 | value << 9 | pc << 41
            while not await self.tick(ctx, raw):
                pass

    async def drain(self, ctx, limit=20_000):
        """Let the queue work until nothing is pending."""
        for _ in range(limit):
            if not ctx.get(self.dut.pending):
                return
            await self.tick(ctx, None)
        pytest.fail("the queue does not end")

    async def tick(self, ctx, raw):
        """One clock; return whether the offered item was taken."""
        dut, chance = self.dut, self.random.random
        ctx.set(dut.items.valid, raw is not None)
        if raw is not None:
            ctx.set(Value.cast(dut.items.payload), raw)
        due = self.in_flight and self.in_flight[0] <= self.clock and not self.stop_done
        ctx.set(dut.done, bool(due) and chance() >= self.pause)
        take_valid, take = ctx.get(dut.take_valid), dut.take
        ctx.set(dut.taken, take_valid and chance() < self.supply)
        ctx.set(dut.lacks, 11)
        ctx.set(dut.command.ready, chance() >= self.pause)
        taken, valid = ctx.get(dut.taken), ctx.get(dut.command.valid)
        assert ctx.get(dut.waiting) == (take_valid and not taken)
        assert not ctx.get(dut.waiting) or ctx.get(dut.waiting_for) == 11
        if ctx.get(dut.done):
            self.in_flight.pop(0)
            signal = ctx.get(dut.signal) if ctx.get(dut.signal_valid) else None
            self.log.append(("done", signal, ctx.get(dut.pc)))
        else:
            assert not ctx.get(dut.signal_valid)
        if taken:
            pairs = ((take.use_first, take.first), (take.use_second, take.second))
            self.log.append(("take", [ctx.get(n) for use, n in pairs if ctx.get(use)]))
        if valid and ctx.get(dut.command.ready):
            raw_command = ctx.get(Value.cast(dut.command.payload))
            count = len(Value.cast(dut.command.payload)) // 32
            words = [raw_command >> 32 * w & MASK for w in range(count)]
            self.log.append(("command", words, self.clock))
            self.in_flight.append(self.clock + 1 + self.latency)
            assert len(self.in_flight) <= IN_FLIGHT
        if ctx.get(dut.fault_valid):
            code = ctx.get(Value.cast(dut.fault.code))
            self.faults.append((code, ctx.get(dut.fault.detail), ctx.get(dut.pc)))
        self.causes.append(QueueCause(ctx.get(Value.cast(dut.cause))))
        accepted = raw is not None and ctx.get(dut.items.ready)
        held = valid and not ctx.get(dut.command.ready)
        before = ctx.get(Value.cast(dut.command.payload))
        await ctx.tick()
        if held:
            ctx.set(dut.taken, 0)
            ctx.set(dut.done, 0)
            assert ctx.get(dut.command.valid)
            assert ctx.get(Value.cast(dut.command.payload)) == before
        self.clock += 1
        return accepted

    def commands(self):
        """Return what was taken before each command, its words, and what it signalled."""
        found, takes, ended = [], [], 0
        for kind, *rest in self.log:
            if kind == "take":
                takes += rest[0]
            elif kind == "command":
                found.append([takes, rest[0], None])
                takes = []
            else:
                found[ended][2] = rest[0]
                ended += 1
        return found


def random_items(rng, unit, launches, most=6):
    """Return items that set registers and launch, and the commands that are to come of them."""
    registers, items, expected = {}, [], []
    every = [*range(WORDS[unit])]
    every += [16 * level + w for level in (1, 2, 3) for w in (*STRIDED[unit], 15)]
    for pc in range(launches):
        for _ in range(rng.choice((0, 0, 1, 3, 10))):
            register = rng.choice(every) if rng.random() < 0.6 else rng.choice((31, 47, 63))
            value = rng.choice((rng.getrandbits(32), rng.randrange(100), MASK))
            if register % 16 == 15 and register > 15:
                value = rng.randrange(1, most)
            registers[register] = value
            items.append((0, register, value, rng.getrandbits(16)))
        if rng.random() < 0.2:  # a register that does not exist
            items.append((0, rng.choice((15, WORDS[unit], 0x40, 0x4F, 0xFF)), 77, 0))
        waits = [
            None if rng.random() < 0.5 else (rng.randrange(32), rng.random() < 0.5)
            for _ in range(3)
        ]
        word = launch_word(rng.choice((0, 1, 2, 3)), *waits)
        if not waits[1]:
            word |= rng.randrange(64) << 11 | rng.randrange(2) << 17
        items.append((1, 0, word, pc))
        expected += [[*command, pc] for command in expand(unit, registers, word)]
    return items, expected


@pytest.mark.parametrize("pause", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("unit", list(WORDS))
def test_random_launches(params, unit, pause):
    rng = random.Random(unit + pause)
    items, expected = random_items(rng, unit, 50)

    async def script(bench, ctx):
        await bench.give(ctx, items)
        await bench.drain(ctx)

    bench = QueueBench(
        UnitId(unit),
        params(queue_items=rng.choice((4, 16))),
        seed=unit,
        pause=pause,
        supply=1 - pause,
        latency=rng.randrange(30),
    ).run(script)
    assert bench.commands() == [command[:3] for command in expected]
    pcs = [pc for kind, *_, pc in bench.log if kind == "done"]
    assert pcs == [command[3] for command in expected]
    assert len(expected) > 150
    assert not bench.faults


def timed(params, items, *, unit=UnitId.VECTOR, expect=None, **options):
    """Return the clock of each command, counted from the first, and the bench."""

    async def script(bench, ctx):
        for _ in range(6):
            await bench.tick(ctx, None)
        await bench.give(ctx, items)
        await bench.drain(ctx)

    bench = QueueBench(unit, params(queue_items=32), **options).run(script)
    clocks = [entry[2] for entry in bench.log if entry[0] == "command"]
    return [clock - clocks[0] for clock in clocks], bench


def loops(*counts):
    """Return the items that set iterations and strides of every strided word of `vector`."""
    items = []
    for level, count in enumerate(counts, start=1):
        items.append((0, 16 * level + 15, count, 0))
        items += [(0, 16 * level + w, 3 * w + level, 0) for w in STRIDED[4]]
    return items


@pytest.mark.parametrize("waits", [(None, None), ((1, False), (2, False)), ((1, True), (2, True))])
@pytest.mark.parametrize("counts", [(50,), (2, 25), (1, 1, 50), (2, 3, 9), (5, 1, 10)])
def test_one_command_per_clock_in_loops(params, counts, waits):
    word = launch_word(len(counts), (3, True), *waits)
    clocks, bench = timed(params, [*loops(*counts), (1, 0, word, 5)])
    assert clocks == list(range(len(clocks)))
    registers = {register: value for launch, register, value, _ in loops(*counts)}
    assert bench.commands() == expand(4, registers, word)


def test_launches_follow_each_other_without_a_gap(params):
    items = [*loops(3), *((1, 0, launch_word(1), pc) for pc in range(10))]
    items += [(1, 0, launch_word(), pc) for pc in range(10)]
    clocks, _ = timed(params, items)
    # Items come one per clock; the first ten launches take three each.
    assert clocks == list(range(40))


def test_a_launch_is_handed_over_two_clocks_after_its_item(params):
    async def script(bench, ctx):
        for _ in range(8):
            await bench.tick(ctx, None)
        before = bench.clock
        await bench.give(ctx, [(1, 0, launch_word(), 0)])
        await bench.drain(ctx)
        entry = next(entry for entry in bench.log if entry[0] == "command")
        assert entry[2] - before == 2

    QueueBench(UnitId.KV, params()).run(script)


def test_registers_are_written_while_the_last_command_waits(params):
    sets = [(0, w, 100 + w, 0) for w in range(14)]

    async def script(bench, ctx):
        bench.pause = 1.0
        bench.stop_done = True
        for raw in [(1, 0, launch_word(), 1), *sets, (1, 0, launch_word(), 2)]:
            launch, register, value, pc = raw
            while not await bench.tick(ctx, launch | register << 1 | value << 9 | pc << 41):
                pass
        for _ in range(20):
            await bench.tick(ctx, None)
        bench.pause, bench.stop_done = 0.0, False
        await bench.drain(ctx)

    bench = QueueBench(UnitId.VECTOR, params(queue_items=16)).run(script)
    entries = [entry for entry in bench.log if entry[0] == "command"]
    assert [words for _, words, _ in entries] == [[0] * 14, [100 + w for w in range(14)]]
    assert entries[1][2] - entries[0][2] == 1


def test_sixteen_commands_in_flight(params):
    async def script(bench, ctx):
        bench.stop_done = True
        await bench.give(ctx, [*loops(40), (1, 0, launch_word(1, (7, True)), 3)])
        for _ in range(60):
            await bench.tick(ctx, None)
        assert len(bench.in_flight) == IN_FLIGHT
        assert bench.causes[-1] == QueueCause.UNIT
        bench.stop_done = False
        await bench.drain(ctx)

    bench = QueueBench(UnitId.DRAIN, params()).run(script)
    assert [entry[1] for entry in bench.log if entry[0] == "done"] == [7] * 40


def test_signal_pc_is_that_of_the_clock_before(params):
    items = [(1, 0, launch_word(0, (n, False)), 100 + n) for n in range(20)]

    async def script(bench, ctx):
        expected = None
        await bench.give(ctx, items)
        for _ in range(80):
            before = len(bench.log)
            await bench.tick(ctx, None)
            done = [entry for entry in bench.log[before:] if entry[0] == "done"]
            if done:
                expected = done[0][2]
                assert ctx.get(bench.dut.signal_pc) == expected == 100 + done[0][1]
                bench.signal_pcs.append(expected)

    bench = QueueBench(UnitId.STREAM, params(), latency=25).run(script)
    assert bench.signal_pcs[-1] == 119


@pytest.mark.parametrize("level", [1, 2, 3])
def test_no_iterations_is_a_fault_when_its_turn_has_come(params, level):
    good = [(0, 0, 0x1234, 0), (1, 0, launch_word(0, (4, False)), 8)]
    bad = [(0, 16 * level + 15, 0, 0), (1, 0, launch_word(3, (5, False), (6, False)), 9)]

    async def script(bench, ctx):
        bench.supply = 0.0
        await bench.give(ctx, [*good, *bad, (1, 0, launch_word(), 10)])
        for _ in range(40):
            await bench.tick(ctx, None)
        assert not bench.faults
        bench.supply = 1.0
        for _ in range(10):
            await bench.tick(ctx, None)
        assert bench.faults == [(12, 0x1234, 9)]
        assert ctx.get(bench.dut.pending)
        await bench.restart(ctx)
        # After the reset words are 0 and iterations 1 again.
        await bench.give(ctx, [(1, 0, launch_word(3), 11)])
        await bench.drain(ctx)

    bench = QueueBench(UnitId.STREAM, params(), latency=20).run(script)
    assert [entry[1] for entry in bench.log if entry[0] == "done"] == [4, None]
    assert [entry[1] for entry in bench.log if entry[0] == "command"] == [[0x1234, 0], [0, 0]]
    assert len(bench.faults) == 1


def test_iterations_of_a_level_that_is_not_used_may_be_zero(params):
    items = [(0, 31, 2, 0), (0, 47, 0, 0), (1, 0, launch_word(1), 0)]
    clocks, bench = timed(params, items)
    assert len(clocks) == 2
    assert not bench.faults


@pytest.mark.parametrize("unit", list(WORDS))
def test_a_reset_clears_all_registers(params, unit):
    rng = random.Random(unit)
    every = [*range(WORDS[unit])]
    every += [16 * level + w for level in (1, 2, 3) for w in STRIDED[unit]]

    async def script(bench, ctx):
        for round_ in range(3):
            sets = [(0, register, rng.getrandbits(32) | 1, 0) for register in every]
            sets += [(0, 16 * level + 15, 3, 0) for level in (1, 2, 3)]
            await bench.give(ctx, sets)
            if round_:
                await bench.give(ctx, [(1, 0, launch_word(3, None, (1, True)), 0)])
            for _ in range(rng.randrange(30)):
                await bench.tick(ctx, None)
            await bench.restart(ctx)
            assert not ctx.get(bench.dut.pending)
            bench.log.clear()
            ones = [(0, 16 * level + 15, 2, 0) for level in (1, 2, 3)]
            await bench.give(ctx, [(1, 0, launch_word(3), 0), *ones, (1, 0, launch_word(3), 0)])
            await bench.drain(ctx)
            found = [words for _, words, _ in bench.commands()]
            assert found == [[0] * WORDS[unit]] * 9

    QueueBench(UnitId(unit), params(queue_items=8), latency=9).run(script)


def test_causes(params):
    async def script(bench, ctx):
        for _ in range(10):
            await bench.tick(ctx, None)
        await bench.give(ctx, [*loops(12), (1, 0, launch_word(1, None, (1, True)), 3)])
        bench.supply, bench.pause = 0.3, 0.5
        for _ in range(80):
            await bench.tick(ctx, None)

    bench = QueueBench(UnitId.VECTOR, params(), seed=5).run(script)
    count = bench.causes.count
    assert count(QueueCause.ISSUE) == 12
    assert count(QueueCause.SET) == 9
    assert all(count(cause) for cause in QueueCause)


def test_the_sequencer_has_no_queue(params):
    with pytest.raises(ConfigError, match="SEQ has no command queue"):
        CommandQueue(UnitId.SEQ, params())
