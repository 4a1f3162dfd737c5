"""ReadGuard: transparent when open; when it closes, everything that was asked for is swallowed."""

from collections import deque

import numpy as np
import pytest

from pequin.hbm.types import HbmError
from pequin.tile.guard import ReadGuard

STORE = 1000
"""Addresses from here on are refused."""


class Channel:
    """A channel's read side: requests in order, beats in order, one beat for a refused one."""

    def __init__(self, sim, dut, *, rate):
        self.beats = sim.Source(dut.port.read_data, rate=rate)
        self.requests = sim.Sink(dut.port.request, rate=rate, answer=self.request)
        self.parts = [self.requests, self.beats]

    def request(self, asked):
        address, length = asked["address"], asked["length"]
        if address >= STORE:
            refused = {"data": 0, "error": HbmError.ADDRESS, "last": 1}
            self.beats.items.append(refused)
            return
        for i in range(length):
            self.beats.items.append({"data": address + i, "error": 0, "last": i + 1 == length})


def requests(rng, count):
    made = []
    for i in range(count):
        refused = rng.random() < 0.2
        address = STORE + i if refused else int(rng.integers(STORE))
        made.append({"address": address, "length": int(rng.integers(1, 6)), "write": 0})
    return made


def beats_of(asked):
    expected = []
    for request in asked:
        if request["address"] >= STORE:
            expected.append((0, HbmError.ADDRESS.value, 1))
        else:
            address, length = request["address"], request["length"]
            expected += [(address + i, 0, int(i + 1 == length)) for i in range(length)]
    return expected


def values(items):
    return [(item["data"], item["error"], item["last"]) for item in items]


@pytest.mark.parametrize("rates", [(1, 1, 1), (0.5, 0.3, 0.9), (0.9, 0.9, 0.3)])
def test_open_guard_passes_everything(sim, rates):
    rng = np.random.default_rng(5)
    dut = ReadGuard()
    given = requests(rng, 40)
    channel = Channel(sim, dut, rate=rates[1])
    source = sim.Source(dut.unit.request, list(given), rate=rates[0])
    sink = sim.Sink(dut.unit.read_data, rate=rates[2])
    idle = [0]

    def after(ctx, clock):
        idle[0] = ctx.get(dut.idle)

    expected = beats_of(given)
    sim.run(
        dut,
        [source, *channel.parts, sink],
        after=after,
        clocks=2000,
        until=lambda: len(sink.got) == len(expected) and idle[0],
    )
    assert values(sink.got) == expected
    assert [r["address"] for r in channel.requests.got] == [r["address"] for r in given]


class Unit:
    """A unit that asks and takes, and loses everything when it is cleared."""

    def __init__(self, sim, dut, rng, rate):
        self.source = sim.Source(dut.unit.request, rate=rate)
        self.sink = sim.Sink(dut.unit.read_data, rate=rate)
        self.rng, self.asked = rng, []
        self.parts = [self.source, self.sink]

    def begin(self):
        """Ask again, from nothing."""
        self.sink.got.clear()
        self.sink.held = None
        self.source.items.clear()
        self.source.forget()
        self.asked = requests(self.rng, 30)
        self.source.items = deque(self.asked)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("rates", "reached"),
    [
        ((1, 1), {"beats", "refused"}),
        ((0.5, 0.5), {"offered", "beats", "refused"}),
        ((0.1, 1), {"idle", "beats"}),
    ],
)
def test_closing_at_any_time_swallows_all_that_was_asked_for(sim, seed, rates, reached):
    rng = np.random.default_rng(seed)
    dut = ReadGuard()
    channel, unit = Channel(sim, dut, rate=rates[1]), Unit(sim, dut, rng, rates[0])
    state = {"closed": 0, "until": int(rng.integers(1, 40)), "stops": 0, "passed": 0}
    phases = {"offered": 0, "beats": 0, "refused": 0, "idle": 0}
    unit.begin()

    class Closing:
        """Sets `close` before the others look."""

        def drive(self, ctx, rng):
            ctx.set(dut.close, state["closed"])

        def sample(self, ctx, clock):
            pass

    def after(ctx, clock):
        if not state["closed"]:
            if clock == state["until"]:
                state["closed"] = 1
                pending = list(channel.beats.items)
                phases["offered"] += channel.requests.held is not None
                phases["beats"] += bool(pending)
                phases["refused"] += any(b["error"] == HbmError.ADDRESS for b in pending)
                phases["idle"] += not pending
                state["passed"] = len(channel.requests.got) + (channel.requests.held is not None)
                # What came until now is what was asked for; the rest is never seen.
                assert values(unit.sink.got) == beats_of(unit.asked)[: len(unit.sink.got)]
                unit.sink.held = None
            return
        assert not ctx.get(dut.unit.read_data.valid)
        if ctx.get(dut.idle) and clock > state["until"] + 1:
            # Only a request that had been offered was passed after closing.
            assert len(channel.requests.got) == state["passed"]
            assert not channel.beats.items
            assert channel.requests.held is None
            unit.begin()
            state["closed"], state["until"] = 0, clock + int(rng.integers(2, 40))
            state["stops"] += 1

    sim.run(
        dut,
        [Closing(), *unit.parts, *channel.parts],
        seed=seed,
        after=after,
        clocks=6000,
        until=lambda: state["stops"] == 25,
    )
    assert reached <= {phase for phase, count in phases.items() if count}, phases


def test_a_closed_guard_is_idle_when_nothing_was_asked_for(sim):
    dut = ReadGuard()
    source = sim.Source(dut.unit.request, requests(np.random.default_rng(0), 3), rate=1)
    channel = Channel(sim, dut, rate=1)

    def each(ctx, clock):
        ctx.set(dut.close, 1)
        assert ctx.get(dut.idle)
        assert not ctx.get(dut.port.request.valid)
        assert not ctx.get(dut.unit.request.ready)

    # It is closed before the first request is offered.
    source.rate = 0

    def after(ctx, clock):
        source.rate = 1

    sim.run(dut, [source, *channel.parts], each=each, after=after, clocks=20)
    assert source.offered
    assert not channel.requests.got
