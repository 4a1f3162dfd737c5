"""What a program is built from: registers, sums, loop levels, semaphores taken each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Register:
    """One of the sequencer's registers, under a name."""

    number: int
    name: str

    def __add__(self, offset: int) -> Sum:
        return Sum(self, offset)


@dataclass(frozen=True)
class Sum:
    """A register's content plus a constant."""

    register: Register
    offset: int = 0

    def __add__(self, offset: int) -> Sum:
        return Sum(self.register, self.offset + offset)


Value = int | str | tuple[str, ...] | Register | Sum
"""Of a field: a number, a name, several names of bits, or a register and a constant."""


@dataclass(frozen=True)
class Loop:
    """One loop level of a launch.

    Parameters
    ----------
    count
        Iterations.
    strides
        By field: what is added to it with each iteration.
    """

    count: int
    strides: Mapping[str, int] = field(default_factory=dict)


class Each(NamedTuple):
    """A semaphore that every command of a launch signals or waits on."""

    name: str


Signal = str | Each
Waits = str | Each | tuple[str | Each, ...]

Choice = tuple[str, Register, Register, Signal]
"""A condition (eq, ne, lt, ge and two registers), and the semaphore that is signalled then."""
