"""VectorCommands: every field by docs/isa.md's table, refusals, completions, tokens."""

import re
from pathlib import Path

import numpy as np
import pytest

from pequin.tile.types import ErrorCode, EventKind, UnitId
from pequin.tile.vector_commands import FIELDS, VectorCommands
from pequin.vector.types import address_bits, scalar_bits, vector_command

ISA = Path(__file__).parents[3] / "docs" / "isa.md"

RANGE, WORDS = 1 << 2, 14


def documented():
    """Return each field's word, lowest bit and bits, read from the table in docs/isa.md."""
    text = ISA.read_text(encoding="utf-8")
    start = text.index("`vector` and `drain` (strided")
    found = {}
    rows = re.findall(
        r"^\| ([\d, ]+) \| (.*) \|$", text[start : text.index("\n| field |", start)], re.M
    )
    for words, fields in rows:
        names = re.findall(r"`(\w+)`(?: \[(\d+)(?::(\d+))?\])?", fields)
        numbers = [int(word) for word in words.split(",")]
        places = numbers if len(numbers) > 1 else numbers * len(names)
        for word, (name, high, low) in zip(places, names, strict=True):
            if not high:
                found[name] = (word, 0, 32)
            else:
                lowest = int(low or high)
                found[name] = (word, lowest, int(high) - lowest + 1)
    return found


PLACES = documented()


def test_the_table_has_every_field_once(params_of):
    members = set(vector_command(params_of("ref")).members) - {"tag"}
    assert set(PLACES) == members
    assert FIELDS == PLACES
    bits = [(word, low + i) for word, low, width in PLACES.values() for i in range(width)]
    assert len(bits) == len(set(bits))
    assert PLACES["reduce"] == (0, 15, 2)  # the table was read, not just found empty
    assert PLACES["dst_stride"] == (7, 0, 32)


def kept_bits(params):
    """Return the bits of each field that a preset can use."""
    address, scalar = address_bits(params), scalar_bits(params)
    addresses = ("a", "b", "dst", "a_stride", "b_stride", "dst_stride")
    scalars = ("s1", "s2", "s3", "out", "multiplier", "addend")
    kept = {name: width for name, (_, _, width) in PLACES.items()}
    return kept | dict.fromkeys(addresses, address) | dict.fromkeys(scalars, scalar)


def words_of(fields, unused=0):
    words = [0] * WORDS
    for name, value in fields.items():
        word, low, _ = PLACES[name]
        words[word] |= value << low
    # Bits that no field has mean nothing.
    for word in range(WORDS):
        used = sum(((1 << width) - 1) << low for w, low, width in PLACES.values() if w == word)
        words[word] |= unused & ~used & 0xFFFFFFFF
    return words


def command(rng, params):
    # Operations 9 to 15 do not exist; they are passed, and the vector unit refuses them.
    kept = kept_bits(params)
    top = {"source": 3, "op": 9}
    return {name: int(rng.integers(top.get(name, 1 << bits))) for name, bits in kept.items()}


class Unit:
    """A vector unit: some commands of each queue at work, some entries, then the end."""

    def __init__(self, sim, dut, rng, rate):
        self.rng = rng
        self.taken = [
            sim.Sink(port, rate=rate, answer=lambda item, q=queue: self.begin(q))
            for queue, port in enumerate((dut.vector_out, dut.drain_out))
        ]
        self.responses = sim.Source(dut.responses, rate=rate)
        self.parts = [*self.taken, self.responses]
        self.tokens, self.statuses = [], ([], [])

    def begin(self, queue):
        base = {"queue": queue, "tag": 0}
        for rank in range(int(self.rng.integers(3))):
            entry = {
                "vector": int(self.rng.integers(256)),
                "rank": rank,
                "value": int(self.rng.integers(1 << 32)),
                "index": int(self.rng.integers(1 << 16)),
            }
            self.responses.items.append(base | entry | {"kind": 1})
            self.tokens.append((queue, entry))
        status = int(self.rng.choice([0, 0, 0, 1, 2, 4, 8, 16, 24]))
        self.statuses[queue].append(status)
        names = ("opcode", "length", "range", "not_finite", "overflow")
        flags = {name: status >> i & 1 for i, name in enumerate(names)}
        # Entries and ends of the other queue do not change `vector` and `index` of an end.
        noise = {"vector": 77, "rank": 1, "value": 123, "index": 99}
        self.responses.items.append(base | noise | {"kind": 0, "status": flags})


class Ends:
    """Write down completions and faults of both queues, with their clocks."""

    def __init__(self, dut):
        self.dut, self.done, self.faults = dut, ([], []), ([], [])

    def drive(self, ctx, rng):
        pass

    def sample(self, ctx, clock):
        for queue in range(2):
            if ctx.get(self.dut.done[queue]):
                self.done[queue].append(clock)
            if ctx.get(self.dut.fault_valid[queue]):
                fault = ctx.get(self.dut.fault[queue])
                assert fault.code == ErrorCode.VECTOR
                self.faults[queue].append((clock, fault.detail))


@pytest.mark.parametrize(("preset", "count"), [("tiny", 30), ("ref", 30)])
@pytest.mark.parametrize("rates", [(1, 1, 1), (0.6, 0.4, 0.5)])
def test_random_commands(sim, params_of, preset, count, rates):
    params, rng = params_of(preset), np.random.default_rng(21)
    dut = VectorCommands(params)
    given = [[command(rng, params) for _ in range(count)] for _ in range(2)]
    sources = [
        sim.Source(port, [words_of(f, int(rng.integers(1 << 32))) for f in fields], rate=rates[0])
        for port, fields in zip((dut.vector, dut.drain), given, strict=True)
    ]
    unit, ends = Unit(sim, dut, rng, rates[1]), Ends(dut)
    tokens = sim.Sink(dut.tokens, rate=rates[2])
    sim.run(
        dut,
        [*sources, *unit.parts, tokens, ends],
        seed=22,
        clocks=3000,
        until=lambda: sum(map(len, ends.done)) == 2 * count,
    )
    for queue in range(2):
        assert unit.taken[queue].got == [fields | {"tag": 0} for fields in given[queue]]
        wrong = [
            (clock, status)
            for clock, status in zip(ends.done[queue], unit.statuses[queue], strict=True)
            if status
        ]
        assert ends.faults[queue] == wrong
        assert wrong
    assert len(tokens.got) == len(unit.tokens) > 10
    for event, (queue, entry) in zip(tokens.got, unit.tokens, strict=True):
        assert event == {
            "kind": EventKind.TOKEN.value,
            "unit": (UnitId.VECTOR, UnitId.DRAIN)[queue].value,
            "code": entry["rank"] | entry["vector"] << 8,
            "pc": 0,
            "value": entry["index"],
            "detail": entry["value"],
            "stamp": 0,
        }


def test_every_bit_of_every_field(sim, params_of):
    # One bit at a time: a field that is decoded from a wrong place shows here.
    params = params_of("ref")
    dut = VectorCommands(params)
    kept = kept_bits(params)
    fields = [{name: 1 << bit} for name, bits in kept.items() for bit in range(bits)]
    half = len(fields) // 2
    parts = [
        sim.Source(dut.vector, [words_of(f) for f in fields[:half]], rate=1),
        sim.Source(dut.drain, [words_of(f) for f in fields[half:]], rate=1),
    ]
    sinks = [sim.Sink(dut.vector_out, rate=1), sim.Sink(dut.drain_out, rate=1)]
    sim.run(dut, [*parts, *sinks], clocks=3 * len(fields))
    zero = dict.fromkeys(kept, 0) | {"tag": 0}
    got = sinks[0].got + sinks[1].got
    assert got == [zero | field for field in fields]


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("queue", [0, 1])
def test_fields_that_are_too_wide_are_refused(sim, params_of, preset, queue):
    params = params_of(preset)
    kept = kept_bits(params)
    wide = [
        {name: 1 << bit}
        for name, (_, _, width) in PLACES.items()
        for bit in range(kept[name], width)
    ]
    assert len(wide) == {"tiny": 6 * 22 + 6 * 4, "ref": 6 * 14}[preset]
    dut, good = VectorCommands(params), {"length": 5}
    port, out = ((dut.vector, dut.vector_out), (dut.drain, dut.drain_out))[queue]
    source = sim.Source(port, [words_of(f) for f in [*wide, good]], rate=1)
    sink, ends = sim.Sink(out, rate=1), Ends(dut)
    sim.run(dut, [source, sink, ends], clocks=4 * len(wide) + 10)
    assert [item["length"] for item in sink.got] == [5]
    assert [detail for _, detail in ends.faults[queue]] == [RANGE] * len(wide)
    assert not ends.faults[1 - queue]
    assert ends.done == ([], [])


def test_a_refused_command_is_told_after_those_before_it(sim, params_of):
    # The program counter of the fault is that of the oldest command that has not completed.
    dut = VectorCommands(params_of("tiny"))
    words = [words_of({"length": 1})] * 3 + [words_of({"a": 1 << 31})]
    source = sim.Source(dut.drain, words, rate=1)
    unit, ends = Unit(sim, dut, np.random.default_rng(5), 0.1), Ends(dut)
    unit.taken[1].rate = 1
    tokens = sim.Sink(dut.tokens, rate=1)
    sim.run(dut, [source, *unit.parts, tokens, ends], seed=1, clocks=300)
    assert len(ends.done[1]) == 3
    clock, detail = ends.faults[1][-1]
    assert detail == RANGE
    assert clock > ends.done[1][-1]
    assert sum(status != 0 for status in unit.statuses[1]) + 1 == len(ends.faults[1])


def test_queues_do_not_wait_for_each_other(sim, params_of):
    dut = VectorCommands(params_of("tiny"))
    sources = [
        sim.Source(port, [words_of({"length": 3})] * 5, rate=1) for port in (dut.vector, dut.drain)
    ]
    drain = sim.Sink(dut.drain_out, rate=1)
    vector = sim.Sink(dut.vector_out, rate=0)
    sim.run(dut, [*sources, vector, drain], clocks=30)
    assert len(drain.got) == 5
    assert drain.clocks == [clock + 2 for clock in sources[1].clocks]
    assert sources[1].clocks == [0, 3, 6, 9, 12]
