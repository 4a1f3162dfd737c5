"""Python models of the neighbours of the moving units, clock by clock."""

import functools

import numpy as np
import pytest
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin.hbm.types import HbmError


class Hbm:
    """An HBM port: requests in, beats out after some clocks, at most one per clock.

    `store` are the beats, `bad` beats that come with an ECC error. `rng` and `rest` make it
    pause. Requests are kept, to look at their sizes.
    """

    def __init__(self, port, store, *, latency=20, rest=0.0, rng=None, bad=()):
        self.port, self.store, self.latency = port, store, latency
        self.rest, self.rng, self.bad = rest, rng, set(bad)
        self.requests, self.beats, self.clock = [], [], 0
        self.offered = None

    def pauses(self):
        return self.rest and self.rng.random() < self.rest

    def drive(self, ctx):
        """Set the inputs for this clock."""
        if self.offered is None and self.beats and self.beats[0][0] <= self.clock:
            self.offered = None if self.pauses() else self.beats.pop(0)
        ctx.set(self.port.read_data.valid, self.offered is not None)
        if self.offered is not None:
            _, data, error, last = self.offered
            beat = self.port.read_data.payload
            ctx.set(beat.data, data)
            ctx.set(beat.error, error)
            ctx.set(beat.last, last)
        ctx.set(self.port.request.ready, not self.pauses())

    def sample(self, ctx):
        """Note what is exchanged in this clock."""
        port = self.port
        assert not ctx.get(port.write_data.valid)
        if self.offered is not None and ctx.get(port.read_data.ready):
            self.offered = None
        if ctx.get(port.request.valid) and ctx.get(port.request.ready):
            request = port.request.payload
            assert not ctx.get(request.write)
            self._answer(ctx.get(request.address), ctx.get(request.length))
        self.clock += 1

    def _answer(self, address, length):
        self.requests.append((address, length))
        assert 1 <= length <= 64
        at = self.clock + self.latency
        if address + length > len(self.store):
            self.beats.append((at, 0, HbmError.ADDRESS, 1))
            return
        for i in range(address, address + length):
            error = HbmError.ECC if i in self.bad else HbmError.OK
            data = 0 if i in self.bad else self.store[i]
            self.beats.append((at, data, error, i + 1 == address + length))


class Source:
    """Offer items on a stream, one after the other, with pauses."""

    def __init__(self, stream, items, *, rest=0.0, rng=None, allowed=lambda: True):
        self.stream, self.items, self.rest, self.rng = stream, list(items), rest, rng
        self.allowed = allowed
        self.taken, self.showing = 0, False

    def drive(self, ctx):
        left = self.taken < len(self.items)
        if left and not self.showing and self.allowed():
            self.showing = not (self.rest and self.rng.random() < self.rest)
        ctx.set(self.stream.valid, self.showing)
        if self.showing:
            ctx.set(self.stream.payload, self.items[self.taken])

    def sample(self, ctx):
        if self.showing and ctx.get(self.stream.ready):
            self.showing = False
            self.taken += 1


class Sink:
    """Take items from a stream with pauses; an offer must stay as it is until it is taken."""

    def __init__(self, stream, read, *, rest=0.0, rng=None):
        self.stream, self.read, self.rest, self.rng = stream, read, rest, rng
        self.items, self.ready, self.waiting = [], False, None

    def drive(self, ctx):
        self.ready = not (self.rest and self.rng.random() < self.rest)
        ctx.set(self.stream.ready, self.ready)

    def sample(self, ctx):
        offered = self.read(ctx, self.stream.payload) if ctx.get(self.stream.valid) else None
        assert self.waiting is None or offered == self.waiting
        if offered is not None and self.ready:
            self.items.append(offered)
        self.waiting = None if self.ready else offered


def run_clocks(dut, models, until, *, limit=20000, watch=None):
    """Clock a component with its models until a condition holds; return the clocks.

    `watch(ctx, clock)` sees each clock before its edge.
    """
    clocks = 0

    async def bench(ctx):
        nonlocal clocks
        while not until():
            assert clocks < limit, "it hangs"
            for model in models:
                model.drive(ctx)
            if watch is not None:
                watch(ctx, clocks)
            for model in models:
                model.sample(ctx)
            await ctx.tick()
            clocks += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return clocks


def random_store(rng, beats):
    words = rng.integers(0, 256, (beats, 32)).astype(np.uint8)
    return [int.from_bytes(word.tobytes(), "little") for word in words]


@functools.lru_cache
def _params(preset):
    return TileParams(TileConfig.preset(preset))


@pytest.fixture
def params_of():
    return _params


@pytest.fixture
def hbm():
    return Hbm


@pytest.fixture
def source():
    return Source


@pytest.fixture
def sink():
    return Sink


@pytest.fixture
def clocked():
    return run_clocks


@pytest.fixture
def store():
    return random_store
