"""The way back: words to text to the same words."""

import numpy as np
import pytest

from pequin_sim import isa
from pequin_sim.isa import Instruction, LaunchWord, Program, assemble, disassemble, listing


def back(words, **others):
    program = Program(np.array(words, np.uint64), **others)
    return assemble(disassemble(program), check=False)


def test_random_words():
    words = np.random.default_rng(7).integers(0, 1 << 64, 500, dtype=np.uint64)
    assert np.array_equal(back(words).words, words)


def test_random_instructions_of_every_opcode():
    """Legal or almost: fields that are used, and now and then one that is not."""
    rng = np.random.default_rng(8)
    instructions = []
    for name, number in isa.OPCODES.items():
        for _ in range(200):
            fields = {}
            for place in isa.OPERANDS[name]:
                top = {"imm": 1 << int(rng.integers(1, 33)), "reg": 70, "unit": 8}.get(place, 16)
                fields[place] = int(rng.integers(0, top))
            if rng.random() < 0.1:
                fields["rt"] = int(rng.integers(0, 16))
            instructions.append(Instruction(number, **fields))
    words = [isa.encode(i) for i in instructions]
    assert np.array_equal(back(words).words, np.array(words, np.uint64))


@pytest.mark.parametrize("unit", isa.UNIT_NAMES[1:])
def test_every_register_and_every_bit_of_a_word(unit):
    words = []
    for register in range(256):
        for bit in range(-1, 32):
            for rs in (0, 5):
                imm = 1 << bit if bit >= 0 else 0
                i = Instruction(15, rs=rs, unit=isa.UNITS[unit], reg=register, imm=imm)
                words.append(isa.encode(i))
    assert np.array_equal(back(words).words, np.array(words, np.uint64))


def test_every_bit_of_a_launch_word():
    rng = np.random.default_rng(9)
    immediates = [1 << bit for bit in range(32)]
    immediates += [int(i) for i in rng.integers(0, 1 << 26, 2000)]
    words = [isa.encode(Instruction(16, unit=2, imm=imm)) for imm in immediates]
    assert np.array_equal(back(words).words, np.array(words, np.uint64))


def test_text_is_the_one_that_a_person_would_write():
    source = """\
start:
    step
    ldt r1, r0, columns
again:
    addi r1, r1, -1
    set mac.mode, {format=mxint8, scaled, source=kv}
    set vector.mode, {op=rotary, quantize=keys}
    set vector.extra, {per_vector=s1 | s2, lane=3}
    set mac.base, r1 + 16
    set mac.base, r1 - 16
    set mac.base, r1
    set mac.base.stride1, -8
    set mac.count2, 4
    set vector.address, 65536
    launch mac, loops 2, wait 3 each, wait 4, signal 5
    launch dma, raw 0x80000
    bne r1, r0, again
    beq r0, r0, 99
    .word 0x0000000000000000
    halt
"""
    program = assemble(source, check=False)
    assert disassemble(program) == source
    # Without the names, labels are made up.
    text = disassemble(program.replace(labels={}))
    assert "L2:" in text
    assert "bne r1, r0, L2" in text


def test_a_label_that_is_made_up_does_not_meet_another():
    source = "L1: halt\nhalt\nbeq r0, r0, 1\n"
    text = disassemble(assemble(source, check=False))
    assert "L1_:" in text
    assert np.array_equal(assemble(text, check=False).words, assemble(source, check=False).words)


def test_a_label_at_the_end_survives():
    program = assemble("halt\nend:", check=False)
    assert assemble(disassemble(program), check=False).labels == {"end": 1}
    assert disassemble(Program(np.zeros(0, np.uint64))) == ""


def test_a_launch_with_only_wait_b_is_raw():
    word = LaunchWord(wait_b=3).pack()
    (text,) = disassemble(Program.of([Instruction(16, unit=1, imm=word)])).splitlines()
    assert text.strip() == f"launch mac, raw {word:#x}"


def test_listings():
    program = assemble("start: ; begin\n  li r1, 5\n\n  halt", "x.s", check=False)
    assert listing(program) == (
        "    0 0000000500000102      2 |   li r1, 5\n    1 0000000000000001      4 |   halt\n"
    )
    bare = listing(Program(program.words, labels={"start": 0}))
    assert bare.splitlines()[0].strip() == "start:"
    assert bare.splitlines()[1] == "    0 0000000500000102      addi r1, r0, 5"
