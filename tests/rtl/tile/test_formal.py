"""Proofs by induction: what a guard passes and counts, and the order of a stop."""

from amaranth.asserts import Initial
from amaranth.hdl import Assert, Assume, Fragment, Module, Signal, Value

from pequin.tile.guard import COUNT_BITS, ReadGuard
from pequin.tile.stop import CLEAR_CLOCKS, Stopper


def register(fragment, name):
    """Return a register inside an elaborated component by its name."""
    found = {
        signal.name: signal
        for statements in fragment.statements.values()
        for statement in statements
        for signal in statement._lhs_signals()
    }
    return found[name]


def guard_proof(honest=True):
    """Count beside the guard, and compare; nothing new passes a guard that is closed.

    A unit keeps what it offers (unless not `honest`), and a channel answers what was asked for
    and has fewer requests than the count can hold.
    """
    m = Module()
    dut = ReadGuard()
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    requests, offered = register(inner, "requests"), register(inner, "offered")
    fresh = Initial()
    request, data = dut.port.request, dut.port.read_data
    sent, ended = Signal(), Signal()
    asked = Signal(COUNT_BITS)
    held, was_held, kept = Signal(), Signal(), Signal(Value.cast(request.payload).shape())
    unit_kept = Signal.like(kept)
    m.d.comb += [
        sent.eq(request.valid & request.ready),
        ended.eq(data.valid & data.ready & data.payload.last),
        held.eq(request.valid & ~request.ready),
        Assume(~data.valid | (asked != 0)),
        Assume(asked != (1 << COUNT_BITS) - 1),
    ]
    m.d.sync += [
        asked.eq(asked + sent - ended),
        was_held.eq(held),
        kept.eq(Value.cast(request.payload)),
        unit_kept.eq(Value.cast(dut.unit.request.payload)),
    ]
    unit_held = Signal()
    m.d.sync += unit_held.eq(dut.unit.request.valid & ~dut.unit.request.ready)
    if honest:
        m.d.comb += Assume(
            ~unit_held
            | (dut.unit.request.valid & (Value.cast(dut.unit.request.payload) == unit_kept))
        )
    m.d.comb += [
        Assert(requests == asked),
        Assert(offered == was_held),
        Assert(~offered | unit_held),
        Assert(dut.idle == ((asked == 0) & ~was_held)),
        # A request and a beat are the same on both sides, or on neither.
        Assert((dut.unit.request.valid & dut.unit.request.ready) == sent),
        Assert(dut.close | (dut.unit.read_data.valid == data.valid)),
        Assert(~dut.close | ~dut.unit.read_data.valid),
        # Closed: nothing new, and nothing is held up.
        Assert(~dut.close | was_held | ~request.valid),
        Assert(~dut.close | data.ready),
    ]
    with m.If(~fresh & was_held):
        m.d.comb += Assert(request.valid & (Value.cast(request.payload) == kept))
    ports = [
        *(dut.close, dut.unit.request.valid, Value.cast(dut.unit.request.payload)),
        *(dut.unit.read_data.ready, request.ready, data.valid, Value.cast(data.payload)),
    ]
    return m, ports


def test_a_guard_counts_and_closes(prove):
    assert prove(*guard_proof()) == "PASS"


def test_the_guard_proof_needs_units_that_keep_what_they_offer(prove):
    assert prove(*guard_proof(honest=False), depth=4) == "FAIL"


def stopper_proof(sources=3, trusting=False):
    """Follow a stop beside the stopper: its order, one event for each, of the first fault.

    `trusting` asserts what only holds when the reads were drained at once.
    """
    m = Module()
    dut = Stopper(sources=sources)
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    state, left = register(inner, "stop_state"), register(inner, "left")
    fresh, fault = Initial(), Signal()
    numbers = {name: Signal() for name in ("run", "drain", "drained", "clear", "tell")}
    for number, signal in enumerate(numbers.values()):
        m.d.comb += signal.eq(state == number)
    was = {name: Signal(name=f"was_{name}", init=name == "run") for name in numbers}
    m.d.sync += [was[name].eq(now) for name, now in numbers.items()]
    drained_before, taken_before, fault_before = Signal(), Signal(), Signal()
    faults = [dut.source_valid[i] for i in range(sources)]
    expected = Signal(Value.cast(dut.last).shape())
    told, stops = Signal(4), Signal(4)
    frozen_clocks = Signal(range(64))
    with m.If(dut.freeze & (frozen_clocks != 63)):
        m.d.sync += frozen_clocks.eq(frozen_clocks + 1)
    with m.If(~dut.freeze):
        m.d.sync += frozen_clocks.eq(0)
    for i in reversed(range(sources)):
        with m.If(faults[i]):
            m.d.comb += fault.eq(1)
            with m.If(~dut.freeze):
                m.d.sync += expected.eq(Value.cast(dut.source[i]))
    m.d.sync += [
        drained_before.eq(dut.drained),
        taken_before.eq(dut.event.valid & dut.event.ready),
        fault_before.eq(fault),
        stops.eq(stops + (fault & ~dut.freeze)),
        told.eq(told + (dut.event.valid & dut.event.ready)),
    ]
    m.d.comb += [
        Assert(state <= 4),
        Assert(dut.freeze == ~numbers["run"]),
        Assert(dut.clear == numbers["clear"]),
        Assert(dut.event.valid == numbers["tell"]),
        # Every stop is told once, before the next one.
        Assert(stops == (told + dut.freeze)[:4]),
        Assert(~dut.freeze | (Value.cast(dut.last) == expected)),
        Assert(~(numbers["drained"] | numbers["clear"]) | (frozen_clocks >= CLEAR_CLOCKS)),
        Assert(~numbers["drain"] | (frozen_clocks + left == CLEAR_CLOCKS - 1)),
        Assert(~numbers["drained"] | was["drain"] | (left == CLEAR_CLOCKS - 1)),
    ]
    with m.If(~fresh):
        m.d.comb += [
            Assert(~numbers["clear"] | was["clear"] | (was["drained"] & drained_before)),
            Assert(~numbers["tell"] | was["tell"] | was["clear"]),
            Assert(~numbers["run"] | was["run"] | (was["tell"] & taken_before)),
            Assert(~(was["run"] & fault_before) | numbers["drain"]),
        ]
    if trusting:
        m.d.comb += Assert(frozen_clocks < 20)
    ports = [dut.drained, dut.event.ready, *faults]
    return m, [*ports, *(Value.cast(dut.source[i]) for i in range(sources))]


def test_a_stop_has_one_order_and_one_event(prove):
    assert prove(*stopper_proof()) == "PASS"


def test_a_stop_may_take_any_time(prove):
    assert prove(*stopper_proof(trusting=True), depth=24) == "FAIL"
