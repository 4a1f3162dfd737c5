import itertools
import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from pequin.hbm.address import AddressMap
from pequin.hbm.config import HbmConfig
from pequin.hbm.timing import HbmGeometry
from pequin_sim.hbm.address import StreamMap

CASES = [
    (HbmGeometry(), "stream-xor"),
    (HbmGeometry(store_bytes=576 << 20), "stream-xor"),
    (HbmGeometry(store_bytes=576 << 20), "stream-plain"),
    (HbmGeometry(banks=32, rows=16384, store_bytes=512 << 20), "stream-xor"),
    (HbmGeometry(banks=16, rows=1024, store_bytes=16 << 20), "stream-xor"),
]


class _Both(wiring.Component):
    """A map and its inverse, to be compared with the description in Python."""

    def __init__(self, config):
        self.map = AddressMap(config)
        super().__init__(
            {
                "tag": In(config.tag_bits),
                "pair": Out(5),
                "row": Out(16),
                "back": Out(config.tag_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pair = Signal(5)
        m.d.comb += [
            pair.eq(self.map.pair(self.tag)),
            self.pair.eq(pair),
            self.row.eq(self.map.row(self.tag)),
            self.back.eq(self.map.chunk(pair[3:], pair[:3], self.row[: self.map._row_bits])),
        ]
        return m


@pytest.mark.parametrize(("geometry", "name"), CASES)
def test_map_and_inverse_equal_the_description(geometry, name):
    config = HbmConfig(geometry=geometry, address_map=name)
    dut = _Both(config)
    golden = StreamMap(banks=geometry.banks, rows=geometry.rows, xor=name == "stream-xor")
    chunks = geometry.store_beats // geometry.chunk_beats
    rng = random.Random(3)
    picks = [0, 1, 7, 8, chunks - 1, *(rng.randrange(chunks) for _ in range(600))]
    edge = geometry.rows * 8
    picks += [p for p in (edge - 1, edge, 2 * edge - 1, 2 * edge) if p < chunks]

    async def process(ctx):
        for tag in picks:
            ctx.set(dut.tag, tag)
            await ctx.delay(1e-9)
            place = golden.place(tag * geometry.chunk_beats)
            assert ctx.get(dut.pair) == place.group // 2 * 8 + place.bank
            assert ctx.get(dut.row) == place.row
            assert ctx.get(dut.back) == tag

    simulator = Simulator(dut)
    simulator.add_testbench(process)
    simulator.run()


def test_description_is_one_to_one():
    golden = StreamMap(rows=64)
    beats = 48 * 64 * 32
    assert len({golden.place(beat) for beat in range(beats)}) == beats


def test_a_stream_alternates_groups_and_returns_to_a_bank_late():
    golden = StreamMap()
    places = [golden.place(beat) for beat in range(64 * 24 * 4)]
    assert all(a.group != b.group for a, b in itertools.pairwise(places))
    last = {}
    shortest = 1 << 30
    for beat, place in enumerate(places):
        key = (place.group, place.bank)
        if key in last and places[last[key]].row != place.row:
            shortest = min(shortest, beat - last[key])
        last[key] = beat
    assert shortest > 16 * 64
