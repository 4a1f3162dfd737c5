"""MacCommands: decoding, impossible commands, completions in order, tokens before them."""

import numpy as np
import pytest

from pequin.tile.mac_commands import IN_FLIGHT, MacCommands
from pequin.tile.types import ErrorCode, EventKind, UnitId

# docs/isa.md, table of `mac`.
BITS = {
    "format": 0,
    "two_planes": 1,
    "scaled": 2,
    "paired": 3,
    "sink": 4,
    "select_first": 5,
    "select_last": 6,
}
SOURCE_BIT = 7
WORDS = {"last_block": 1, "last_row": 2, "first_row": 3, "last_vector": 4, "base": 5}


def words_of(fields, kv=0, rest=0):
    words = [rest & ~0xFF | kv << SOURCE_BIT, 0, 0, 0, 0, 0]
    for name, bit in BITS.items():
        words[0] |= fields[name] << bit
    for name, word in WORDS.items():
        words[word] = fields[name]
    return words


def command(rng, params):
    """Return the fields of a command that is possible."""
    c = params.config
    fields = {name: int(rng.integers(2)) for name in BITS}
    if fields["format"]:
        fields["two_planes"] = 0
    blocks = int(rng.integers(1, params.max_blocks + 1))
    places = -(-blocks // 2) if fields["paired"] else blocks
    rows = int(rng.integers(1, 1 << c.index_bits))
    fields |= {
        "last_block": blocks - 1,
        "base": int(rng.integers(c.act_blocks - places + 1)),
        "last_row": rows - 1,
        "first_row": int(rng.integers((1 << c.index_bits) - rows + 1)),
        "last_vector": int(rng.integers(c.columns // 2 if fields["paired"] else c.columns)),
    }
    return fields


def entries(rng, params, number):
    """Return what the top-k registers emit for a command; some registers hold nothing."""
    c = params.config
    vectors = int(rng.integers(1, c.columns + 1))
    return [
        {
            "vector": vector,
            "rank": rank,
            "valid": int(rng.random() < 0.7),
            "value": (number << 8 | rank) & 0xFFFFFFFF,
            "index": int(rng.integers(1 << c.index_bits)),
            "last": int(vector + 1 == vectors and rank + 1 == c.top_k),
        }
        for vector in range(vectors)
        for rank in range(c.top_k)
    ]


class Array:
    """The array's ends: a status for each command, entries for those that emit."""

    def __init__(self, sim, dut, params, rng, rate, *, errors=None):
        self.params, self.rng, self.errors = params, rng, errors or {}
        self.status = sim.Source(dut.status, rate=rate)
        self.selected = sim.Source(dut.selected, rate=rate)
        self.mac = sim.Sink(dut.mac, rate=rate, answer=self.taken)
        self.expected_tokens = []
        self.parts = [self.mac, self.status, self.selected]

    def taken(self, command):
        number = len(self.mac.got) - 1
        row, flags = self.errors.get(number, (0, 0))
        names = ("nan", "term_clamped", "result_clamped")
        errors = {name: flags >> i & 1 for i, name in enumerate(names)}
        status = {"errors": errors, "error_row": row, "error_vector": 0, "zeros": 3}
        self.status.items.append(status)
        if command["sink"] and command["select_last"]:
            made = entries(self.rng, self.params, number)
            self.selected.items.extend(made)
            self.expected_tokens += [(number, entry) for entry in made if entry["valid"]]


class Ends:
    """Write down `done` and faults, with the clock."""

    def __init__(self, dut):
        self.dut, self.done, self.faults = dut, [], []

    def drive(self, ctx, rng):
        pass

    def sample(self, ctx, clock):
        if ctx.get(self.dut.done):
            self.done.append(clock)
        if ctx.get(self.dut.fault_valid):
            fault = ctx.get(self.dut.fault)
            self.faults.append((clock, fault.code, fault.detail))


@pytest.mark.parametrize(("preset", "count"), [("tiny", 60), ("ref", 25)])
@pytest.mark.parametrize("rates", [(1, 1, 1), (0.5, 0.3, 0.7), (0.9, 0.5, 0.2)])
def test_random_commands(sim, params_of, preset, count, rates):
    params, rng = params_of(preset), np.random.default_rng(11)
    dut = MacCommands(params)
    fields = [command(rng, params) for _ in range(count)]
    kv = [int(rng.integers(2)) for _ in fields]
    rest = [int(rng.integers(1 << 24)) << 8 for _ in fields]  # bits that mean nothing
    words = [words_of(*given) for given in zip(fields, kv, rest, strict=True)]
    commands = sim.Source(dut.command, words, rate=rates[0])
    source = sim.Sink(dut.source, rate=rates[1])
    array = Array(sim, dut, params, rng, rates[1])
    tokens = sim.Sink(dut.tokens, rate=rates[2])
    ends = Ends(dut)

    def after(ctx, clock):
        # The source of a command comes before the command.
        assert len(source.got) >= len(array.mac.got)
        assert len(array.mac.got) - len(ends.done) <= IN_FLIGHT + 1

    sim.run(
        dut,
        [commands, source, *array.parts, tokens, ends],
        seed=12,
        after=after,
        clocks=200 * count,
        until=lambda: len(ends.done) == count,
    )
    assert array.mac.got == fields
    assert source.got == kv
    assert not ends.faults
    assert len(tokens.got) == len(array.expected_tokens) > 5
    for event, clock, (number, entry) in zip(
        tokens.got, tokens.clocks, array.expected_tokens, strict=True
    ):
        assert event == {
            "kind": EventKind.TOKEN.value,
            "unit": UnitId.MAC.value,
            "code": entry["rank"] | entry["vector"] << 8,
            "pc": 0,
            "value": entry["index"],
            "detail": entry["value"],
            "stamp": 0,
        }
        # A token comes before its command completes, and after the command before has.
        assert clock < ends.done[number]


def emitting(**changes):
    fields = dict.fromkeys([*BITS, *WORDS], 0)
    return fields | {"sink": 1, "select_last": 1} | changes


@pytest.mark.parametrize("entries_first", [True, False])
def test_statuses_and_entries_may_come_in_any_order(sim, params_of, entries_first):
    # All entries before the first status, or all statuses before the first entry.
    dut = MacCommands(params_of("tiny"))
    quiet = emitting(select_last=0)
    given = [quiet, emitting(), emitting(), quiet, emitting()]
    commands = sim.Source(dut.command, [words_of(f) for f in given], rate=1)
    mac, source = sim.Sink(dut.mac, rate=1), sim.Sink(dut.source, rate=1)
    zero = {"errors": {}, "error_row": 0, "error_vector": 0, "zeros": 0}
    entry = {"vector": 0, "rank": 0, "valid": 1, "value": 0, "index": 0, "last": 1}
    status = sim.Source(dut.status, [zero] * 5, rate=not entries_first)
    selected = sim.Source(dut.selected, [entry] * 3, rate=entries_first)
    tokens, ends = sim.Sink(dut.tokens, rate=1), Ends(dut)

    def after(ctx, clock):
        if clock == 40:
            status.rate = selected.rate = 1

    parts = [commands, mac, source, status, selected, tokens, ends]
    sim.run(dut, parts, after=after, clocks=100, until=lambda: len(ends.done) == 5)
    assert len(tokens.got) == 3
    for token, number in zip(tokens.clocks, (1, 2, 4), strict=True):
        assert token < ends.done[number]


def impossible(params):
    """Return commands that break one rule of docs/isa.md each, beside those that just keep it."""
    c = params.config
    rows = 1 << c.index_bits
    none = dict.fromkeys([*BITS, *WORDS], 0)
    last = {"last_block": params.max_blocks - 1}
    cases = {
        "two planes of MXINT8": ({"format": 1, "two_planes": 1}, {"two_planes": 1}),
        "vector": ({"last_vector": c.columns}, {"last_vector": c.columns - 1}),
        "paired vector": (
            {"last_vector": c.columns // 2, "paired": 1},
            {"last_vector": c.columns // 2 - 1, "paired": 1},
        ),
        "wide vector": ({"last_vector": 1 << 31}, {}),
        "k": ({"last_block": params.max_blocks}, last),
        "wide k": ({"last_block": 1 << 31}, {}),
        "base": ({"base": c.act_blocks}, {"base": c.act_blocks - 1}),
        "wide base": ({"base": 0xFFFFFFFF, "last_block": 1}, {}),
        "end of the buffer": (
            {"base": c.act_blocks - 3, "last_block": 3},
            {"base": c.act_blocks - 3, "last_block": 2},
        ),
        "end of the buffer, paired": (
            {"base": c.act_blocks - 3, "last_block": 6, "paired": 1},
            {"base": c.act_blocks - 3, "last_block": 5, "paired": 1},
        ),
        "last row": ({"last_row": rows}, {"last_row": rows - 1}),
        "first row": ({"first_row": rows}, {"first_row": rows - 1}),
        "rows": ({"first_row": rows - 5, "last_row": 5}, {"first_row": rows - 5, "last_row": 4}),
        "rows that wrap": ({"first_row": 0xFFFFFFFF, "last_row": 1}, {}),
    }
    return [(name, none | bad, none | good) for name, (bad, good) in cases.items()]


@pytest.mark.parametrize("preset", ["tiny", "ref"])
def test_impossible_commands_are_refused(sim, params_of, preset):
    params = params_of(preset)
    for number, (name, bad, good) in enumerate(impossible(params)):
        dut = MacCommands(params)
        words = [words_of(good), words_of(bad, kv=1, rest=number << 16)]
        commands = sim.Source(dut.command, words, rate=1)
        array = Array(sim, dut, params, np.random.default_rng(0), 1)
        source, tokens = sim.Sink(dut.source, rate=1), sim.Sink(dut.tokens, rate=1)
        ends = Ends(dut)
        sim.run(dut, [commands, *array.parts, source, tokens, ends], clocks=30)
        assert array.mac.got == [good], name
        assert len(source.got) == 1, name
        assert len(ends.done) == 1, name
        ((_, code, detail),) = ends.faults
        assert code == ErrorCode.COMMAND, name
        assert detail == words[1][0], name


def test_a_refused_command_is_told_after_those_before_it(sim, params_of):
    # The program counter of the fault is that of the oldest command that has not completed.
    params = params_of("tiny")
    dut = MacCommands(params)
    good = emitting(select_last=0)
    words = [words_of(good)] * 3 + [words_of(good | {"base": 99})]
    commands = sim.Source(dut.command, words, rate=1)
    mac, source = sim.Sink(dut.mac, rate=1), sim.Sink(dut.source, rate=1)
    status, ends = sim.Source(dut.status, rate=0.1), Ends(dut)
    status.items.extend([{"errors": {}, "error_row": 0, "error_vector": 0, "zeros": 0}] * 3)
    sim.run(dut, [commands, mac, source, status, ends], seed=4, clocks=200)
    assert len(ends.done) == 3
    ((clock, code, _),) = ends.faults
    assert code == ErrorCode.COMMAND
    assert clock >= ends.done[-1] + 2


@pytest.mark.parametrize("flags", [1, 2, 4, 7])
def test_errors_of_results_are_faults(sim, params_of, flags):
    params = params_of("ref")
    dut = MacCommands(params)
    good = emitting(select_last=0)
    commands = sim.Source(dut.command, [words_of(good)] * 3, rate=1)
    array = Array(sim, dut, params, np.random.default_rng(0), 0.5, errors={1: (0x2BCDE, flags)})
    ends = Ends(dut)
    sim.run(dut, [commands, sim.Sink(dut.source), *array.parts, ends], clocks=60)
    assert len(ends.done) == 3
    assert ends.faults == [(ends.done[1], ErrorCode.MAC, 0x2BCDE << 8 | flags)]


def test_no_more_commands_are_in_flight_than_are_known(sim, params_of):
    params = params_of("tiny")
    dut = MacCommands(params)
    commands = sim.Source(dut.command, [words_of(emitting())] * 40, rate=1)
    mac, source = sim.Sink(dut.mac, rate=1), sim.Sink(dut.source, rate=1)
    sim.run(dut, [commands, mac, source], clocks=300)
    assert len(mac.got) == IN_FLIGHT


def test_timing(sim, params_of):
    dut = MacCommands(params_of("tiny"))
    commands = sim.Source(dut.command, [words_of(emitting())] * 5, rate=1)
    mac, source = sim.Sink(dut.mac, rate=1), sim.Sink(dut.source, rate=1)
    sim.run(dut, [commands, mac, source], clocks=30)
    assert mac.clocks == [clock + 3 for clock in commands.clocks]
    assert commands.clocks == [0, 4, 8, 12, 16]
