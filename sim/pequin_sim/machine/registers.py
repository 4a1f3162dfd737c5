"""A unit's registers, and the commands that a launch makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pequin_sim.isa import COUNT_REGISTER, STRIDED, UNIT_NAMES, WORD_NAMES, register_exists
from pequin_sim.machine.events import ErrorCode, Fault

MASK = 0xFFFFFFFF


class UnitRegisters:
    """Registers of one unit: words, strides and iterations.

    Parameters
    ----------
    unit
        Number of the unit.
    """

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.values: dict[int, int] = {}

    def set(self, register: int, value: int) -> None:
        """Set a register.

        Raises
        ------
        Fault
            It does not exist.
        """
        name = UNIT_NAMES[self.unit] if self.unit < len(UNIT_NAMES) else ""
        if not register_exists(name, register):
            raise Fault(ErrorCode.UNIT, self.unit << 8 | register)
        self.values[register] = value & MASK

    def get(self, register: int) -> int:
        """Return a register's value; after reset 0, iterations 1."""
        after_reset = int(register > 15 and register % 16 == COUNT_REGISTER)
        return self.values.get(register, after_reset)

    def words(self) -> tuple[int, ...]:
        """Return the words without strides."""
        return tuple(self.get(w) for w in range(len(WORD_NAMES[UNIT_NAMES[self.unit]])))

    def commands(self, levels: int) -> tuple[int, Iterator[tuple[int, ...]]]:
        """Return how many commands a launch issues, and the words of each, level 1 innermost.

        Raises
        ------
        Fault
            A level has no iterations.
        """
        words = self.words()
        counts = [self.get(16 * level + COUNT_REGISTER) for level in range(1, levels + 1)]
        if 0 in counts:
            raise Fault(ErrorCode.COMMAND, words[0])
        return math.prod(counts), self._each(words, counts)

    def _each(self, words: tuple[int, ...], counts: list[int]) -> Iterator[tuple[int, ...]]:
        strided = STRIDED[UNIT_NAMES[self.unit]]
        strides = [
            [self.get(16 * level + w) for w in strided] for level in range(1, len(counts) + 1)
        ]
        for number in range(math.prod(counts)):
            command, rest = list(words), number
            for count, steps in zip(counts, strides, strict=True):
                rest, i = divmod(rest, count)
                for w, stride in zip(strided, steps, strict=True):
                    command[w] = (command[w] + i * stride) & MASK
            yield tuple(command)
