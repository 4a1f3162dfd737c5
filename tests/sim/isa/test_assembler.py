"""The assembler's language: what it makes of a text, and what it says about a wrong one."""

import re
from pathlib import Path

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim import isa
from pequin_sim.isa import Instruction, LaunchWord, assemble

DOCS = Path(__file__).parents[3] / "docs"


def one(text):
    """Return the only instruction of a text."""
    (word,) = assemble(text, check=False).words
    return isa.decode(int(word))


def make(name, **fields):
    return Instruction(isa.OPCODES[name], **fields)


PLAIN = {
    "halt": make("halt"),
    "step": make("step"),
    "addi r1, r2, 5": make("addi", rd=1, rs=2, imm=5),
    "addi r15, r0, -1": make("addi", rd=15, imm=0xFFFFFFFF),
    "add r1, r2, r3": make("add", rd=1, rs=2, rt=3),
    "sub r4, r5, r6": make("sub", rd=4, rs=5, rt=6),
    "and r7, r8, r9": make("and", rd=7, rs=8, rt=9),
    "andi r1, r1, 0xFF": make("andi", rd=1, rs=1, imm=255),
    "shl r1, r2, 31": make("shl", rd=1, rs=2, imm=31),
    "shr r1, r2, 0": make("shr", rd=1, rs=2),
    "mul r10, r11, r12": make("mul", rd=10, rs=11, rt=12),
    "beq r1, r2, 7": make("beq", rs=1, rt=2, imm=7),
    "bne r1, r2, 7": make("bne", rs=1, rt=2, imm=7),
    "blt r1, r2, 7": make("blt", rs=1, rt=2, imm=7),
    "bge r1, r2, 7": make("bge", rs=1, rt=2, imm=7),
    "ldt r1, r2, kv_base": make("ldt", rd=1, rs=2, imm=5),
    "ldt r1, r0, columns": make("ldt", rd=1, imm=15),
    "ldt r1, r0, 2": make("ldt", rd=1, imm=2),
    "wait 31": make("wait", imm=31),
    "signal 0": make("signal"),
    "event r3, 65535": make("event", rs=3, imm=65535),
    "li r1, -2": make("addi", rd=1, imm=0xFFFFFFFE),
    "mv r1, r2": make("addi", rd=1, rs=2),
    "j 9": make("beq", imm=9),
}


@pytest.mark.parametrize("text", PLAIN)
def test_plain_instructions(text):
    assert one(text) == PLAIN[text]
    spaced = text.replace(",", " ,  ").replace(" ", "\t", 1)
    assert one(f"  {spaced}  ; a comment") == PLAIN[text]


def put(unit, reg, imm=0, rs=0):
    return make("set", unit=isa.UNITS[unit], reg=reg, imm=imm & 0xFFFFFFFF, rs=rs)


SETS = {
    "set mac.base, 5": put("mac", 5, 5),
    "set mac.base, r3": put("mac", 5, rs=3),
    "set mac.base, r3 + 5 * 2": put("mac", 5, 10, 3),
    "set mac.base, r3 - 4": put("mac", 5, -4, 3),
    "set mac.base, -4": put("mac", 5, -4),
    "set mac.base, r3+4": put("mac", 5, 4, 3),
    "set mac.base.stride2, 16": put("mac", 37, 16),
    "set mac.first_row.stride1, r1": put("mac", 19, rs=1),
    "set mac.count3, 9": put("mac", 63, 9),
    "set mac.37, 16": put("mac", 37, 16),
    "set mac.0x25, 16": put("mac", 37, 16),
    "set mac.mode, {format=mxint8, scaled, source=kv}": put("mac", 0, 0x85),
    "set mac.mode, {}": put("mac", 0),
    "set mac.mode, r2 + {paired}": put("mac", 0, 8, 2),
    "set vector.extra, {per_vector=s1 | addend, lane=2 + 1}": put("vector", 9, 17 << 16 | 3 << 21),
    "set drain.scalars, {s1=1, s2=2, s3=3, out=4}": put("drain", 8, 0x04030201),
    "set vector.scalars.stride1, {out=1}": put("vector", 24, 1 << 24),
    "set drain.mode, {source=blocks, op=rotary_half}": put("drain", 0, 0x205),
    "set kv.tokens, 3": put("kv", 3, 3),
    "set kv.granules, 3": put("kv", 4, 3),
    "set kv.kind, {kind=configure}": put("kv", 0, 2),
    "set dma.kind, {kind=scales}": put("dma", 0, 2),
    "set stream.address.stride1, 1 << 20": put("stream", 16, 1 << 20),
}


@pytest.mark.parametrize("text", SETS)
def test_registers_of_units(text):
    assert one(text) == SETS[text]


@pytest.mark.parametrize("unit", isa.UNIT_NAMES[1:])
def test_every_register_of_every_unit_has_a_name(unit):
    for register in filter(lambda r: isa.register_exists(unit, r), range(256)):
        level, word = divmod(register, 16)
        name = f"count{level}" if level and word == 15 else isa.WORD_NAMES[unit][word]
        name += f".stride{level}" if level and word != 15 else ""
        assert one(f"set {unit}.{name}, 1") == put(unit, register, 1)
        assert one(f"set {unit}.{register}, 1") == put(unit, register, 1)


@pytest.mark.parametrize("unit", isa.UNIT_NAMES[1:])
def test_every_field_and_every_value_of_every_unit(unit):
    for name, place in isa.UNIT_FIELDS[unit].items():
        word = isa.WORD_NAMES[unit][place.word]
        top = (1 << place.width) - 1
        expected = put(unit, place.word, top << place.low)
        assert one(f"set {unit}.{word}, {{{name}={top}}}") == expected
        for value, number in isa.VALUES[unit].get(name, {}).items():
            expected = put(unit, place.word, number << place.low)
            assert one(f"set {unit}.{word}, {{{name}={value}}}") == expected


LAUNCHES = {
    "launch dma": LaunchWord(),
    "launch dma, loops 3": LaunchWord(levels=3),
    "launch dma, wait 1": LaunchWord(wait_a=1),
    "launch dma, wait 1 each, wait 2": LaunchWord(wait_a=1, wait_a_each=True, wait_b=2),
    "launch dma, signal 3 each, wait 2, loops 1": LaunchWord(
        levels=1, signal=3, signal_each=True, wait_a=2
    ),
    "launch dma, wait 4, wait 4": LaunchWord(wait_a=4, wait_b=4),
}


@pytest.mark.parametrize("text", LAUNCHES)
def test_launches(text):
    assert one(text) == make("launch", unit=6, imm=LAUNCHES[text].pack())


def test_raw_launches_and_words():
    assert one("launch mac, raw 1 << 3").imm == 8
    assert assemble(".word 0xFFFF_FFFF_FFFF_FFFF", check=False).words[0] == 2**64 - 1


def test_labels_constants_and_registers():
    program = assemble(
        """
        .equ N, 4            # number
        .equ TWICE, 2 * N
        .reg count, r7
        start: first: li count, TWICE
        again:
            addi count, count, ~0
            bne count, r0, again ; back
            set mac.base, count + N
            event r0, end - start
        end: halt
        """,
        "some.s",
    )
    assert program.labels == {"start": 0, "first": 0, "again": 1, "end": 5}
    code = [isa.decode(int(word)) for word in program.words]
    assert code[0] == make("addi", rd=7, imm=8)
    assert code[2] == make("bne", rs=7, imm=1)
    assert code[3] == put("mac", 5, 4, 7)
    assert code[4].imm == 5
    assert [line.number for line in program.lines] == [5, 7, 8, 9, 10, 11]
    assert program.where(2) == "2 (again + 1), some.s:8"


def test_a_bracket_goes_on_in_the_next_line():
    program = assemble("set mac.mode, {scaled, ; one\n  paired}\nhalt", check=False)
    assert isa.decode(int(program.words[0])).imm == 12
    assert [line.number for line in program.lines] == [1, 3]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -4),
        ("7 % 4", 3),
        ("1 << 4 | 3", 19),
        ("6 & 3 ^ 1", 3),
        ("~0", -1),
        ("0b101 + 0x1f + 1_000", 1036),
    ],
)
def test_expressions(text, value):
    assert one(f"li r1, {text}").imm == value & 0xFFFFFFFF


WRONG = {
    "foo r1": "there is no instruction 'foo'",
    "addi r1, r2": "addi takes 3 operands, not 2",
    "halt r1": "halt takes 0 operands, not 1",
    "addi r16, r0, 1": "'r16' is not a register",
    "addi r1, 5, 1": "'5' is not a register",
    "addi r1, r0, 1 << 32": "imm has 32 bits: 4294967296 does not fit",
    "addi r1, r0, -(1 << 31) - 1": "imm has 32 bits",
    "addi r1, r0, nothing": "'nothing' is not defined",
    "addi r1, r0, 1.5": "'1.5' is not an expression",
    "addi r1, r0, 1 +": "'1 +' is not an expression",
    "addi r1, r0, 1 / 0": "divides by zero",
    "addi r1, r0, 2 ** 9": "is not an expression",
    "addi r1, r0, 1 << 1000000": "a shift by 1000000 is out of range",
    "addi r1, r0, f(1)": "'f' is not defined",
    "addi r1,, r0": "an operand is missing",
    "shl r1, r1, 32": "shl: 32 is out of range",
    "shr r1, r1, -1": "shr: -1 is out of range",
    "event r1, 65536": "event: 65536 is out of range",
    "wait 32": "semaphores are 0 to 31, not 32",
    "signal -1": "semaphores are 0 to 31, not -1",
    "ldt r1, r0, 6": "the table has no field 6; it has slot, token",
    "ldt r1, r0, name": "'name' is not defined",
    "set mac.base": "set takes 2 operands, not 1",
    "set mac, 1": "'mac' is not a unit's register",
    "set seq.base, 1": "unit 'seq' does not exist; choose one of mac, stream",
    "set foo.base, 1": "unit 'foo' does not exist",
    "set mac.foo, 1": "mac has no word 'foo'; it has mode, last_block",
    "set mac.6, 1": "mac has no register 6",
    "set mac.mode.stride1, 1": "word mode of mac has no stride; these have one: first_row, base",
    "set mac.base.stride4, 1": "loop levels are 1 to 3, not 4",
    "set mac.base.foo, 1": "a word has stride1 to stride3, not 'foo'",
    "set mac.base.stride1.x, 1": "is not a unit's register",
    "set mac.count4, 1": "loop levels are 1 to 3, not 4",
    "set mac.mode, {foo}": "mac has no field 'foo'",
    "set mac.mode, {base=1}": "mac.base is in word base, not in mode",
    "set mac.mode, {scaled, scaled}": "field 'scaled' is given twice",
    "set mac.mode, {scaled=2}": "mac.scaled has 1 bits: 2 does not fit",
    "set mac.mode, {format=fp8}": "'fp8' is not defined",
    "set mac.mode, {scaled} + 1": "does not end with a bracket",
    "set mac.mode, {scaled": "a bracket is not closed",
    "set mac.count1, {scaled}": "iterations have no fields",
    "launch": "launch takes a unit",
    "launch seq": "unit 'seq' does not exist",
    "launch mac, loops 4": "0 to 3 loop levels, not 4",
    "launch mac, loops 1 each": "loops cannot be 'each'",
    "launch mac, wait 1, wait 2, wait 3": "launch does not understand 'wait 3' here",
    "launch mac, signal 1, signal 2": "launch does not understand 'signal 2' here",
    "launch mac, often": "launch does not understand 'often' here",
    "launch mac, wait 40": "semaphores are 0 to 31, not 40",
    "launch mac, raw 1 << 26": "launch: 67108864 is out of range",
    ".word -1": "a word has 64 bits",
    ".word 1, 2": ".word takes 1 operands, not 2",
    ".equ r1, 5": "'r1' is not a name",
    ".equ 5x, 5": "'5x' is not a name",
    ".equ A, B": "'B' is not defined",
    ".reg A, 5": "'5' is not a register",
    ".entry nowhere": "there is no label 'nowhere'",
    "here: here: halt": "'here' is defined twice",
}


@pytest.mark.parametrize("text", WRONG)
def test_errors_name_file_and_line(text):
    with pytest.raises(InputError) as caught:
        assemble(f"halt\n\n{text}\n", "dir/file.s", check=False)
    assert str(caught.value).startswith("dir/file.s:3: ")
    assert WRONG[text] in str(caught.value)


def test_names_are_defined_once():
    for text in (".equ A, 1\n.equ A, 2", ".equ A, 1\nA: halt", ".reg A, r1\nA: halt"):
        with pytest.raises(InputError, match="<text>:2: 'A' is defined twice"):
            assemble(text, check=False)


def test_the_example_of_the_documentation_runs():
    from pequin.config import TileConfig, TileParams
    from pequin_sim.machine import Machine, Step

    text = re.findall(r"```\n(.*?)```", (DOCS / "assembler.md").read_text(), re.S)[0]
    program = assemble(text)
    params = TileParams(TileConfig.preset("ref"))
    result = Machine(params, np.zeros((0, 32), np.uint8), program).run([Step([()])])
    assert result.state == "halted"
    assert [c.unit for c in result.commands] == ["dma", "vector"] * 4


def test_the_tables_of_the_documentation_are_complete():
    text = (DOCS / "assembler.md").read_text()
    for unit, names in isa.WORD_NAMES.items():
        if unit != "seq":
            (row,) = re.findall(rf"^\| .*`{unit}`.* \| (`(?:mode|address|kind)`.*) \|$", text, re.M)
            words = re.findall(r"`(\w+)`", row)
            assert [w for w in words if w not in ("tokens", "granules")] == list(names)
