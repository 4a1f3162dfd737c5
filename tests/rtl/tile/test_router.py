"""HostRouter: one answer for every access, in order, whatever pauses and clears there are."""

from collections import deque

import numpy as np
import pytest

from pequin.hbm.types import HbmError
from pequin.tile.router import HBM_OUTSTANDING, HostRouter
from pequin.tile.types import ErrorCode, Memory

REGISTERS = 8
HBM_BEATS = 1000
"""Addresses from here on are refused by the model of the channel."""

BROKEN = 13
"""HBM beats at multiples of this have an ECC error that cannot be corrected."""

ALL = (1 << 256) - 1


def sizes(params):
    """Return the beats of every memory, from docs/isa.md's sizes and the preset."""
    c = params.config
    return {
        Memory.VECTOR: c.vector_elements // 8,
        Memory.KV: c.kv_beats,
        Memory.PROGRAM: c.program_words // 4,
        Memory.ACTIVATIONS: 2 * c.columns * c.act_blocks,
        Memory.SCALARS: c.scalars // 8,
        Memory.REGISTERS: REGISTERS,
    }


class BeatMemory:
    """A memory behind `NAME_access` and `NAME_answer`: one access at a time, some clocks each."""

    def __init__(self, sim, dut, name, rate, *, cleared):
        self.cleared = cleared
        self.access = sim.Sink(getattr(dut, f"{name}_access"), rate=rate, answer=self.begin)
        self.answer = sim.Source(getattr(dut, f"{name}_answer"), rate=rate)
        self.content = {}

    def begin(self, access):
        address, data = access["address"], access["data"]
        # One access at a time.
        assert not self.answer.items
        if access["write"]:
            self.content[address] = data
            # An answer to a write may hold anything.
            self.answer.items.append({"error": 0, "data": ALL})
        elif address % 11 == 10:
            self.answer.items.append({"error": ErrorCode.SRAM_ECC, "data": 0})
        else:
            self.answer.items.append({"error": 0, "data": self.content.get(address, 0)})

    def clear(self):
        self.answer.items.clear()
        self.answer.forget()

    @property
    def parts(self):
        return [self.access, self.answer]


class VectorMemory:
    """Vector memory: a write is carried out some clocks after it was accepted, if not cleared."""

    cleared = True

    def __init__(self, sim, dut, rate):
        self.access = sim.Sink(dut.vector, rate=rate, answer=self.begin)
        self.data = sim.Source(dut.vector_data, rate=rate)
        self.content, self.left, self.write, self.rate = {}, 0, None, rate

    def begin(self, access):
        assert access["address"] % 8 == 0
        assert self.write is None
        if access["write"]:
            self.write, self.left = access, 7
        else:
            assert not self.data.items
            self.data.items.append(self.content.get(access["address"] // 8, 0))

    def drive(self, ctx, rng):
        self.access.rate = 0 if self.left or self.data.items else self.rate

    def sample(self, ctx, clock):
        if self.left:
            self.left -= 1
            if not self.left:
                self.content[self.write["address"] // 8] = self.write["data"]
                self.write = None

    def clear(self):
        self.left, self.write = 0, None
        self.data.items.clear()
        self.data.forget()

    @property
    def parts(self):
        return [self, self.access, self.data]


class Channel:
    """HBM: requests in order, write data apart from them, late answers."""

    def __init__(self, sim, dut, rate, *, latency=12):
        port = dut.hbm
        self.request = sim.Sink(port.request, rate=rate, answer=self.requested)
        self.write_data = sim.Sink(port.write_data, rate=rate, answer=self.written)
        self.read_data = sim.Source(port.read_data, rate=rate)
        self.ack = sim.Source(port.write_ack, rate=rate)
        self.writes, self.data, self.late = deque(), deque(), deque()
        self.content, self.clock, self.latency = {}, 0, latency
        self.reads_at_once = self.outstanding = self.most = 0
        self.direction = None

    def _later(self, answers, item):
        self.late.append((self.clock + self.latency, answers, item))

    def requested(self, asked):
        assert asked["length"] == 1
        self.outstanding += 1
        self.most = max(self.most, self.outstanding)
        # Answers of two directions would have no order.
        assert self.outstanding == 1 or self.direction == asked["write"]
        self.direction = asked["write"]
        address = asked["address"]
        if asked["write"]:
            self.writes.append(address)
            self.join()
            return
        error = HbmError.OK
        if address >= HBM_BEATS:
            error = HbmError.ADDRESS
        elif address % BROKEN == 0:
            error = HbmError.ECC
        data = self.content.get(address, 0) if error == HbmError.OK else 0
        self._later(self.read_data, {"data": data, "error": error, "last": 1})

    def written(self, data):
        self.data.append(data)
        self.join()

    def join(self):
        while self.writes and self.data:
            address, data = self.writes.popleft(), self.data.popleft()
            inside = address < HBM_BEATS
            if inside:
                self.content[address] = data
            self._later(self.ack, {"error": HbmError.OK if inside else HbmError.ADDRESS})

    def drive(self, ctx, rng):
        pass

    def sample(self, ctx, clock):
        self.clock = clock
        # Data may come before its request, but for the accesses that were begun only.
        while self.late and self.late[0][0] <= clock:
            _, answers, item = self.late.popleft()
            answers.items.append(item)
        taken = self.read_data.sent + self.ack.sent
        self.outstanding = len(self.request.got) - taken

    @property
    def parts(self):
        return [self, self.request, self.write_data, self.read_data, self.ack]


class Machine:
    """The router between a host and memories."""

    def __init__(self, sim, params, *, rates=(1, 1, 1), latency=12, clears=()):
        self.sim, self.params, self.clears = sim, params, set(clears)
        self.dut = dut = HostRouter(params, registers=REGISTERS)
        names = ("kv", "program", "activations", "scalars", "registers")
        lasting = ("program", "registers")
        self.beats = {
            name: BeatMemory(sim, dut, name, rates[1], cleared=name not in lasting)
            for name in names
        }
        self.vector = VectorMemory(sim, dut, rates[1])
        self.hbm = Channel(sim, dut, rates[1], latency=latency)
        self.cleared = [m for m in (*self.beats.values(), self.vector) if m.cleared]
        self.accesses = sim.Source(dut.accesses, rate=rates[0])
        self.answers = sim.Sink(dut.answers, rate=rates[2])
        self.clearing = self.clock = 0
        self.taken_from = None

    def drive(self, ctx, rng):
        if self.clock in self.clears:
            self.clearing = 4
        if self.clock == self.taken_from:
            self.answers.rate = 1
        ctx.set(self.dut.clear, self.clearing > 0)
        if self.clearing:
            for memory in self.cleared:
                # What was offered to a unit in reset may be taken back.
                memory.access.held = None
        self.clock += 1

    def sample(self, ctx, clock):
        pass

    def run(self, accesses, *, seed=0):
        """Carry accesses out and return the answers as (error, data)."""
        self.accesses.items.extend(accesses)

        def after(ctx, clock):
            if not self.clearing:
                return
            for memory in self.cleared:
                # Units that are held in reset must not be offered anything.
                port = memory.access.stream
                assert not ctx.get(port.valid)
                memory.clear()
            self.clearing -= 1

        parts = [self, self.accesses, *self.vector.parts, *self.hbm.parts]
        for memory in self.beats.values():
            parts += memory.parts
        total = len(accesses)
        self.clocks = self.sim.run(
            self.dut,
            [*parts, self.answers],
            seed=seed,
            after=after,
            clocks=200 * total + 1000,
            until=lambda: len(self.answers.got) == total,
        )
        return [(item["error"], item["data"]) for item in self.answers.got]


class Golden:
    """What the accesses answer, by docs/isa.md and the models of the memories."""

    def __init__(self, params):
        self.sizes, self.content = sizes(params), {}

    def answer(self, access):
        memory, write = Memory(access["memory"]), access["write"]
        address = access["address"]
        place = (memory, address)
        if memory == Memory.HBM:
            if address >= HBM_BEATS:
                return ErrorCode.HBM_ADDRESS, 0
            if not write and address % BROKEN == 0:
                return ErrorCode.HBM_ECC, 0
        elif address >= self.sizes[memory]:
            return ErrorCode.ACCESS, 0
        elif not write and memory != Memory.VECTOR and address % 11 == 10:
            return ErrorCode.SRAM_ECC, 0
        if write:
            self.content[place] = access["data"]
            return ErrorCode.NONE, 0
        return ErrorCode.NONE, self.content.get(place, 0)

    def answers(self, accesses):
        return [(error.value, data) for error, data in map(self.answer, accesses)]


def access(memory, address, write=0, data=0):
    return {"memory": memory, "write": write, "address": address, "data": data}


def random_accesses(rng, params, count):
    """Return accesses to few places, so that reads meet writes; runs of the same memory."""
    made, memory, write = [], Memory.HBM, 0
    bounds = sizes(params) | {Memory.HBM: HBM_BEATS}
    while len(made) < count:
        if rng.random() < 0.4:
            memory = Memory(int(rng.integers(7)))
        if rng.random() < 0.4:
            write = int(rng.integers(2))
        size = bounds[memory]
        near = [0, 1, 2, 10, 13, size - 1, size - 2, size, size + 1]
        address = int(rng.choice(near))
        data = int.from_bytes(rng.bytes(32), "little")
        made.append(access(memory, max(0, address), write, data if write else ALL))
    return made


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("rates", [(1, 1, 1), (0.5, 0.4, 0.7), (1, 0.8, 0.15), (0.2, 1, 1)])
def test_random_accesses(sim, params_of, preset, rates):
    params = params_of(preset)
    rng = np.random.default_rng(31)
    given = random_accesses(rng, params, 120)
    machine = Machine(sim, params, rates=rates)
    assert machine.run(given, seed=32) == Golden(params).answers(given)


@pytest.mark.parametrize("seed", range(6))
def test_random_accesses_while_units_are_cleared(sim, params_of, seed):
    params, rng = params_of("tiny"), np.random.default_rng(seed)
    given = random_accesses(rng, params, 100)
    clears = np.cumsum(rng.integers(5, 40, size=200))
    rates = rng.choice([0.4, 0.8, 1.0], size=3)
    machine = Machine(sim, params, rates=rates, clears=clears.tolist())
    assert machine.run(given, seed=seed) == Golden(params).answers(given)


@pytest.mark.parametrize("memory", [m for m in Memory if m != Memory.HBM])
@pytest.mark.parametrize("write", [0, 1])
def test_a_clear_in_any_clock_of_an_access(sim, params_of, memory, write):
    params = params_of("tiny")
    again = set()
    for clock in range(16):
        machine = Machine(sim, params, rates=(1, 1, 1), clears=[clock])
        given = [access(memory, 1, write, 77), access(memory, 1), access(memory, 0)]
        assert machine.run(given) == Golden(params).answers(given), clock
        name = memory.name.lower()
        store = machine.vector if memory == Memory.VECTOR else machine.beats[name]
        again.add(len(store.access.got))
    # The access was carried out again where the unit was cleared, and nowhere else.
    assert (len(again) > 1) == (memory not in (Memory.PROGRAM, Memory.REGISTERS))


def test_a_clear_leaves_hbm_alone(sim, params_of):
    params = params_of("tiny")
    given = [access(Memory.HBM, n % 7 + 1, int(n < 20), n) for n in range(40)]
    calm, cleared = Machine(sim, params), Machine(sim, params, clears=range(0, 400, 9))
    assert calm.run(given) == cleared.run(given) == Golden(params).answers(given)
    assert calm.clocks == cleared.clocks


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("write", [0, 1])
def test_bounds_of_every_memory(sim, params_of, preset, write):
    params = params_of(preset)
    given = []
    for memory, size in sizes(params).items():
        given += [
            access(memory, address, write, 5)
            for address in (size - 1, size, 1 << 31, (1 << 32) - 1, (1 << 31) + size - 1)
        ]
    machine = Machine(sim, params)
    errors = [error for error, _ in machine.run(given)]
    outside = ErrorCode.ACCESS.value
    for i, memory in enumerate(sizes(params)):
        last = 0
        if not write and memory != Memory.VECTOR and (sizes(params)[memory] - 1) % 11 == 10:
            last = ErrorCode.SRAM_ECC.value
        assert errors[5 * i : 5 * i + 5] == [last] + 4 * [outside], memory


def test_memories_that_do_not_exist(sim, params_of):
    machine = Machine(sim, params_of("tiny"))
    # Their numbers are no members of the enumeration: as bits.
    dut, answers = machine.dut, machine.answers
    taken = [0]

    def each(ctx, clock):
        number = 7 + taken[0]
        ctx.set(dut.accesses.payload.as_value(), number | (taken[0] & 1) << 4)
        ctx.set(dut.accesses.valid, taken[0] < 9)
        taken[0] += bool(taken[0] < 9 and ctx.get(dut.accesses.ready))

    sim.run(dut, [answers], each=each, clocks=100)
    assert [(a["error"], a["data"]) for a in answers.got] == [(ErrorCode.ACCESS.value, 0)] * 9


def test_hbm_reads_overlap(sim, params_of):
    count = 200
    given = [access(Memory.HBM, n % 300 + 301) for n in range(count)]
    machine = Machine(sim, params_of("tiny"), latency=50)
    machine.run(given)
    assert machine.clocks < count + 80
    assert machine.hbm.most > 45


def test_hbm_writes_overlap_and_are_bounded(sim, params_of):
    given = [access(Memory.HBM, n % 300 + 1, 1, n) for n in range(150)]
    machine = Machine(sim, params_of("tiny"), latency=500)
    machine.run(given)
    assert machine.hbm.most == HBM_OUTSTANDING


def test_a_change_of_direction_waits(sim, params_of):
    # The channel's model checks that both directions are never on their way at once.
    params = params_of("tiny")
    given = [access(Memory.HBM, n // 4 + 1, int(n % 4 < 2), n) for n in range(60)]
    machine = Machine(sim, params, latency=20)
    assert machine.run(given) == Golden(params).answers(given)
    assert machine.clocks > 29 * 20


def test_other_memories_wait_for_hbm(sim, params_of):
    params = params_of("tiny")
    given = [
        access(memory, 1, int(n % 3 == 0), n)
        for n in range(12)
        for memory in (Memory.HBM, Memory.HBM, Memory.VECTOR, Memory.REGISTERS)
    ]
    machine = Machine(sim, params, latency=30)
    assert machine.run(given) == Golden(params).answers(given)


@pytest.mark.parametrize("memory", list(Memory))
def test_answers_that_are_held_back(sim, params_of, memory):
    # Nobody takes answers: everything stops, nothing is lost, and nothing is done twice.
    params = params_of("tiny")
    given = [access(memory, n % 5 + 1, n % 2, n) for n in range(30)]
    machine = Machine(sim, params, rates=(1, 1, 0))
    machine.taken_from = 150
    assert machine.run(given) == Golden(params).answers(given)
    assert machine.answers.clocks[0] >= 150
