"""Proof by induction: the reader never has more on its way than its queue takes."""

from amaranth.hdl import Assert, Assume, Fragment, Module

from pequin.kv.reader import TRANSFERS, KvReader


def places_proof(driven, params, *, limit=TRANSFERS):
    """Let banks and consumers do what they like; claim that `limit` transfers are enough."""
    m = Module()
    dut = KvReader(params)
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    queue = next(sub for sub, name, *_ in inner.subfragments if name == "transfers")
    level, places = driven(queue, "level"), driven(inner, "places")
    flights = [driven(inner, f"flight_{i}") for i in range(2)]
    none_at = 1 + dut.reads.payload.shape()["none"].offset
    moving = [flight[0] & ~flight[none_at] for flight in flights]
    m.d.comb += [
        Assume(~(dut.granted & ~dut.want).any()),
        Assert(places + level + moving[0] + moving[1] <= limit),
        Assert(level <= TRANSFERS),
    ]
    write, ready = driven(inner, "w_en"), driven(queue, "w_rdy")
    m.d.comb += Assert(~write | ready)
    ports = [dut.reads.valid, dut.reads.payload.as_value(), dut.granted, dut.failed]
    return m, [*ports, *dut.data, dut.output.ready, dut.active, dut.waits]


def test_a_transfer_always_has_a_place(prove, driven, params):
    assert prove(*places_proof(driven, params), depth=2) == "PASS"


def test_all_places_are_used(prove, driven, params):
    assert prove(*places_proof(driven, params, limit=TRANSFERS - 1), depth=2) == "FAIL"
