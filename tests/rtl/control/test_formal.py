"""Proofs by induction: semaphores never go below zero and pairs are taken whole; queues."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cat, Fragment, Module, Mux, Signal
from amaranth.lib import data

from pequin.control.in_flight import InFlight
from pequin.control.semaphores import Semaphores
from pequin.control.types import IN_FLIGHT
from pequin.tile.types import TakeRequest

UNITS = 3
"""Users in the proofs: enough for any two to meet beside a third."""


def registers(fragment):
    """Return the registers of an elaborated component by name."""
    return {
        signal.name: signal
        for statements in fragment.statements.values()
        for statement in statements
        for signal in statement._lhs_signals()
    }


def semaphore_proof(units, *, forgotten=0):
    """Follow one semaphore of any number: its count is what came minus what went, 0 to 255.

    `forgotten` is what the model adds to each take; all but 0 must fail.
    """
    m = Module()
    dut = Semaphores(units=units)
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    found = registers(inner)
    some, two = found["some"], found["two"]
    watched = AnyConst(5)
    model, less, more = Signal(8), Signal(6), Signal(5)
    # What was taken in the clock before has not left the count yet.
    gone = data.View(TakeRequest, found["gone"])
    leaving = Signal(2)
    m.d.comb += leaving.eq(
        (gone.use_first & (gone.first == watched)) + (gone.use_second & (gone.second == watched))
    )
    taken_of, signals = [], []
    for u in range(units):
        take, taken = dut.take[u], dut.taken[u]
        first = take.use_first & (take.first == watched)
        second = take.use_second & (take.second == watched)
        taken_of.append(Mux(taken, first + second + forgotten * (first | second), 0))
        signals.append(dut.signal_valid[u] & (dut.signal[u] == watched))
        # All or nothing: whoever is served finds both.
        m.d.comb += [
            Assert(~taken | dut.take_valid[u]),
            Assert(~(taken & first) | (model > (second & first))),
            Assert(~(taken & second) | (model > 0)),
        ]
        # Whoever wants what is there is served, unless a lower user was or one was just taken.
        lower = Cat(dut.taken[v] for v in range(u)).any() if u else 0
        only = first & ~take.use_second & dut.take_valid[u]
        m.d.comb += Assert(~(only & (model > 0)) | taken | lower | (leaving != 0))
    sums = [0, 0]
    for term, signal in zip(taken_of, signals, strict=True):
        sums = [sums[0] + term, sums[1] + signal]
    after = Signal(10)
    m.d.comb += [
        less.eq(sums[0]),
        more.eq(sums[1]),
        Assert(less <= model),
        after.eq(model + more),
    ]
    # A signal that is one too many is lost, with all others of that clock.
    m.d.sync += model.eq(Mux(after > 255, model + leaving, after) - less)
    over = Signal()
    m.d.sync += over.eq(after > 255)
    m.d.comb += Assert(~over | dut.overflow)
    with m.Switch(watched):
        for number, count in enumerate(dut.counts):
            with m.Case(number):
                m.d.comb += [
                    Assert(count == model + leaving),
                    Assert(some[number] == (count != 0)),
                    Assert(two[number] == (count > 1)),
                    Assert(found["over"][number] == over),
                ]
    history = [(found[f"by_{u}"] & (found[f"number_{u}"] == watched)) for u in range(units)]
    # An overflow has a signaller.
    m.d.comb += Assert(~over | Cat(history).any())
    ports = [s for u in range(units) for s in (dut.take[u].as_value(), dut.take_valid[u])]
    ports += [s for u in range(units) for s in (dut.signal[u], dut.signal_valid[u])]
    return m, ports


def test_counts_stay_between_0_and_255_and_takes_are_whole(prove):
    assert prove(*semaphore_proof(UNITS)) == "PASS"


def test_the_proof_notices_a_token_that_is_lost(prove):
    assert prove(*semaphore_proof(UNITS, forgotten=1), depth=4) == "FAIL"


def in_flight_proof(honest=True):
    """Count what goes in and out: at most 16 are inside, and the flags tell how many."""
    m = Module()
    dut = InFlight()
    inner = Fragment.get(dut, None)
    m.submodules.dut = inner
    level = Signal(6)
    m.d.comb += [
        Assume(dut.room | ~dut.push) if honest else Assume(1),
        Assert(level <= IN_FLIGHT),
        Assert(level == registers(inner)["level"]),
        Assert(dut.any == (level != 0)),
        Assert(dut.room == (level != IN_FLIGHT)),
    ]
    m.d.sync += level.eq(level + dut.push - (dut.pop & dut.any))
    return m, [dut.push, dut.pop, dut.record.as_value()]


def test_at_most_sixteen_commands_are_in_flight(prove):
    assert prove(*in_flight_proof()) == "PASS"


def test_the_proof_needs_a_queue_that_minds_the_room(prove):
    assert prove(*in_flight_proof(honest=False), depth=20) == "FAIL"
