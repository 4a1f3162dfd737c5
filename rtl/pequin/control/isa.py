"""Instruction words and launch words; docs/isa.md says what they mean."""

from amaranth.lib import data, enum

REGISTERS = 16
"""Scalar registers of the sequencer; register 0 reads as zero."""

SHIFT_BITS = 5
"""Bits of a shift distance."""

CODE_BITS = 16
"""Bits of an event's code."""

LEVELS = 3
"""Loop levels of a launch."""

COUNT_REGISTER = 15
"""Unit register 16 L + 15 has the iterations of loop level L."""


class Opcode(enum.Enum, shape=8):
    """What an instruction does; all other numbers are illegal."""

    HALT = 1
    ADDI = 2
    ADD = 3
    SUB = 4
    AND = 5
    ANDI = 6
    SHL = 7
    SHR = 8
    MUL = 9
    BEQ = 10
    BNE = 11
    BLT = 12
    BGE = 13
    LDT = 14
    SET = 15
    LAUNCH = 16
    WAIT = 17
    SIGNAL = 18
    EVENT = 19
    STEP = 20


_REGISTER = ("rd", "rs", "rt")
_IMMEDIATE = ("rd", "rs", "imm")
_BRANCH = ("rs", "rt", "imm")

OPERANDS: dict[Opcode, tuple[str, ...]] = {
    Opcode.HALT: (),
    Opcode.ADDI: _IMMEDIATE,
    Opcode.ADD: _REGISTER,
    Opcode.SUB: _REGISTER,
    Opcode.AND: _REGISTER,
    Opcode.ANDI: _IMMEDIATE,
    Opcode.SHL: _IMMEDIATE,
    Opcode.SHR: _IMMEDIATE,
    Opcode.MUL: _REGISTER,
    Opcode.BEQ: _BRANCH,
    Opcode.BNE: _BRANCH,
    Opcode.BLT: _BRANCH,
    Opcode.BGE: _BRANCH,
    Opcode.LDT: _IMMEDIATE,
    Opcode.SET: ("unit", "reg", "rs", "imm"),
    Opcode.LAUNCH: ("unit", "imm"),
    Opcode.WAIT: ("imm",),
    Opcode.SIGNAL: ("imm",),
    Opcode.EVENT: ("rs", "imm"),
    Opcode.STEP: (),
}
"""Fields that each instruction uses; the others must be zero."""


class Instruction(data.Struct):
    """One instruction; `opcode` is a plain number, because it may be illegal."""

    opcode: 8
    rd: 4
    rs: 4
    rt: 4
    unit: 4
    reg: 8
    imm: 32


class LaunchSemaphore(data.Struct):
    """A semaphore's part in a launch: whether it takes part, its number, for each command."""

    use: 1
    number: 6
    each: 1


class LaunchWord(data.Struct):
    """The `imm` of a launch; bits 26 to 31 must be zero."""

    levels: 2
    signal: LaunchSemaphore
    wait_a: LaunchSemaphore
    wait_b: LaunchSemaphore
    unused: 6
