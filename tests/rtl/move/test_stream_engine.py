"""StreamEngine: every beat in order, never more than the FIFO takes, errors in their turn."""

import numpy as np
import pytest

from pequin.errors import ConfigError
from pequin.move.requester import ReadRequester
from pequin.move.stream_engine import StreamEngine
from pequin.move.types import StreamCause, chunk_beats
from pequin.tile.types import ErrorCode


class Fifo:
    """A FIFO with `room`, drained by up to two beats per clock."""

    def __init__(self, dut, size, *, drain=1.0, rng=None):
        self.dut, self.size, self.drain, self.rng = dut, size, drain, rng
        self.items, self.held, self.fullest = [], 0, 0

    def drive(self, ctx):
        ctx.set(self.dut.room, self.size - self.held)
        ctx.set(self.dut.output.ready, self.held < self.size)

    def sample(self, ctx):
        if ctx.get(self.dut.output.valid):
            assert self.held < self.size, "a beat came to a full FIFO"
            self.items.append(ctx.get(self.dut.output.payload))
            self.held += 1
        if self.rng is None or self.rng.random() < self.drain:
            self.held -= min(self.held, 2)
        self.fullest = max(self.fullest, self.held)


class Run:
    """An engine among its neighbours."""

    def __init__(self, fixtures, params, commands, **options):
        hbm, source, clocked, store = fixtures
        self.rng = np.random.default_rng(options.pop("seed", 0))
        rest = options.pop("rest", 0.0)
        self.dut = StreamEngine(params)
        self.store = store(self.rng, 4096)
        self.commands = commands
        pausing = {"rest": rest, "rng": self.rng}
        self.hbm = hbm(self.dut.port, self.store, **pausing, bad=options.pop("bad", ()))
        self.source = source(self.dut.command, commands, **pausing)
        drain = options.pop("drain", 1.0)
        self.fifo = Fifo(self.dut, params.config.fifo_beats, drain=drain, rng=self.rng)
        self.done_after, self.faults = [], []
        self.causes = dict.fromkeys(StreamCause, 0)
        self.params = params
        until = options.pop("until", lambda r: len(r.done_after) == len(commands))
        self.clocks = clocked(
            self.dut,
            [self.hbm, self.source, self.fifo],
            lambda: until(self),
            watch=self.watch,
            **options,
        )

    def watch(self, ctx, clock):
        self.causes[ctx.get(self.dut.cause)] += 1
        if ctx.get(self.dut.done):
            self.done_after.append(len(self.fifo.items))
        if ctx.get(self.dut.fault_valid):
            fault = ctx.get(self.dut.fault)
            self.faults.append((fault.code, fault.detail))
        # All that was asked for has a place.
        asked = sum(length for _, length in self.hbm.requests)
        on_the_way = asked - len(self.fifo.items)
        assert self.fifo.held + on_the_way <= self.params.config.fifo_beats

    def expected(self):
        return [self.store[a + i] for a, n in self.commands for i in range(n)]

    def expected_before(self, address):
        """Return the beats of the commands before the one at an address."""
        first = next(i for i, (a, _) in enumerate(self.commands) if a == address)
        return [self.store[a + i] for a, n in self.commands[:first] for i in range(n)]


@pytest.fixture
def run(hbm, source, clocked, store):
    def start(*args, **options):
        return Run((hbm, source, clocked, store), *args, **options)

    return start


def random_commands(rng, count):
    lengths = [int(rng.choice([1, 2, 3, 17, 64, 65, 200])) for _ in range(count)]
    return [(int(rng.integers(0, 4096 - n)), n) for n in lengths]


@pytest.mark.parametrize(("rest", "drain"), [(0.0, 1.0), (0.3, 1.0), (0.3, 0.3), (0.0, 0.2)])
@pytest.mark.parametrize("preset", ["tiny", "fpga"])
def test_random_commands(run, params_of, preset, rest, drain):
    params = params_of(preset)
    commands = random_commands(np.random.default_rng(3), 30)
    got = run(params, commands, rest=rest, drain=drain, seed=int(10 * (rest + drain)))
    assert got.fifo.items == got.expected()
    assert got.done_after == list(np.cumsum([n for _, n in commands]))
    assert not got.faults
    assert max(length for _, length in got.hbm.requests) == chunk_beats(params)
    assert sum(got.causes.values()) == got.clocks
    assert got.causes[StreamCause.BUSY] == len(got.expected())
    if rest == 0:
        assert (got.causes[StreamCause.ROOM] > 0) == (drain < 1)


@pytest.mark.parametrize("lengths", [[1] * 12, [3, 1, 64, 2, 65, 1, 1, 200], [500, 500]])
def test_one_beat_per_clock_without_gaps(run, params_of, lengths):
    commands = [(50 * i, n) for i, n in enumerate(lengths)]
    got = run(params_of("fpga"), commands)
    # Acceptance, request, latency of the memory, output register, completion.
    assert got.clocks <= sum(lengths) + 20 + 6
    assert got.causes[StreamCause.BUSY] == sum(lengths)


def test_the_engine_runs_ahead_until_the_fifo_is_full(run, params_of):
    params = params_of("fpga")
    commands = [(100 * i, 10) for i in range(20)]
    got = run(params, commands, drain=0.0, until=lambda r: r.hbm.clock == 300)
    # Commands of 10 beats are asked for as a whole: 6 of them fit into 64 places.
    assert len(got.fifo.items) == 60
    assert len(got.hbm.requests) == 6
    assert got.done_after == [10, 20, 30, 40, 50, 60]
    assert got.causes[StreamCause.ROOM] > 200


def failed(run):
    return bool(run.faults) and run.hbm.clock > 200


def test_an_uncorrectable_beat_is_told_with_its_address(run, params_of):
    commands = [(0, 20), (100, 90), (300, 5)]
    got = run(params_of("fpga"), commands, bad=[170], until=failed)
    assert got.faults == [(ErrorCode.HBM_ECC, 170)]
    assert got.fifo.items == got.expected()[: 20 + 70]
    assert got.done_after == [20]
    # What was asked for is taken off the port's hands.
    assert not got.hbm.beats
    assert got.causes[StreamCause.IDLE] > 50


@pytest.mark.parametrize("address", [4090, 4096, (1 << 32) - 4])
def test_an_address_outside_is_told_as_the_command_gave_it(run, params_of, address):
    commands = [(0, 20), (address, 9), (300, 5)]
    got = run(params_of("fpga"), commands, until=failed)
    assert got.faults == [(ErrorCode.HBM_ADDRESS, address)]
    assert got.fifo.items == got.expected_before(address)


def test_a_later_chunk_outside_is_told_with_the_first_address(run, params_of):
    got = run(params_of("fpga"), [(4000, 100)], until=failed)
    assert got.faults == [(ErrorCode.HBM_ADDRESS, 4000)]
    assert got.fifo.items == got.store[4000:4096]


@pytest.mark.parametrize("before", [0, 1])
def test_no_beats_is_told_in_its_turn(run, params_of, before):
    commands = [(7, 30)] * before + [(1234, 0), (0, 5)]
    got = run(params_of("fpga"), commands, until=failed)
    assert got.faults == [(ErrorCode.COMMAND, 1234)]
    assert len(got.fifo.items) == 30 * before
    assert got.done_after == [30] * before
    assert got.source.taken == before + 1


@pytest.mark.parametrize("chunk", [0, 3, 128])
def test_a_chunk_must_be_a_power_of_two(chunk):
    with pytest.raises(
        ConfigError, match=f"chunk must be a power of two from 1 to 64, not {chunk}"
    ):
        ReadRequester(chunk=chunk)
