"""EventMerge: the order of coming, the lowest number first, stamps, and who is blocked."""

import pytest

from pequin.errors import ConfigError
from pequin.tile.events import EventMerge
from pequin.tile.types import STAMP_BITS, EventKind


@pytest.mark.parametrize("sources", [0, -3])
def test_needs_a_source(sources):
    message = rf"an event merge needs at least one source, not {sources}$"
    with pytest.raises(ConfigError, match=message):
        EventMerge(sources=sources)


@pytest.mark.parametrize("depth", [1, 0])
def test_needs_two_places(depth):
    message = rf"an event merge needs at least 2 places, not {depth}$"
    with pytest.raises(ConfigError, match=message):
        EventMerge(sources=3, depth=depth)


def test_properties():
    merge = EventMerge(sources=3)
    assert (merge.sources, merge.depth) == (3, 16)


def event(source, number):
    return {
        "kind": EventKind.DONE,
        "unit": source,
        "code": number,
        "pc": 1000 + number,
        "value": 1 << 31 | number,
        "detail": 0xABCD,
        # Stamps of the sources are not read.
        "stamp": 12345,
    }


START = (1 << STAMP_BITS) - 500
"""Stamp of the first clock: all bits move."""


def merge(sim, items, *, rates, depth=16, seed=0, clocks=3000, each=None):
    """Return the merge's sources, its sink, and the clocks in which it was blocked."""
    dut = EventMerge(sources=len(items), depth=depth)
    sources = [sim.Source(dut.source[i], given, rate=rates[0]) for i, given in enumerate(items)]
    output, blocked = sim.Sink(dut.output, rate=rates[1]), []
    total = sum(map(len, items))

    def look(ctx, clock):
        ctx.set(dut.stamp, (START + clock) % (1 << STAMP_BITS))
        if each is not None:
            each(output, clock)

    def after(ctx, clock):
        waits = [source.offered for source in sources]
        if ctx.get(dut.blocked):
            blocked.append(clock)
            assert any(waits)

    sim.run(
        dut,
        [*sources, output],
        seed=seed,
        each=look,
        after=after,
        clocks=clocks,
        until=lambda: len(output.got) == total,
    )
    return sources, output, blocked


@pytest.mark.parametrize("rates", [(1, 1), (0.1, 1), (0.5, 0.3), (0.05, 0.05)])
@pytest.mark.parametrize("depth", [2, 16])
def test_every_event_once_with_its_stamp(sim, rates, depth):
    items = [[event(i, n) for n in range(25)] for i in range(4)]
    sources, output, blocked = merge(sim, items, rates=rates, depth=depth)
    accepted = sorted(
        (clock, i, n) for i, s in enumerate(sources) for n, clock in enumerate(s.clocks)
    )
    # One event a clock, in the order in which they were accepted.
    assert len({clock for clock, _, _ in accepted}) == 100
    for got, (clock, i, n) in zip(output.got, accepted, strict=True):
        stamp = (START + clock) % (1 << STAMP_BITS)
        assert got == event(i, n) | {"kind": EventKind.DONE.value, "stamp": stamp}
    if rates == (0.5, 0.3):
        assert blocked


def test_of_one_clock_the_lowest_number_comes_first(sim):
    items = [[event(i, n) for n in range(3)] for i in range(3)]
    sources, output, _ = merge(sim, items, rates=(1, 1))
    assert [e["unit"] for e in output.got] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [clock for s in sources for clock in s.clocks] == list(range(9))


def test_blocked_while_there_is_no_room(sim):
    items = [[event(0, n) for n in range(10)], []]

    def each(output, clock):
        output.rate = clock >= 40

    sources, _, blocked = merge(sim, items, rates=(1, 0), depth=4, each=each)
    assert sources[0].clocks[:4] == [0, 1, 2, 3]
    assert blocked[0] == 4
    assert set(range(4, 40)) <= set(blocked)
    assert blocked[-1] < 50
