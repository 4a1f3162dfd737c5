"""The sequencer against an interpreter: instructions, random programs, errors, timing."""

import random

import pytest
from amaranth.sim import Simulator

from pequin.control.sequencer import Sequencer
from pequin.control.types import SequencerCause

UNITS = {1: 6, 2: 2, 3: 5, 4: 14, 5: 14, 6: 5}
SIZE = 128
EDGES = (0, 1, 2, 31, 32, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def constants(ins, values):
    """Return instructions that set r1, r2, ... to values."""
    return [ins("addi", rd=i, imm=value) for i, value in enumerate(values, start=1)]


def dump(ins):
    """Return instructions that tell all registers, and halt."""
    return [*(ins("event", rs=r, imm=r) for r in range(16)), ins("halt")]


def compare(bench, model, jobs):
    """Run jobs on both and compare everything that went out."""
    for job, got in zip(jobs, bench.run(jobs), strict=True):
        expected = model.run(**{k: v for k, v in job.items() if k != "limit"})
        for kind in ("events", "signals", "takes", "fault"):
            assert getattr(got, kind) == getattr(expected, kind), (kind, job)
        # A fault may stop the tile before the last item is taken.
        sent = len(got.items) if expected.fault else len(expected.items)
        assert got.items == expected.items[:sent]
        assert sent >= len(expected.items) - 1
        if expected.fault:
            model.clear()


@pytest.fixture
def check(params, sequencer_bench, interpreter):
    """Return a function that compares jobs on a small sequencer with the interpreter."""

    def run(jobs, *, size=SIZE, columns=2, **options):
        bench = sequencer_bench(params(program_words=size, columns=columns), **options)
        compare(bench, interpreter(size), jobs)
        return bench

    return run


@pytest.mark.parametrize("name", ["add", "sub", "and", "mul"])
def test_register_arithmetic(check, instruction, name):
    rng, jobs = random.Random(name), []
    pairs = [(a, b) for a in EDGES for b in EDGES]
    pairs += [(rng.getrandbits(32), rng.getrandbits(32)) for _ in range(100)]
    for first in range(0, len(pairs), 20):
        program = []
        for a, b in pairs[first : first + 20]:
            program += constants(instruction, (a, b))
            program += [instruction(name, rd=3, rs=1, rt=2), instruction("event", rs=3)]
        jobs.append({"program": [*program, instruction("halt")]})
    check(jobs)


@pytest.mark.parametrize("name", ["addi", "andi", "shl", "shr"])
def test_immediate_arithmetic(check, instruction, name):
    rng, jobs = random.Random(name), []
    seconds = range(32) if name in ("shl", "shr") else EDGES
    pairs = [(rng.getrandbits(32), b) for b in seconds for _ in range(4)]
    pairs += [(a, b) for a in EDGES for b in seconds]
    for first in range(0, len(pairs), 20):
        program = []
        for a, b in pairs[first : first + 20]:
            program += [*constants(instruction, (a,)), instruction(name, rd=2, rs=1, imm=b)]
            program += [instruction("event", rs=2)]
        jobs.append({"program": [*program, instruction("halt")]})
    check(jobs)


@pytest.mark.parametrize("name", ["beq", "bne", "blt", "bge"])
def test_branches(check, instruction, name):
    rng = random.Random(name)
    pairs = [(a, b) for a in EDGES for b in EDGES] + [(a, a) for a in EDGES]
    rng.shuffle(pairs)
    jobs = []
    for first in range(0, len(pairs), 15):
        program = []
        for a, b in pairs[first : first + 15]:
            program += constants(instruction, (a, b))
            over = len(program) + 2
            program += [instruction(name, rs=1, rt=2, imm=over), instruction("event", imm=over)]
        jobs.append({"program": [*program, instruction("halt")]})
    check(jobs)


def test_r0_reads_as_zero_and_every_register_holds_its_own_value(check, instruction):
    program = [instruction("addi", rd=r, imm=0x1000 + r) for r in range(16)]
    program += [instruction("mul", rd=0, rs=1, rt=2)]
    check([{"program": program + dump(instruction)}])


@pytest.mark.parametrize("columns", [2, 6, 16])
def test_step_table(check, instruction, columns):
    rng = random.Random(columns)
    steps = [
        [[rng.getrandbits(32) for _ in range(6)] for _ in range(count)]
        for count in (columns, 1, columns - 1, 0, columns)
    ]
    program = [instruction("ldt", rd=1, rs=0, imm=15), instruction("event", rs=1)]
    for columns_sent in steps:
        program += [instruction("step"), instruction("ldt", rd=1, rs=9, imm=15)]
        program += [instruction("event", rs=1)]
        for column in range(len(columns_sent)):
            program.append(instruction("addi", rd=2, imm=column))
            for field in range(6):
                program += [instruction("ldt", rd=3, rs=2, imm=field)]
                program += [instruction("event", rs=3)]
    program.append(instruction("halt"))
    check([{"program": program, "steps": steps}], size=1024, columns=columns, pause=0.4)


def test_rows_of_an_earlier_step_are_out_of_reach(check, instruction):
    rows = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]
    read = [instruction("addi", rd=1, imm=1), instruction("ldt", rd=2, rs=1, imm=3)]
    step = [instruction("step")]
    check(
        [
            {"program": read},
            {"program": [*step, *read, *step, *read], "steps": [rows, rows[:1]]},
            {"program": read},  # the reset has emptied the table
            {"program": [*step, *read, instruction("halt")], "steps": [rows]},
            {"program": [*read, instruction("halt")]},  # a halt has not
        ]
    )


ERRORS = {
    "empty memory": ([0], 1, 0),
    "unknown opcode": (["nothing", 21], 1, 21),
    "highest opcode": ([0xFF], 1, 0xFF),
    "halt with rd": ([1 | 1 << 8], 1, 1),
    "shift of 32": ([("shl", {"rd": 1, "rs": 1, "imm": 32})], 1, 7),
    "huge shift": ([("shr", {"rd": 1, "rs": 1, "imm": 1 << 31})], 1, 8),
    "event code": ([("event", {"imm": 1 << 16})], 1, 19),
    "launch bit 26": ([("launch", {"unit": 1, "imm": 1 << 26})], 1, 16),
    "launch bit 31": ([("launch", {"unit": 1, "imm": 1 << 31})], 1, 16),
    "illegal before unit": ([("launch", {"unit": 9, "rs": 1})], 1, 16),
    "branch to the end": ([("beq", {"imm": SIZE})], 2, SIZE),
    "branch far": ([("bge", {"imm": 0xFFFF0000})], 2, 0xFFFF0000),
    "table field": (["step", ("ldt", {"rd": 1, "imm": 6})], 3, 0),
    "table field 14": (["step", ("ldt", {"rd": 1, "imm": 14})], 3, 0),
    "table field 31": (["step", ("ldt", {"rd": 1, "imm": 31})], 3, 0),
    "table column": (["step", ("addi", {"rd": 1, "imm": 1 << 31}), ("ldt", {"rs": 1})], 3, 1 << 31),
    "set seq": ([("set", {"unit": 0, "reg": 0})], 4, 0),
    "set unit 7": ([("set", {"unit": 7, "reg": 3})], 4, 0x703),
    "set unit 15": ([("set", {"unit": 15, "reg": 255})], 4, 0xFFF),
    "set word": ([("set", {"unit": 2, "reg": 2})], 4, 0x202),
    "set word 15": ([("set", {"unit": 4, "reg": 15})], 4, 0x40F),
    "set stride": ([("set", {"unit": 1, "reg": 0x14})], 4, 0x114),
    "set level 4": ([("set", {"unit": 1, "reg": 0x43})], 4, 0x143),
    "launch seq": ([("launch", {"unit": 0})], 4, 0),
    "launch unit 8": ([("launch", {"unit": 8})], 4, 0x800),
    "unit before semaphore": ([("launch", {"unit": 8, "imm": 1 << 2 | 40 << 3})], 4, 0x800),
    "launch signal": ([("launch", {"unit": 1, "imm": 1 << 2 | 32 << 3})], 5, 32),
    "launch wait a": ([("launch", {"unit": 1, "imm": 1 << 10 | 63 << 11})], 5, 63),
    "launch wait b": ([("launch", {"unit": 6, "imm": 1 << 18 | 33 << 19})], 5, 33),
    "first of two": (
        [("launch", {"unit": 6, "imm": 1 << 18 | 33 << 19 | 1 << 10 | 34 << 11})],
        5,
        34,
    ),
    "wait": ([("wait", {"imm": 32})], 5, 32),
    "wait far": ([("wait", {"imm": 1 << 31})], 5, 1 << 31),
    "signal": ([("signal", {"imm": 64})], 5, 64),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(check, params, sequencer_bench, instruction, case):
    words, code, detail = ERRORS[case]
    before = constants(instruction, range(5, 9))
    program = list(before)
    for word in words:
        if isinstance(word, str):
            program += [instruction("step")] if word == "step" else []
        else:
            program.append(instruction(word[0], **word[1]) if isinstance(word, tuple) else word)
    steps = [[[1] * 6]] if "step" in words else []
    job = {"program": program, "steps": steps}
    # After the error everything works as after a reset.
    again = {"program": dump(instruction)}
    bench = sequencer_bench(params(program_words=SIZE))
    first, second = bench.run([job, again])
    assert first.fault == (code, detail, len(program) - 1)
    assert second.fault is None
    assert [value for *_, value in second.events] == [0] * 16
    check([job, again], pause=0.5)


@pytest.mark.parametrize("name", ["rd", "rs", "rt", "unit", "reg", "imm"])
def test_unused_fields_must_be_zero(check, instruction, interpreter, name):
    uses = {"halt": "", "add": "rd rs rt", "shl": "rd rs imm", "beq": "rs rt imm"}
    uses |= {"set": "unit reg rs imm", "launch": "unit imm", "wait": "imm", "event": "rs imm"}
    uses |= {"mul": "rd rs rt", "ldt": "rd rs imm", "step": "", "signal": "imm"}
    jobs = []
    for opcode, used in uses.items():
        fields = {"unit": 1} if "unit" in used else {}
        if name not in used.split():
            for value in (1, 8):
                jobs.append({"program": [instruction(opcode, **{**fields, name: value})]})
    traces = [interpreter(SIZE).run(job["program"]) for job in jobs]
    assert {trace.fault[0] for trace in traces} == {1}
    check(jobs)


def test_numbers_of_semaphores_that_take_no_part_are_ignored(check, instruction):
    word = 63 << 3 | 62 << 11 | 61 << 19
    check([{"program": [instruction("launch", unit=1, imm=word), instruction("halt")]}])


def test_every_unit_register(check, instruction):
    jobs = []
    for unit in range(8):
        for reg in range(0, 256, 1 if unit in UNITS else 17):
            program = [instruction("set", unit=unit, reg=reg, imm=reg), instruction("halt")]
            jobs.append({"program": program})
    check(jobs)


@pytest.mark.parametrize("size", [16, 128])
def test_leaving_the_memory(check, instruction, size):
    filler = [instruction("addi", rd=1, rs=1, imm=1)] * (size - 1)
    lasts = ["mul", "wait", "event", "set", "signal", "ldt", "beq", "halt"]
    fields = {"event": {"imm": 3}, "set": {"unit": 2}, "wait": {"imm": 5}}
    fields |= {"ldt": {"rd": 1, "imm": 15}, "beq": {"imm": size - 3}, "signal": {"imm": 31}}
    jobs = []
    for last in lasts:
        word = instruction(last, **fields.get(last, {}))
        if last == "beq":
            word = instruction("bne", imm=3)  # not taken
        jobs.append({"program": [*filler, word], "start": size - 4})
    jobs += [{"program": filler, "start": start} for start in (size, size + 1, 0xFFFF)]
    check(jobs, size=size, pause=0.3)


def test_words_that_cannot_be_read_count_only_when_executed(check, instruction):
    program = [instruction("beq", imm=3), 0, 0, instruction("addi", rd=1, imm=1)]
    program += [instruction("event", rs=1), instruction("halt")]
    check(
        [
            {"program": program, "failing": (1, 2, 6, 7)},
            {"program": program, "failing": (4,)},
            {"program": program, "failing": (5,)},
            {"program": program, "failing": (0,)},
        ]
    )


def random_program(rng, ins, columns):
    """Return a program that goes forward but for a few counted loops."""
    program, steps = [ins("addi", rd=r, imm=rng.choice(EDGES)) for r in range(1, 6)], 0
    while len(program) < SIZE - 40:
        kind = rng.random()
        rd, rs, rt = (rng.randrange(12) for _ in range(3))
        imm = rng.choice((rng.getrandbits(32), rng.randrange(32), rng.choice(EDGES)))
        if kind < 0.15:
            program.append(ins(rng.choice(("add", "sub", "and", "mul")), rd=rd, rs=rs, rt=rt))
        elif kind < 0.25:
            program.append(ins(rng.choice(("addi", "andi")), rd=rd, rs=rs, imm=imm))
        elif kind < 0.3:
            program.append(ins(rng.choice(("shl", "shr")), rd=rd, rs=rs, imm=rng.randrange(32)))
        elif kind < 0.4:
            name = rng.choice(("beq", "bne", "blt", "bge"))
            program.append(ins(name, rs=rs, rt=rt, imm=len(program) + rng.randrange(1, 5)))
        elif kind < 0.45:  # a loop of two to four rounds
            program.append(ins("addi", rd=12, imm=rng.randrange(2, 5)))
            body = len(program)
            program += [ins("event", rs=12, imm=1)] * rng.randrange(3)
            program += [ins("addi", rd=12, rs=12, imm=-1), ins("bne", rs=12, rt=0, imm=body)]
        elif kind < 0.5:
            program.append(ins("step"))
            steps += 1
            program += [ins("addi", rd=13, imm=rng.randrange(columns + (rng.random() < 0.05)))]
            program += [ins("ldt", rd=rd, rs=13, imm=rng.choice((*range(6), 15)))]
        elif kind < 0.75:
            unit = rng.randrange(1, 7)
            reg = rng.choice((rng.randrange(UNITS[unit]), 0x1F, 0x2F, 0x3F))
            program.append(ins("set", unit=unit, reg=reg, rs=rs, imm=imm))
        elif kind < 0.85:
            word = rng.getrandbits(26) & ~(1 << 8 | 1 << 16 | 1 << 24)
            program.append(ins("launch", unit=rng.randrange(1, 7), imm=word))
        elif kind < 0.9:
            program.append(ins(rng.choice(("wait", "signal")), imm=rng.randrange(32)))
        else:
            program.append(ins("event", rs=rs, imm=rng.getrandbits(16)))
    if rng.random() < 0.3:
        place = rng.randrange(len(program))
        program[place] ^= 1 << rng.randrange(64)
    tables = [
        [[rng.getrandbits(32) for _ in range(6)] for _ in range(rng.randrange(1, columns + 1))]
        for _ in range(4 * steps + 1)
    ]
    return program + dump(ins), tables


@pytest.mark.parametrize("pause", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("columns", [2, 6])
def test_random_programs(check, instruction, interpreter, columns, pause):
    rng = random.Random(columns * 10 + pause)
    jobs, model, faults = [], interpreter(SIZE), set()
    while len(jobs) < 25:
        program, steps = random_program(rng, instruction, columns)
        job = {"program": program, "steps": steps}
        try:
            trace = model.run(**job, limit=2000)
        except IndexError:  # the flipped bit makes a loop around `step`
            trace = None
        if trace and trace.ended < 2000:
            jobs.append(job)
            faults.add(trace.fault and trace.fault[0])
        if not trace or trace.fault or trace.ended == 2000:
            model.clear()
    assert len(faults) > 1
    check(jobs, columns=columns, pause=pause, seed=columns)


def test_registers_last_through_a_halt_and_a_stop_clears_them(params, sequencer_bench, instruction):
    first = [*constants(instruction, range(101, 116)), instruction("halt")]
    endless = [*constants(instruction, range(9)), instruction("beq", imm=9)]
    jobs = [
        {"program": first},
        {"program": [instruction("halt")], "start": 0},
        {"program": [0] * 40 + dump(instruction), "start": 40},
        {"program": endless, "ended": 30},  # stopped from outside in the middle
        {"program": dump(instruction)},
    ]
    traces = sequencer_bench(params(program_words=SIZE)).run(jobs)
    assert [trace.fault for trace in traces] == [None] * 5
    assert [value for *_, value in traces[2].events] == [0, *range(101, 116)]
    assert [pc for _, pc, _ in traces[2].events] == list(range(40, 56))
    assert [value for *_, value in traces[4].events] == [0] * 16


def test_a_stop_at_any_moment_leaves_no_trace(params, sequencer_bench, instruction):
    rows = [[1] * 6, [2] * 6]
    program = [instruction("step"), instruction("mul", rd=1, rs=2, rt=3), instruction("wait")]
    program += [instruction("ldt", rd=1, rs=0, imm=1), instruction("event", rs=1)]
    program += [instruction("beq", imm=1)]
    jobs = []
    for ended in range(1, 20):
        jobs.append({"program": program, "steps": [rows], "ended": ended})
        jobs.append({"program": dump(instruction)})
    traces = sequencer_bench(params(program_words=SIZE), seed=4, pause=0.3).run(jobs)
    for trace in traces[1::2]:
        assert [value for *_, value in trace.events] == [0] * 16
        assert (trace.items, trace.signals, trace.takes) == ([], [], [])


CLOCKS = {
    "addi": 1,
    "add": 1,
    "sub": 1,
    "shl": 1,
    "set": 1,
    "launch": 1,
    "signal": 1,
    "event": 1,
    "bne": 1,
    "beq": 4,
    "mul": 4,
    "ldt": 2,
    "wait": 2,
}
"""Clocks of an instruction when nothing holds it up: `bne` is not taken here, `beq` is."""


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_of_an_instruction(params, sequencer_bench, instruction, name):
    fields = {"set": {"unit": 1}, "launch": {"unit": 1}, "ldt": {"imm": 15}}
    counts = (10, 60)
    clocks = []
    for count in counts:
        program = [
            instruction(name, **({"imm": i + 1} if name == "beq" else fields.get(name, {})))
            for i in range(count)
        ]
        job = {"program": [*program, instruction("halt")]}
        (trace,) = sequencer_bench(params(program_words=SIZE)).run([job])
        clocks.append(trace.clocks)
    assert clocks[1] - clocks[0] == CLOCKS[name] * (counts[1] - counts[0])


def test_causes_name_what_holds_the_program_up(params, sequencer_bench, instruction):
    program = [instruction("set", unit=1, imm=i) for i in range(8)]
    program += [instruction("event", imm=i) for i in range(8)]
    program += [instruction("wait", imm=3)] * 4
    program += [instruction("step"), instruction("beq", imm=22)]
    job = {"program": [*program, instruction("halt")], "steps": [[[1] * 6]]}
    counts = []
    for pause in (0.0, 0.7):
        bench = sequencer_bench(params(program_words=SIZE), seed=2, pause=pause)
        (trace,) = bench.run([job])
        assert len(bench.causes) == trace.clocks + 1
        counts.append({cause: bench.causes.count(cause.value) for cause in SequencerCause})
    calm, busy = counts
    # Sets and events; both clocks of each `wait`; the first of `step`; the branch; `halt`.
    assert calm[SequencerCause.EXECUTE] == 8 + 8 + 4 * 2 + 1 + 1 + 1
    assert not calm[SequencerCause.QUEUE] + calm[SequencerCause.EVENT]
    assert not calm[SequencerCause.SEMAPHORE]
    for cause in SequencerCause:
        assert cause == SequencerCause.IDLE or busy[cause] > 0
    for counted in counts:
        assert counted[SequencerCause.IDLE] == 1  # the clock of `start`


def test_a_start_while_running_changes_nothing(params, instruction):
    dut = Sequencer(params())
    seen = []

    async def bench(ctx):
        ctx.set(dut.fetch.address.ready, 0)
        ctx.set(dut.start, 1)
        ctx.set(dut.start_pc, 7)
        for _ in range(5):
            await ctx.tick()
            seen.append((ctx.get(dut.pc), ctx.get(dut.running)))
            ctx.set(dut.start_pc, 9)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [(7, 1)] * 5
