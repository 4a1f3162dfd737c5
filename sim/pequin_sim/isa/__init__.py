"""The tile's instruction set: numbers, bits, programs, assembler, disassembler.

docs/isa.md is the contract; docs/assembler.md describes the text form. Nothing here is shared
with the hardware.

>>> word = pack_word("mac", "mode", format="mxint8", scaled=True)
>>> encode(Instruction(OPCODES["set"], unit=UNITS["mac"], reg=0, imm=word))
21475885071
"""

from pequin_sim.isa.assembler import assemble
from pequin_sim.isa.checks import check_program
from pequin_sim.isa.disassembler import disassemble, instruction_text
from pequin_sim.isa.instructions import (
    BRANCHES,
    MNEMONICS,
    OPCODES,
    OPERANDS,
    Instruction,
    LaunchWord,
    Program,
    SourceLine,
    decode,
    encode,
    is_legal,
)
from pequin_sim.isa.listing import listing
from pequin_sim.isa.units import (
    COLUMNS_FIELD,
    COUNT_REGISTER,
    LEVELS,
    SEMAPHORE_MAX,
    SEMAPHORES,
    STRIDED,
    TABLE_FIELDS,
    UNIT_FIELDS,
    UNIT_NAMES,
    UNITS,
    VALUES,
    WORD_NAMES,
    Field,
    count_register,
    field_value,
    pack_word,
    register_exists,
    stride_register,
    unpack_word,
    word_number,
)

__all__ = [
    "BRANCHES",
    "COLUMNS_FIELD",
    "COUNT_REGISTER",
    "LEVELS",
    "MNEMONICS",
    "OPCODES",
    "OPERANDS",
    "SEMAPHORES",
    "SEMAPHORE_MAX",
    "STRIDED",
    "TABLE_FIELDS",
    "UNITS",
    "UNIT_FIELDS",
    "UNIT_NAMES",
    "VALUES",
    "WORD_NAMES",
    "Field",
    "Instruction",
    "LaunchWord",
    "Program",
    "SourceLine",
    "assemble",
    "check_program",
    "count_register",
    "decode",
    "disassemble",
    "encode",
    "field_value",
    "instruction_text",
    "is_legal",
    "listing",
    "pack_word",
    "register_exists",
    "stride_register",
    "unpack_word",
    "word_number",
]
