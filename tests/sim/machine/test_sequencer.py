"""Instructions of the sequencer, and the errors that it finds itself."""

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim.isa import Instruction, encode
from pequin_sim.machine import Column, ErrorCode, EventKind, Machine, ProgramError, Step

M = 0xFFFFFFFF


def value_of(run, body):
    """Return what a body leaves in r1."""
    result = run(f"{body}\nevent r1, 9\nhalt")
    (event,) = result.events
    assert (event.kind, event.unit, event.code) == (EventKind.DONE, "seq", 9)
    return event.value


@pytest.mark.parametrize("a", [0, 1, 5, 31, 0x7FFFFFFF, 0x80000000, M])
@pytest.mark.parametrize("b", [0, 1, 3, 31, 0x80000001, M])
def test_arithmetic(run, a, b):
    setup = f"li r2, {a}\nli r3, {b}\n"
    assert value_of(run, setup + "add r1, r2, r3") == (a + b) % 2**32
    assert value_of(run, setup + "sub r1, r2, r3") == (a - b) % 2**32
    assert value_of(run, setup + "and r1, r2, r3") == a & b
    assert value_of(run, setup + "mul r1, r2, r3") == a * b % 2**32
    assert value_of(run, setup + f"addi r1, r2, {b}") == (a + b) % 2**32
    assert value_of(run, setup + f"andi r1, r2, {b}") == a & b
    if b < 32:
        assert value_of(run, setup + f"shl r1, r2, {b}") == (a << b) % 2**32
        assert value_of(run, setup + f"shr r1, r2, {b}") == a >> b


@pytest.mark.parametrize("a", [0, 1, 0x7FFFFFFF, 0x80000000, M])
@pytest.mark.parametrize("b", [0, 1, 0x7FFFFFFF, 0x80000000, M])
@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("beq", lambda a, b: a == b),
        ("bne", lambda a, b: a != b),
        ("blt", lambda a, b: a < b),
        ("bge", lambda a, b: a >= b),
    ],
)
def test_branches_compare_without_sign(run, name, taken, a, b):
    body = f"li r2, {a}\nli r3, {b}\nli r1, 1\n{name} r2, r3, away\nli r1, 2\naway:"
    assert value_of(run, body) == (1 if taken(a, b) else 2)


def test_negative_immediates_subtract(run):
    assert value_of(run, "li r2, 5\naddi r1, r2, -7") == M - 1


def test_register_zero_reads_as_zero(run):
    assert value_of(run, "li r0, 7\nadd r1, r0, r0") == 0


def test_a_loop_counts(run):
    source = "li r2, 10\nagain: add r1, r1, r2\naddi r2, r2, -1\nbne r2, r0, again"
    assert value_of(run, source) == 55


def test_table_fields_and_the_number_of_columns(run):
    names = ["slot", "token", "position", "start", "flags", "kv_base"]
    source = "step\nli r2, 1\n"
    source += "\n".join(f"ldt r1, r2, {name}\nevent r1, {i}" for i, name in enumerate(names))
    source += "\nli r2, 99\nldt r1, r2, columns\nevent r1, 15\nhalt"
    columns = [Column(), Column(1, 2, 3, 4, 5, M)]
    result = run(source, steps=[columns])
    assert [(e.code, e.value) for e in result.events] == [*enumerate(columns[1]), (15, 2)]


def test_there_are_no_columns_before_the_first_step(run):
    assert value_of(run, "ldt r1, r0, columns") == 0
    result = run("ldt r1, r0, slot")
    assert (result.error.code, result.error.detail, result.error.pc) == (ErrorCode.TABLE, 0, 0)


def test_steps_one_after_another(build):
    machine = build("again: step\nldt r1, r0, token\nevent r1, 1\nj again")
    result = machine.run([Step([(0, 5)]), Step([(0, 6)])])
    assert (result.state, result.pc) == ("waiting", 0)
    assert [e.value for e in result.events] == [5, 6]
    result = machine.step(Step([(0, 7)]))
    assert [e.value for e in result.events] == [7]
    with pytest.raises(InputError, match="waiting for a STEP"):
        machine.run()


def test_a_step_needs_a_program_that_waits(build):
    machine = build("halt")
    with pytest.raises(InputError, match="no program is waiting"):
        machine.step(Step([]))


def test_a_step_has_no_more_columns_than_the_tile(run):
    with pytest.raises(InputError, match="at most 2 columns, not 3"):
        run("step\nhalt", steps=[[()] * 3], preset="tiny")
    with pytest.raises(InputError, match="column 0: token has 32 bits"):
        Step([(0, 1 << 32)])


ERRORS = {
    "opcode 0": (".word 0", ErrorCode.ILLEGAL, 0),
    "opcode 21": (".word 21", ErrorCode.ILLEGAL, 21),
    "opcode 255": (".word 255", ErrorCode.ILLEGAL, 255),
    "unused field": (f".word {encode(Instruction(1, rd=1))}", ErrorCode.ILLEGAL, 1),
    "unused field of step": (f".word {encode(Instruction(20, imm=1))}", ErrorCode.ILLEGAL, 20),
    "shift": (f".word {encode(Instruction(7, imm=32))}", ErrorCode.ILLEGAL, 7),
    "event code": (f".word {encode(Instruction(19, imm=1 << 16))}", ErrorCode.ILLEGAL, 19),
    "launch word": (f".word {encode(Instruction(16, unit=1, imm=1 << 26))}", ErrorCode.ILLEGAL, 16),
    "branch": ("beq r0, r0, 4096", ErrorCode.PC, 4096),
    "far branch": ("beq r0, r0, 0xFFFFFFFF", ErrorCode.PC, M),
    "column": ("li r1, 7\nldt r2, r1, slot", ErrorCode.TABLE, 7),
    "field": ("ldt r2, r0, 15\n.word " + str(encode(Instruction(14, imm=6))), ErrorCode.TABLE, 0),
    "unit 0": (f".word {encode(Instruction(15, unit=0, reg=3))}", ErrorCode.UNIT, 3),
    "unit 7": (f".word {encode(Instruction(15, unit=7))}", ErrorCode.UNIT, 0x700),
    "register": (f".word {encode(Instruction(15, unit=1, reg=6))}", ErrorCode.UNIT, 0x106),
    "stride": (f".word {encode(Instruction(15, unit=1, reg=16))}", ErrorCode.UNIT, 0x110),
    "launch of unit 0": (f".word {encode(Instruction(16, unit=0))}", ErrorCode.UNIT, 0),
    "launch of unit 15": (f".word {encode(Instruction(16, unit=15))}", ErrorCode.UNIT, 0xF00),
    "wait": (f".word {encode(Instruction(17, imm=32))}", ErrorCode.SEMAPHORE, 32),
    "signal": (f".word {encode(Instruction(18, imm=M))}", ErrorCode.SEMAPHORE, M),
    "launch signal": ("launch dma, raw 1 << 2 | 63 << 3", ErrorCode.SEMAPHORE, 63),
    "launch wait": ("launch dma, raw 1 << 18 | 32 << 19", ErrorCode.SEMAPHORE, 32),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_the_sequencer(run, name):
    body, code, detail = ERRORS[name]
    result = run(f"step\n{body}\nhalt", steps=[[(), ()]])
    assert result.state == "error"
    error = result.error
    assert error is result.events[-1]
    assert (error.unit, error.code, error.detail, error.value) == ("seq", code, detail, 0)
    assert error.pc == body.count("\n") + 1


def test_semaphores_that_take_no_part_are_not_looked_at(run):
    # The only error is that of the command itself: nothing to move.
    result = run("launch dma, raw 63 << 3 | 63 << 11 | 63 << 19")
    assert result.error.code == ErrorCode.COMMAND


def test_running_past_the_end_of_the_memory(build):
    machine = build("nop: add r1, r1, r1\n" * 1 + "add r1, r1, r1\n" * 15, changes={})
    assert machine.run().error.code == ErrorCode.ILLEGAL  # empty memory
    machine = build("add r1, r1, r1\n" * 16, changes={"program_words": 16})
    error = machine.run().error
    assert (error.code, error.pc, error.detail) == (ErrorCode.PC, 15, 16)


def test_a_branch_that_is_not_taken_may_lead_anywhere(run):
    assert run("bne r0, r0, 5000\nhalt").state == "halted"


def test_a_program_that_is_too_long(params):
    words = np.ones(1025, np.uint64)
    with pytest.raises(InputError, match="1025 instructions does not fit 1024"):
        Machine(params("tiny"), np.zeros((0, 32), np.uint8), words)


@pytest.mark.parametrize(
    "body", ["again: j again", "set dma.count1, -1\nset dma.count, 1\nlaunch dma, loops 1"]
)
def test_endless_programs_are_refused(run, body):
    with pytest.raises(ProgramError, match="no end after 500 instructions"):
        run(body, limit=500)


def test_an_error_leaves_the_units_as_after_reset(build):
    machine = build(
        "set stream.beats, 1\nset stream.count1, 2\nli r1, 5\n.word 0\n"
        "launch stream, loops 1\nhalt\nevent r1, 0\nhalt"
    )
    assert machine.run().error.code == ErrorCode.ILLEGAL
    assert machine.registers[2].get(1) == 0
    assert machine.registers[2].get(31) == 1
    result = machine.run(start=4)
    assert (result.error.code, result.error.unit, len(result.commands)) == (12, "stream", 1)
    assert machine.run(start=6).events[0].value == 0


def test_registers_and_memories_outlive_a_halt_and_semaphores_do_not(build):
    machine = build(
        "set vector.mode, {op=set_scalar}\nset vector.shape, {vectors=1}\n"
        "set vector.immediate, 0x3F800000\nlaunch vector\nsignal 3\nhalt\n"
        "set vector.scalars, {out=1}\nlaunch vector\nhalt\nwait 3\nhalt"
    )
    assert machine.run().state == "halted"
    assert list(machine.run(start=6).scalars[:3]) == [0x3F800000, 0x3F800000, 0]
    with pytest.raises(ProgramError, match="semaphore 3"):
        machine.run(start=9)
