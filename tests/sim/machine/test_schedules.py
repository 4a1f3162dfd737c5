"""A program without races leaves the same memories whatever the order of its commands.

Random straight programs are executed in program order and then in random orders that semaphores,
streams and units allow. Where the machine finds no race, nothing may differ; where it finds some,
some order has to show that they are real.
"""

from collections import deque

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin_sim import isa
from pequin_sim.campaigns.programs import RandomProgram, program_image
from pequin_sim.isa import LaunchWord, assemble
from pequin_sim.machine import Machine
from pequin_sim.machine.machine import EXECUTE
from pequin_sim.machine.state import State

PARAMS = TileParams(TileConfig.preset("tiny"))


def fill(state):
    """Give all memories something to tell old from new."""
    rng = np.random.default_rng(1)
    state.unit.memory[:] = rng.normal(size=len(state.unit.memory))
    state.unit.scalars[:] = rng.normal(size=len(state.unit.scalars))
    state.elements[:] = rng.integers(-127, 128, state.elements.shape)
    state.scales[:] = rng.integers(120, 130, state.scales.shape)
    state.kv[:] = rng.integers(100, 130, state.kv.shape)


class Schedule:
    """Executes the commands of a program in an order that it draws."""

    def __init__(self, program, commands, hbm):
        self.state = State(PARAMS, hbm)
        fill(self.state)
        self.counts = [0] * 32
        self.queues = {unit: deque() for unit in EXECUTE}
        by_pc = {}
        for c in commands:
            by_pc.setdefault(c.pc, deque()).append(c)
        self.sequence = deque()
        for pc, word in enumerate(program.words):
            i = isa.decode(int(word))
            if i.mnemonic == "launch":
                self.sequence.append((i.unit, by_pc[pc], LaunchWord.unpack(i.imm)))
            elif i.mnemonic == "wait":
                self.sequence.append((0, i.imm, None))

    def ready(self, unit):
        if unit == 0:
            kind, what, _ = self.sequence[0] if self.sequence else (None, None, None)
            return kind is not None and (kind != 0 or self.counts[what] > 0)
        if not self.queues[unit]:
            return False
        command = self.queues[unit][0]
        if any(self.counts[w] < command.waits.count(w) for w in command.waits):
            return False
        streams = {
            "mac": self.state.kv_beats if command.words[0] & 128 else self.state.fifo,
            "drain": self.state.results,
        }
        return command.unit not in streams or bool(streams[command.unit])

    def run(self, rng):
        while choices := [u for u in range(7) if self.ready(u)]:
            self.go(int(rng.choice(choices)))
        assert not self.sequence
        assert not any(self.queues.values())
        s = self.state
        arrays = (s.vector_bits, s.unit.scalars.view(np.uint32), s.elements, s.scales, s.kv)
        return [a.copy() for a in arrays]

    def go(self, unit):
        if unit == 0:
            kind, what, _ = self.sequence.popleft()
            if kind == 0:
                self.counts[what] -= 1
            else:
                self.queues[kind].extend(what)
            return
        command = self.queues[unit].popleft()
        for number in command.waits:
            self.counts[number] -= 1
        assert EXECUTE[unit](self.state, command.words, command.pc).fault is None
        for number in command.signals:
            self.counts[number] += 1


def outcome(seed, launches, joins, schedules):
    """Return whether the machine found races, and whether some order gave something else."""
    rng = np.random.default_rng(seed)
    hbm = program_image()
    source = RandomProgram(rng)
    source.section(launches, joins)
    program = assemble(source.text, check=False)
    machine = Machine(PARAMS, hbm, program, races="collect", capacity=False)
    fill(machine.memory)
    result = machine.run()
    assert result.state == "halted", result.error
    expected = [result.vector, result.scalars, result.activations, result.scales, result.kv]
    differs = False
    for _ in range(schedules):
        found = Schedule(program, result.commands, hbm).run(rng)
        differs |= any(not np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
    return bool(result.races), differs


def campaign(seeds, launches, joins, schedules=6):
    counts = {(races, differs): 0 for races in (False, True) for differs in (False, True)}
    for seed in seeds:
        races, differs = outcome(seed, launches, joins, schedules)
        counts[races, differs] += 1
        assert races or not differs, f"seed {seed}: an order that the machine allows differs"
    return counts


@pytest.mark.parametrize(("launches", "joins"), [(3, 2), (5, 12), (8, 40), (12, 80)])
def test_orders_of_random_programs(launches, joins):
    counts = campaign(range(60), launches, joins)
    assert counts[True, True] >= 4
    assert counts[False, False] >= 3


@pytest.mark.soak
@pytest.mark.parametrize(("launches", "joins"), [(4, 8), (6, 20), (10, 60), (20, 100)])
def test_orders_of_many_random_programs(launches, joins):
    campaign(range(1000, 2000), launches, joins, 20)
