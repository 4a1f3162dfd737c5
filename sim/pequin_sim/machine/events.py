"""What goes in and out of the golden machine: steps of the host, events, and refusals."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pequin.errors import InputError


class ErrorCode(enum.IntEnum):
    """Causes of an ERROR event that a program can have; docs/isa.md describes them."""

    ILLEGAL = 1
    PC = 2
    TABLE = 3
    UNIT = 4
    SEMAPHORE = 5
    VECTOR = 6
    MAC = 7
    HBM_ADDRESS = 8
    HBM_ECC = 9
    SRAM_ECC = 10
    KV_ADDRESS = 11
    COMMAND = 12
    WATCHDOG = 13
    STOPPED = 14


class EventKind(enum.IntEnum):
    """Kinds of events."""

    TOKEN = 1
    DONE = 2
    ERROR = 3


@dataclass(frozen=True)
class Event:
    """An event for the host.

    Parameters
    ----------
    kind
        What it tells.
    unit
        Name of the unit.
    code
        TOKEN: rank [7:0] and vector [15:8]; DONE: the instruction's; ERROR: an `ErrorCode`.
    pc
        Program address of the instruction or launch; 0 for TOKEN.
    value
        TOKEN: the index; DONE: the register; ERROR: 0.
    detail
        TOKEN: fp32 bits; ERROR: what docs/isa.md says.
    """

    kind: EventKind
    unit: str
    code: int
    pc: int = 0
    value: int = 0
    detail: int = 0

    @property
    def rank(self) -> int:
        """TOKEN: place among the vector's best, 0 for the best."""
        return self.code & 0xFF

    @property
    def vector(self) -> int:
        """TOKEN: the vector."""
        return self.code >> 8


class Column(NamedTuple):
    """A column of a step's table; each field has 32 bits."""

    slot: int = 0
    token: int = 0
    position: int = 0
    start: int = 0
    flags: int = 0
    kv_base: int = 0


@dataclass(frozen=True)
class Step:
    """A STEP of the host: one column for each token to work on.

    Raises
    ------
    InputError
        A field does not fit 32 bits.
    """

    columns: tuple[Column, ...]

    def __init__(self, columns: Iterable[Column | tuple[int, ...]]) -> None:
        object.__setattr__(self, "columns", tuple(Column(*map(int, c)) for c in columns))
        for number, column in enumerate(self.columns):
            for name, value in column._asdict().items():
                if not 0 <= value < 1 << 32:
                    raise InputError(f"column {number}: {name} has 32 bits, {value} does not fit")


class ProgramError(InputError):
    """The golden machine refuses a program: it would deadlock or depend on timing."""


class RaceError(ProgramError):
    """Two accesses of a program to the same place have no order."""


class Fault(Exception):  # noqa: N818  (not an error of the machine, but of the program it runs)
    """An error that the tile reports by an event; `unit` is None for who executes."""

    def __init__(self, code: ErrorCode, detail: int) -> None:
        super().__init__(f"{code.name} {detail:#x}")
        self.code, self.detail = code, detail & 0xFFFFFFFF
        self.unit: str | None = None
