"""Stopper, watchdog and starter: the first fault, the order of a stop, the host's orders."""

from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Value

from pequin.errors import ConfigError
from pequin.tile.stop import CLEAR_CLOCKS, Starter, Stopper, Watchdog
from pequin.tile.types import ControlKind, ErrorCode, EventKind, UnitId


def fault(number, unit=UnitId.KV, code=ErrorCode.COMMAND):
    return {"unit": unit, "pc": 100 + number, "fault": {"code": code, "detail": 7000 + number}}


@pytest.mark.parametrize("sources", [0, -1])
def test_a_stopper_needs_sources(sources):
    with pytest.raises(
        ConfigError, match=rf"a stopper needs at least one fault source, not {sources}$"
    ):
        Stopper(sources=sources)


class Stop:
    """Raise faults at given clocks and write down what the stopper does."""

    def __init__(self, sim, sources=4):
        self.sim, self.dut = sim, Stopper(sources=sources)
        self.faults, self.drained_at, self.trace = {}, {}, []
        self.event = sim.Sink(self.dut.event, rate=1)

    def run(self, clocks, **options):
        dut = self.dut

        def each(ctx, clock):
            now = self.faults.get(clock, {})
            for i in range(dut.sources):
                ctx.set(dut.source_valid[i], i in now)
                ctx.set(dut.source[i], now.get(i, fault(99)))
            if clock in self.drained_at:
                ctx.set(dut.drained, self.drained_at[clock])
            self.trace.append(tuple(ctx.get(x) for x in (dut.freeze, dut.clear, dut.event.valid)))

        self.sim.run(dut, [self.event], each=each, clocks=clocks, **options)
        return self


def test_freeze_then_drained_then_clear_then_event(sim):
    stop = Stop(sim)
    stop.faults, stop.drained_at = {3: {2: fault(2)}}, {0: 0, 20: 1}
    trace = stop.run(40).trace
    assert trace[:4] == [(0, 0, 0)] * 4
    assert trace[4:21] == [(1, 0, 0)] * 17
    assert trace[21 : 21 + CLEAR_CLOCKS] == [(1, 1, 0)] * CLEAR_CLOCKS
    assert trace[21 + CLEAR_CLOCKS] == (1, 0, 1)
    assert trace[22 + CLEAR_CLOCKS :] == [(0, 0, 0)] * (40 - 22 - CLEAR_CLOCKS)
    assert stop.event.got == [
        {
            "kind": EventKind.ERROR.value,
            "unit": UnitId.KV.value,
            "code": ErrorCode.COMMAND.value,
            "pc": 102,
            "value": 0,
            "detail": 7002,
            "stamp": 0,
        }
    ]


def test_a_drained_signal_before_the_freeze_took_effect_does_not_count(sim):
    # A request of the clock of the fault is counted only afterwards.
    stop = Stop(sim)
    stop.faults, stop.drained_at = {3: {0: fault(0)}}, {0: 1, 6: 0, 30: 1}
    trace = stop.run(50).trace
    assert [clock for clock, now in enumerate(trace) if now[1]] == [31, 32, 33, 34]


def test_the_event_holds_the_freeze_until_it_is_taken(sim):
    stop = Stop(sim)
    stop.faults, stop.drained_at = {0: {0: fault(0)}}, {0: 1}
    stop.event.rate = 0
    trace = stop.run(40).trace
    assert trace[-1] == (1, 0, 1)
    assert not stop.event.got


@pytest.mark.parametrize(
    ("at_once", "first"), [((0, 1, 2, 3), 0), ((3, 1), 1), ((2, 3), 2), ((3,), 3)]
)
def test_of_faults_in_one_clock_the_lowest_number_counts(sim, at_once, first):
    stop = Stop(sim)
    units = [UnitId.SEQ, UnitId.MAC, UnitId.STREAM, UnitId.DMA]
    codes = [ErrorCode.PC, ErrorCode.MAC, ErrorCode.HBM_ECC, ErrorCode.SRAM_ECC]
    stop.faults = {2: {i: fault(i, units[i], codes[i]) for i in at_once}}
    stop.drained_at = {0: 1}
    stop.run(30)
    (event,) = stop.event.got
    assert event["unit"] == units[first].value
    assert event["code"] == codes[first].value
    assert (event["pc"], event["detail"]) == (100 + first, 7000 + first)


def test_random_faults_the_first_of_each_stop_is_told(sim):
    rng = np.random.default_rng(8)
    stop, clocks = Stop(sim), 1500
    number = 0
    for clock in range(clocks):
        for i in range(4):
            if rng.random() < 0.02:
                number += 1
                stop.faults.setdefault(clock, {})[i] = fault(number)
        stop.drained_at[clock] = int(rng.random() < 0.3)
    stop.event.rate = 0.3
    stop.run(clocks)
    expected, frozen = [], [now[0] for now in stop.trace]
    for clock, faults in sorted(stop.faults.items()):
        if not frozen[clock]:
            expected.append(faults[min(faults)]["pc"])
    told = [event["pc"] for event in stop.event.got]
    assert told == expected[: len(told)]
    assert len(expected) - len(told) <= 1
    assert len(told) > 30
    assert sum(map(len, stop.faults.values())) > 2 * len(told)


def test_last_stays_until_the_next_stop(sim):
    stop = Stop(sim)
    stop.faults, stop.drained_at = {2: {1: fault(1)}, 30: {0: fault(5)}}, {0: 1}
    seen = []

    def after(ctx, clock):
        last = stop.dut.last
        seen.append((ctx.get(last.fault.code), ctx.get(last.pc)))

    stop.run(45, after=after)
    assert seen[0] == seen[2] == (ErrorCode.NONE, 0)
    assert seen[3] == seen[30] == (ErrorCode.COMMAND, 101)
    assert seen[31] == seen[44] == (ErrorCode.COMMAND, 105)


def watch(sim, limit, *, clocks, moved=(), idle=()):
    """Return the clocks in which the watchdog bites; `moved` and `idle` are sets of clocks."""
    dut, bites = Watchdog(), []

    def each(ctx, clock):
        ctx.set(dut.limit, limit(clock) if callable(limit) else limit)
        ctx.set(dut.active, clock not in idle)
        ctx.set(dut.moved, clock in moved)
        if ctx.get(dut.bite):
            bites.append(clock)

    sim.run(dut, [], each=each, clocks=clocks)
    return bites


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 31])
def test_watchdog_bites_after_its_limit(sim, limit):
    # Movement in clock 4 is the last one.
    (bite, *_) = watch(sim, limit, clocks=limit + 10, moved=set(range(5)))
    assert bite == 4 + limit + 3


@pytest.mark.parametrize("limit", [1, 2, 5, 20])
def test_watchdog_lets_still_clocks_up_to_its_limit_pass(sim, limit):
    # Still for exactly `limit` clocks, again and again, whatever else moves around it.
    clocks = 30 * (limit + 2)
    for length in range(1, 4):
        period = limit + length
        moved = {clock for clock in range(clocks) if clock % period >= limit}
        assert not watch(sim, limit, clocks=clocks, moved=moved)


def test_watchdog_sleeps_while_nobody_works(sim):
    assert not watch(sim, 5, clocks=100, idle=set(range(100)))
    assert not watch(sim, 5, clocks=100, idle=set(range(0, 100, 6)))


def test_watchdog_is_off_with_limit_zero(sim):
    assert not watch(sim, 0, clocks=300)


def test_watchdog_bites_again(sim):
    bites = watch(sim, 10, clocks=100)
    assert len(bites) > 3
    assert set(np.diff(bites)) == {13}


def test_watchdog_follows_a_limit_that_is_lowered(sim):
    # By then more clocks were counted than the new limit.
    assert watch(sim, lambda clock: 20 if clock >= 50 else 1000, clocks=70)[0] == 52


class Tile:
    """What a starter sees of a tile: a sequencer, units that go on, stops."""

    def __init__(self, sim, dut, rng):
        self.sim, self.dut, self.rng = sim, dut, rng
        self.running = self.pending = self.frozen = 0
        self.log = []

    def drive(self, ctx, rng):
        dut = self.dut
        for name in ("running", "pending", "frozen"):
            ctx.set(getattr(dut, name), getattr(self, name) > 0)

    def sample(self, ctx, clock):
        dut = self.dut
        start, stop = ctx.get(dut.start), ctx.get(dut.stop_valid)
        if start:
            assert self.running == self.pending == self.frozen == 0
            self.log.append(("start", ctx.get(dut.start_pc)))
        if stop:
            assert not self.frozen
            self.log.append(("stop",))
            assert ctx.get(dut.stop).fault.code == ErrorCode.STOPPED
            assert ctx.get(dut.stop).unit == UnitId.SEQ
        if ctx.get(dut.clear_counters):
            self.log.append(("clear",))
        self.running, self.pending, self.frozen = (
            max(0, n - 1) for n in (self.running, self.pending, self.frozen)
        )
        if stop:
            self.running, self.pending, self.frozen = 0, 0, int(self.rng.integers(5, 15))
        elif start:
            self.running = int(self.rng.integers(2, 30))
            self.pending = self.running + int(self.rng.integers(0, 20))


def order(kind, pc=0):
    return {"kind": kind, "pc": pc}


def starter(sim, rng, orders, *, rate=1):
    dut = Starter()
    tile = Tile(sim, dut, rng)
    control = sim.Source(dut.control, orders, rate=rate)
    refusal = sim.Sink(
        dut.refusal, rate=rate, answer=lambda event: tile.log.append(("busy", event["pc"]))
    )
    return dut, tile, control, refusal


START, STOP, CLEAR = ControlKind.START, ControlKind.STOP, ControlKind.CLEAR


def test_start_while_a_program_runs_is_refused(sim):
    orders = [order(START, 5), order(START, 6), order(START, 7)]
    dut, tile, control, refusal = starter(sim, np.random.default_rng(0), orders)
    tile.rng = type("Long", (), {"integers": staticmethod(lambda *a: 50)})
    sim.run(dut, [tile, control, refusal], clocks=20)
    assert tile.log == [("start", 5), ("busy", 6), ("busy", 7)]
    assert {event["code"] for event in refusal.got} == {ErrorCode.BUSY.value}
    assert {event["kind"] for event in refusal.got} == {EventKind.ERROR.value}


def test_start_waits_for_the_units(sim):
    dut, tile, control, refusal = starter(sim, np.random.default_rng(0), [order(START, 9)])
    tile.pending = 12
    clocks = []

    def after(ctx, clock):
        if tile.log and not clocks:
            clocks.append(clock)

    sim.run(dut, [tile, control, refusal], after=after, clocks=30)
    assert tile.log == [("start", 9)]
    assert clocks == [12]


def test_stop_passes_a_start_that_waits_and_drops_it(sim):
    orders = [order(START, 9), order(START, 10), order(CLEAR), order(STOP), order(START, 11)]
    dut, tile, control, refusal = starter(sim, np.random.default_rng(0), orders)
    tile.pending = 1000
    sim.run(dut, [tile, control, refusal], clocks=60)
    assert tile.log == [("clear",), ("busy", 10), ("stop",), ("start", 11)]


def test_start_waits_while_the_tile_stops(sim):
    dut, tile, control, refusal = starter(sim, np.random.default_rng(0), [order(START, 9)])
    tile.frozen = 15
    sim.run(dut, [tile, control, refusal], clocks=14)
    assert tile.log == []
    assert control.sent == 0
    dut, tile, control, refusal = starter(sim, np.random.default_rng(0), [order(START, 9)])
    tile.frozen = 5
    sim.run(dut, [tile, control, refusal], clocks=14)
    assert tile.log == [("start", 9)]


def test_unknown_orders_have_no_effect(sim):
    orders = deque([{"kind": 3, "pc": 4}, order(CLEAR), order(START, 2)])
    dut = Starter()
    tile = Tile(sim, dut, np.random.default_rng(0))
    done = []

    def each(ctx, clock):
        if orders:
            now = orders[0]
            kind = now["kind"] if isinstance(now["kind"], int) else now["kind"].value
            ctx.set(Value.cast(dut.control.payload), kind | now["pc"] << 2)
        ctx.set(dut.control.valid, bool(orders))
        if orders and ctx.get(dut.control.ready):
            done.append(orders.popleft())

    sim.run(dut, [tile], each=each, clocks=10)
    assert len(done) == 3
    assert tile.log == [("clear",), ("start", 2)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rate", [1, 0.3])
def test_random_orders(sim, seed, rate):
    rng = np.random.default_rng(seed)
    kinds = rng.choice([0, 0, 0, 1, 2], size=60)
    orders = [order(ControlKind(int(kind)), pc) for pc, kind in enumerate(kinds)]
    given = list(orders)
    dut, tile, control, refusal = starter(sim, rng, orders, rate=rate)
    sim.run(dut, [tile, control, refusal], seed=seed, clocks=3000)
    assert not control.items
    # Every STOP and CLEAR acts once; every START is carried out, refused, or dropped by a STOP.
    count = {kind: sum(o["kind"] == kind for o in given) for kind in ControlKind}
    log = {
        name: [e for e in tile.log if e[0] == name] for name in ("start", "busy", "stop", "clear")
    }
    assert len(log["stop"]) == count[STOP]
    assert len(log["clear"]) == count[CLEAR]
    acted = [e[1] for e in log["start"]] + [e[1] for e in log["busy"]]
    assert len(set(acted)) == len(acted)
    starts = [o["pc"] for o in given if o["kind"] == START]
    dropped = set(starts) - set(acted)
    assert set(acted) <= set(starts)
    assert len(dropped) <= count[STOP]
    assert log["start"] == sorted(log["start"])
    assert log["busy"] == sorted(log["busy"])
    for pc in dropped:  # the next order that is neither refused nor a CLEAR is a STOP
        later = [o for o in given if o["pc"] > pc and o["pc"] not in acted and o["kind"] != CLEAR]
        assert later[0]["kind"] == STOP
