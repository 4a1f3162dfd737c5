"""Stream drivers and monitors with random pauses, clock by clock in Amaranth's simulator."""

import functools
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import Shape, Value
from amaranth.lib import data
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams


def decode(shape, raw):
    """Return a payload's raw bits as nested dictionaries, lists and integers."""
    if isinstance(shape, Shape) or not hasattr(shape, "from_bits"):
        return raw
    return _plain(shape.from_bits(raw), shape)


def _plain(value, shape):
    layout = shape
    while not isinstance(layout, data.Layout) and hasattr(layout, "as_shape"):
        layout = layout.as_shape()
    if isinstance(layout, data.StructLayout):
        return {name: _plain(value[name], member) for name, member in layout.members.items()}
    if isinstance(layout, data.ArrayLayout):
        return [_plain(value[i], layout.elem_shape) for i in range(layout.length)]
    return getattr(value, "value", value)


class Source:
    """Offers items to a stream; an item that was offered stays until it is taken.

    Parameters
    ----------
    stream
        The component's input.
    items
        Payloads, as for `ctx.set`; more may be appended to `items` at any time.
    rate
        Chance that the next item is offered in a clock.
    """

    def __init__(self, stream, items=(), *, rate=0.6):
        self.stream, self.items, self.rate = stream, deque(items), rate
        self.offered, self.sent, self.clocks = False, 0, []

    def drive(self, ctx, rng):
        if self.items and not self.offered and rng.random() < self.rate:
            self.offered = True
            ctx.set(self.stream.payload, self.items[0])
        ctx.set(self.stream.valid, self.offered)

    def sample(self, ctx, clock):
        if self.offered and ctx.get(self.stream.ready):
            self.items.popleft()
            self.offered = False
            self.sent += 1
            self.clocks.append(clock)

    def forget(self):
        """Take back what is offered, as a source that is reset."""
        self.offered = False


class Sink:
    """Takes items from a stream and checks that an offered one stays until it is taken.

    Parameters
    ----------
    stream
        The component's output.
    rate
        Chance that an item is taken in a clock.
    answer
        Called with each item, when it was taken.
    relevant
        What of an item has a meaning; only that must stay.
    """

    def __init__(self, stream, *, rate=0.6, answer=None, relevant=lambda item: item):
        self.stream, self.rate, self.answer = stream, rate, answer
        self.relevant = relevant
        self.got, self.clocks, self.held = [], [], None
        self.payload = Value.cast(stream.payload)

    def drive(self, ctx, rng):
        self.ready = bool(rng.random() < self.rate)
        ctx.set(self.stream.ready, self.ready)

    def sample(self, ctx, clock):
        valid, raw = ctx.get(self.stream.valid), ctx.get(self.payload)
        if self.held is not None:
            assert valid, "an item was taken back before it was taken"
            item, before = (self.relevant(self.decoded(x)) for x in (raw, self.held))
            assert item == before, "an item changed before it was taken"
        self.held = raw if valid and not self.ready else None
        if valid and self.ready:
            self.got.append(self.decoded(raw))
            self.clocks.append(clock)
            if self.answer is not None:
                self.answer(self.got[-1])

    def decoded(self, raw):
        return decode(self.stream.payload.shape(), raw)


def run(dut, parts, *, seed=0, clocks=100, until=None, each=None, after=None):
    """Simulate until `until()` holds, or for a number of clocks, which is then the limit.

    In each clock the parts drive, `each(ctx, clock)` sets and looks, the parts sample;
    `after(ctx, clock)` sees the same clock's values. Returns the clocks that were simulated.
    """
    rng = np.random.default_rng(seed)
    count = 0

    async def bench(ctx):
        nonlocal count
        for clock in range(clocks):
            for part in parts:
                part.drive(ctx, rng)
            if each is not None:
                each(ctx, clock)
            for part in parts:
                part.sample(ctx, clock)
            if after is not None:
                after(ctx, clock)
            count = clock
            if until is not None and until():
                return
            await ctx.tick()
        assert until is None, f"not at its end after {clocks} clocks"

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return count


@pytest.fixture(scope="session")
def sim():
    """Return `Source`, `Sink`, `run` and `decode`."""
    return SimpleNamespace(Source=Source, Sink=Sink, run=run, decode=decode)


@functools.lru_cache
def _params(preset):
    return TileParams(TileConfig.preset(preset))


@pytest.fixture(scope="session")
def params_of():
    """Return a function from a preset's name to its parameters."""
    return _params
