"""Bits of instructions, launch words and command words, against docs/isa.md."""

import doctest

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim import isa
from pequin_sim.isa import Instruction, LaunchWord, Program

SLOTS = {"rd": 8, "rs": 12, "rt": 16, "unit": 20, "reg": 24, "imm": 32}

# The table of the contract, written out once more.
CONTRACT = """
1 halt | 2 addi rd rs imm | 3 add rd rs rt | 4 sub rd rs rt | 5 and rd rs rt | 6 andi rd rs imm
7 shl rd rs imm | 8 shr rd rs imm | 9 mul rd rs rt | 10 beq rs rt imm | 11 bne rs rt imm
12 blt rs rt imm | 13 bge rs rt imm | 14 ldt rd rs imm | 15 set unit reg rs imm
16 launch unit imm | 17 wait imm | 18 signal imm | 19 event rs imm | 20 step
"""
TABLE = [entry.split() for entry in CONTRACT.replace("\n", "|").split("|") if entry.strip()]


@pytest.mark.parametrize("entry", TABLE, ids=lambda e: e[1])
def test_every_opcode_has_its_number_and_operands(entry):
    number, name, *operands = entry
    assert isa.OPCODES[name] == int(number)
    assert isa.MNEMONICS[int(number)] == name
    assert isa.OPERANDS[name] == tuple(operands)


def test_there_are_no_other_opcodes():
    assert len(isa.OPCODES) == len(TABLE)
    for opcode in range(256):
        assert isa.is_legal(Instruction(opcode)) == (1 <= opcode <= 20)


@pytest.mark.parametrize("name", SLOTS)
def test_every_field_has_its_bits(name):
    top = {"imm": (1 << 32) - 1, "reg": 255}.get(name, 15)
    word = isa.encode(Instruction(2)._replace(**{name: top}))
    assert word == 2 | top << SLOTS[name]
    assert getattr(isa.decode(word), name) == top
    with pytest.raises(InputError, match=f"{name} has"):
        isa.encode(Instruction(2)._replace(**{name: top + 1}))


def test_negative_immediates_are_two_s_complement():
    assert isa.encode(Instruction(2, imm=-1)) >> 32 == 0xFFFFFFFF
    with pytest.raises(InputError, match="imm has 32 bits"):
        isa.encode(Instruction(2, imm=-(1 << 31) - 1))


def test_random_words_survive_decoding():
    for word in np.random.default_rng(1).integers(0, 1 << 64, 1000, dtype=np.uint64):
        assert isa.encode(isa.decode(word)) == int(word)


@pytest.mark.parametrize("entry", TABLE, ids=lambda e: e[1])
def test_unused_fields_must_be_zero(entry):
    number, _, *operands = entry
    for name in SLOTS:
        assert isa.is_legal(Instruction(int(number))._replace(**{name: 1})) == (name in operands)


@pytest.mark.parametrize(
    ("name", "imm", "legal"),
    [
        ("shl", 31, True),
        ("shl", 32, False),
        ("shr", 32, False),
        ("launch", (1 << 26) - 1, True),
        ("launch", 1 << 26, False),
        ("event", 0xFFFF, True),
        ("event", 0x10000, False),
        ("addi", 0xFFFFFFFF, True),
    ],
)
def test_ranges_of_immediates(name, imm, legal):
    assert isa.is_legal(Instruction(isa.OPCODES[name], imm=imm)) == legal


# Copied from docs/isa.md: unit, word, field, lowest bit, width.
MODE = ["format", "two_planes", "scaled", "paired", "sink", "select_first", "select_last", "source"]
FIELDS = [("mac", 0, name, bit, 1) for bit, name in enumerate(MODE)]
FIELDS += [
    ("mac", word, name, 0, 32)
    for word, name in enumerate(["last_block", "last_row", "first_row", "last_vector", "base"], 1)
]
FIELDS += [("stream", 0, "address", 0, 32), ("stream", 1, "beats", 0, 32)]
FIELDS += [
    ("kv", word, name, 0, 32)
    for word, name in enumerate(["kind", "address", "step", "rows", "blocks"])
]
FIELDS += [
    ("dma", word, name, 0, 32)
    for word, name in enumerate(["kind", "source", "dst", "count", "step"])
]
VECTOR = """
0 op 3 0|0 function 5 4|0 factor 7 6|0 source 9 8|0 store 10 10|0 quantize 12 11|0 paired 13 13
0 limits 14 14|0 reduce 16 15|0 start 17 17|0 rank 20 18|0 use_s1 21 21|0 use_s2 22 22
0 minus_s2 23 23|0 use_multiplier 24 24|0 use_addend 25 25|0 finish 27 26|0 distance 30 28
1 length 15 0|1 vectors 23 16|2 a 31 0|3 b 31 0|4 dst 31 0|5 a_stride 31 0|6 b_stride 31 0
7 dst_stride 31 0|8 s1 7 0|8 s2 15 8|8 s3 23 16|8 out 31 24|9 multiplier 7 0|9 addend 15 8
9 per_vector 20 16|9 lane 25 21|10 column 7 0|10 column_step 15 8|11 address 23 0
12 address_step 23 0|13 immediate 31 0
"""
for line in VECTOR.replace("\n", "|").split("|"):
    if line.strip():
        word, name, high, low = line.split()
        for unit in ("vector", "drain"):
            FIELDS.append((unit, int(word), name, int(low), int(high) - int(low) + 1))


@pytest.mark.parametrize("field", FIELDS, ids=lambda f: f"{f[0]}-{f[2]}")
def test_every_field_of_every_unit(field):
    unit, word, name, low, width = field
    assert isa.UNIT_FIELDS[unit][name] == (word, low, width)
    top = (1 << width) - 1
    assert isa.pack_word(unit, word, **{name: top}) == top << low
    unpacked = isa.unpack_word(unit, word, top << low)
    assert unpacked[name] == top
    assert not any(value for other, value in unpacked.items() if other != name)
    with pytest.raises(InputError, match=f"{unit}.{name} has {width} bits"):
        isa.pack_word(unit, word, **{name: top + 1})


def test_there_are_no_other_fields():
    known = {(unit, name) for unit, _, name, _, _ in FIELDS}
    aliases = {("kv", "tokens"), ("kv", "granules")}
    found = {(unit, name) for unit in isa.UNIT_FIELDS for name in isa.UNIT_FIELDS[unit]}
    assert found == known | aliases


def test_registers_that_exist():
    words = {"mac": 6, "stream": 2, "kv": 5, "vector": 14, "drain": 14, "dma": 5}
    strided = {
        "mac": (3, 5),
        "stream": (0,),
        "kv": (1,),
        "vector": (2, 3, 4, 8, 10, 11, 13),
        "drain": (2, 3, 4, 8, 10, 11, 13),
        "dma": (1, 2),
    }
    for unit, count in words.items():
        expected = set(range(count))
        for level in (1, 2, 3):
            expected |= {16 * level + w for w in strided[unit]} | {16 * level + 15}
        assert {r for r in range(256) if isa.register_exists(unit, r)} == expected
        assert isa.STRIDED[unit] == strided[unit]
        assert len(isa.WORD_NAMES[unit]) == count
    assert not any(isa.register_exists("seq", r) for r in range(256))


def test_stride_and_count_registers():
    assert isa.stride_register("mac", "base", 2) == 37
    assert isa.stride_register("dma", 1, 3) == 49
    assert isa.count_register(1) == 31
    with pytest.raises(InputError, match="has no stride"):
        isa.stride_register("mac", "mode", 1)
    with pytest.raises(InputError, match="levels are 1 to 3"):
        isa.count_register(4)


def test_names_of_values_and_errors():
    assert isa.pack_word("mac", "mode", format="mxint8", sink="top_k", source="kv") == 0x91
    assert isa.pack_word("vector", 9, per_vector=["s1", "addend"]) == 17 << 16
    assert isa.pack_word("kv", "granules", granules=3) == 3
    with pytest.raises(InputError, match="cannot be 'fp8'; choose from mxfp4, mxint8"):
        isa.pack_word("mac", 0, format="fp8")
    with pytest.raises(InputError, match="is in word base, not in mode"):
        isa.pack_word("mac", 0, base=1)
    with pytest.raises(InputError, match="has no field 'nothing'"):
        isa.pack_word("mac", 0, nothing=1)
    with pytest.raises(InputError, match="has no word 'nothing'"):
        isa.pack_word("mac", "nothing")
    with pytest.raises(InputError, match="unit 'seq' does not exist"):
        isa.pack_word("seq", 0)


def test_the_launch_word():
    word = LaunchWord(
        levels=3,
        signal=31,
        signal_each=True,
        wait_a=5,
        wait_a_each=False,
        wait_b=63,
        wait_b_each=True,
    )
    expected = 3 | 1 << 2 | 31 << 3 | 1 << 9 | 1 << 10 | 5 << 11 | 1 << 18 | 63 << 19 | 1 << 25
    assert word.pack() == expected
    assert LaunchWord.unpack(expected) == word
    assert word.waits == ((5, False), (63, True))
    assert word.semaphores == (31, 5, 63)
    assert LaunchWord().pack() == 0
    assert LaunchWord.unpack(5 << 11 | 1 << 9) == LaunchWord()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"levels": 4}, "0 to 3 loop levels"),
        ({"signal": 64}, "signal has 6 bits"),
        ({"wait_b_each": True}, "wait_b_each needs wait_b"),
    ],
)
def test_bad_launch_words(fields, message):
    with pytest.raises(InputError, match=message):
        LaunchWord(**fields).pack()


def test_programs_and_their_images():
    program = Program.of([Instruction(20), Instruction(1)], labels={"start": 0})
    assert program.words.dtype == np.uint64
    image = program.to_bytes()
    assert image == bytes([20, *[0] * 7, 1, *[0] * 7])
    assert np.array_equal(Program.from_bytes(image).words, program.words)
    assert program.beats().shape == (1, 32)
    assert program.where(1) == "1 (start + 1)"
    with pytest.raises(InputError, match="15 bytes are no multiple"):
        Program.from_bytes(image[:-1])


def test_the_example_in_the_documentation():
    assert doctest.testmod(isa, globs=vars(isa).copy()).failed == 0
