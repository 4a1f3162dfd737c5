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
from pequin_sim.isa import LaunchWord, assemble
from pequin_sim.layout import pack_weights
from pequin_sim.machine import Machine
from pequin_sim.machine.machine import EXECUTE
from pequin_sim.machine.state import State
from pequin_sim.mx import quantize

PARAMS = TileParams(TileConfig.preset("tiny"))
PLACES = 6
"""Places of 32 elements in vector memory that all commands share."""


class Program:
    """A random program: text, one launch after another, joined by random semaphores."""

    def __init__(self, rng, launches, joins):
        self.rng, self.text = (
            rng,
            "set kv.kind, 2\nset kv.blocks, 1\nlaunch kv, signal 31\nwait 31\n",
        )
        self.free = deque(range(31))
        self.parts = []
        while len(self.parts) < launches:
            self.add()
        self.join(joins)
        for text, unit, signal, waits in self.parts:
            self.text += f"{text}launch {unit}"
            self.text += "".join(f", wait {w}" for w in waits)
            self.text += f", signal {signal[0]}\n" if signal else "\n"
        self.text += "halt"

    def place(self, count=PLACES):
        return int(self.rng.integers(count))

    def put(self, unit, text):
        self.parts.append((text, unit, [], []))

    def add(self):
        kind = self.rng.choice(["dma", "copy", "sum", "use", "quantize", "mac", "keys", "read"])
        a, b = self.place(), self.place()
        shape = "set vector.shape, {length=32, vectors=1}\n"
        if kind == "dma":
            source = self.place(8)
            self.put(
                "dma",
                f"set dma.kind, 0\nset dma.source, {source}\nset dma.dst, {32 * a}\n"
                "set dma.count, 4\n",
            )
        elif kind == "copy":
            self.put(
                "vector",
                f"set vector.mode, {{op=add, store}}\n{shape}set vector.a, {32 * a}\n"
                f"set vector.b, {32 * a}\nset vector.dst, {32 * b}\n"
                if a != b
                else f"set vector.mode, {{store}}\n{shape}set vector.a, {32 * a}\n"
                f"set vector.dst, {32 * ((b + 1) % PLACES)}\n",
            )
        elif kind == "sum":
            self.put(
                "vector",
                f"set vector.mode, {{reduce=sum}}\n{shape}set vector.a, {32 * a}\n"
                f"set vector.scalars, {{out={b}}}\n",
            )
        elif kind == "use":
            self.put(
                "vector",
                f"set vector.mode, {{use_s1, store}}\n{shape}"
                f"set vector.a, {32 * a}\nset vector.scalars, {{s1={b}}}\n"
                f"set vector.dst, {32 * ((a + 1) % PLACES)}\n",
            )
        elif kind == "quantize":
            self.put(
                "vector",
                f"set vector.mode, {{quantize=activations}}\n{shape}"
                f"set vector.a, {32 * a}\nset vector.address, {b}\n",
            )
        elif kind == "keys":
            self.put(
                "vector",
                f"set vector.mode, {{quantize=keys}}\n{shape}set vector.a, {32 * a}\n"
                "set vector.address, 64\n"
                f"set vector.extra, {{lane={self.place(4)}}}\n",
            )
        elif kind == "read":
            self.put("kv", "set kv.kind, 0\nset kv.address, 64\nset kv.rows, 2\n")
            self.put(
                "mac",
                "set mac.mode, {format=mxint8, scaled, source=kv}\n"
                f"set mac.last_row, 1\nset mac.base, {b}\n",
            )
            self.drain(a)
        else:
            self.put("stream", "set stream.address, 32\nset stream.beats, 2\n")
            self.put("mac", f"set mac.mode, {{scaled}}\nset mac.last_row, 1\nset mac.base, {b}\n")
            self.drain(a)

    def drain(self, a):
        self.put(
            "drain",
            "set drain.mode, {source=drain, store}\n"
            f"set drain.shape, {{length=2, vectors=1}}\nset drain.dst, {32 * a}\n",
        )

    def join(self, joins):
        for _ in range(joins):
            first, second = sorted(int(n) for n in self.rng.integers(len(self.parts), size=2))
            signal, waits = self.parts[first][2], self.parts[second][3]
            if first < second and not signal and len(waits) < 2 and self.free:
                signal.append(self.free.popleft())
                waits.append(signal[0])


def image():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(32, 8)).astype(np.float32).view(np.uint8)
    return np.concatenate([rows, pack_weights(quantize(rng.normal(size=(2, 32))))])


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
    hbm = image()
    program = assemble(Program(rng, launches, joins).text, check=False)
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


@pytest.mark.parametrize(("launches", "joins"), [(3, 2), (5, 12), (8, 40), (14, 60)])
def test_orders_of_random_programs(launches, joins):
    counts = campaign(range(60), launches, joins)
    assert counts[True, True] >= 4
    assert counts[False, False] >= 3


@pytest.mark.soak
@pytest.mark.parametrize(("launches", "joins"), [(4, 8), (6, 20), (10, 60), (20, 100)])
def test_orders_of_many_random_programs(launches, joins):
    campaign(range(1000, 2000), launches, joins, 20)
