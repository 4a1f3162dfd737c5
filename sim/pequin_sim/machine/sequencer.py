"""The sequencer: registers, branches, the step's table."""

from __future__ import annotations

from collections.abc import Callable

from pequin_sim.isa import COLUMNS_FIELD, SEMAPHORES, Instruction, is_legal
from pequin_sim.machine.events import Column, ErrorCode, Fault, Step

MASK = 0xFFFFFFFF

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "mul": lambda a, b: a * b,
}

_IMMEDIATE: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, i: a + i,
    "andi": lambda a, i: a & i,
    "shl": lambda a, i: a << i,
    "shr": lambda a, i: a >> i,
}

_CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "beq": lambda a, b: a == b,
    "bne": lambda a, b: a != b,
    "blt": lambda a, b: a < b,
    "bge": lambda a, b: a >= b,
}


class Sequencer:
    """Registers r0 to r15, program counter and table.

    Parameters
    ----------
    size
        Program addresses.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.registers = [0] * 16
        self.pc = 0
        self.table: tuple[Column, ...] = ()

    def clear(self) -> None:
        """Set the registers to zero; the table stays."""
        self.registers = [0] * 16

    def take(self, step: Step) -> None:
        """Replace the table."""
        self.table = step.columns

    def go(self, target: int) -> None:
        """Set the program counter.

        Raises
        ------
        Fault
            There is no such address; the program counter stays.
        """
        if target >= self._size:
            raise Fault(ErrorCode.PC, target)
        self.pc = target

    def execute(self, i: Instruction) -> bool:
        """Execute an instruction that concerns nobody else, and go on to the next one.

        Returns
        -------
        bool
            False, and nothing is done, when it is for the caller: from `set` on, and `halt`.

        Raises
        ------
        Fault
            It is illegal, or a table field or branch target does not exist.
        """
        name = i.mnemonic
        if name is None or not is_legal(i):
            raise Fault(ErrorCode.ILLEGAL, i.opcode)
        r = self.registers
        if name in _CONDITIONS:
            taken = _CONDITIONS[name](r[i.rs], r[i.rt])
            self.go(i.imm if taken else self.pc + 1)
            return True
        if name in _ARITHMETIC:
            value = _ARITHMETIC[name](r[i.rs], r[i.rt])
        elif name in _IMMEDIATE:
            value = _IMMEDIATE[name](r[i.rs], i.imm)
        elif name == "ldt":
            value = self._field(r[i.rs], i.imm)
        else:
            return False
        if i.rd:
            r[i.rd] = value & MASK
        self.go(self.pc + 1)
        return True

    def _field(self, column: int, number: int) -> int:
        if number == COLUMNS_FIELD:
            return len(self.table)
        if column >= len(self.table) or number >= len(Column._fields):
            raise Fault(ErrorCode.TABLE, column)
        return self.table[column][number]


def check_semaphores(*numbers: int) -> None:
    """Raise the fault of a semaphore that does not exist."""
    for number in numbers:
        if number >= SEMAPHORES:
            raise Fault(ErrorCode.SEMAPHORE, number)
