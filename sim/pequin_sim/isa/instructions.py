"""Instructions, launch words and programs: their bits, and what is legal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pequin.errors import InputError
from pequin_sim.isa.units import LEVELS

OPCODES = {
    "halt": 1,
    "addi": 2,
    "add": 3,
    "sub": 4,
    "and": 5,
    "andi": 6,
    "shl": 7,
    "shr": 8,
    "mul": 9,
    "beq": 10,
    "bne": 11,
    "blt": 12,
    "bge": 13,
    "ldt": 14,
    "set": 15,
    "launch": 16,
    "wait": 17,
    "signal": 18,
    "event": 19,
    "step": 20,
}
"""Number of each mnemonic."""

MNEMONICS = {number: name for name, number in OPCODES.items()}
"""Mnemonic of each legal opcode."""

OPERANDS: dict[str, tuple[str, ...]] = {
    "halt": (),
    "addi": ("rd", "rs", "imm"),
    "add": ("rd", "rs", "rt"),
    "sub": ("rd", "rs", "rt"),
    "and": ("rd", "rs", "rt"),
    "andi": ("rd", "rs", "imm"),
    "shl": ("rd", "rs", "imm"),
    "shr": ("rd", "rs", "imm"),
    "mul": ("rd", "rs", "rt"),
    "beq": ("rs", "rt", "imm"),
    "bne": ("rs", "rt", "imm"),
    "blt": ("rs", "rt", "imm"),
    "bge": ("rs", "rt", "imm"),
    "ldt": ("rd", "rs", "imm"),
    "set": ("unit", "reg", "rs", "imm"),
    "launch": ("unit", "imm"),
    "wait": ("imm",),
    "signal": ("imm",),
    "event": ("rs", "imm"),
    "step": (),
}
"""Fields that each instruction uses; all others must be zero."""

BRANCHES = ("beq", "bne", "blt", "bge")
"""Instructions whose `imm` is a program address."""

_PLACES = {
    "opcode": (0, 8),
    "rd": (8, 4),
    "rs": (12, 4),
    "rt": (16, 4),
    "unit": (20, 4),
    "reg": (24, 8),
    "imm": (32, 32),
}


class Instruction(NamedTuple):
    """One instruction; every field is the unsigned number in its bits."""

    opcode: int
    rd: int = 0
    rs: int = 0
    rt: int = 0
    unit: int = 0
    reg: int = 0
    imm: int = 0

    @property
    def mnemonic(self) -> str | None:
        """The mnemonic; None for an opcode that does not exist."""
        return MNEMONICS.get(self.opcode)


def encode(instruction: Instruction) -> int:
    """Return an instruction's 64 bits; a negative `imm` becomes two's complement.

    What is illegal but has bits, such as an unknown opcode, is encoded as it is.

    Raises
    ------
    InputError
        A field does not fit its bits.
    """
    word = 0
    for name, value in zip(Instruction._fields, instruction, strict=True):
        low, width = _PLACES[name]
        least = -(1 << 31) if name == "imm" else 0
        if not least <= value < 1 << width:
            raise InputError(f"{name} has {width} bits: {value} does not fit")
        word |= (int(value) & ((1 << width) - 1)) << low
    return word


def decode(word: int) -> Instruction:
    """Return the fields of 64 bits, whether legal or not."""
    word = int(word)
    return Instruction(*(word >> low & ((1 << width) - 1) for low, width in _PLACES.values()))


def is_legal(instruction: Instruction) -> bool:
    """Return whether the opcode exists, unused fields are zero, and shifts and codes in range.

    Units, registers, semaphores, table fields and branch targets have errors of their own.
    """
    name = instruction.mnemonic
    if name is None:
        return False
    used = ("opcode", *OPERANDS[name])
    if any(
        value and place not in used
        for place, value in zip(Instruction._fields, instruction, strict=True)
    ):
        return False
    if name in ("shl", "shr"):
        return instruction.imm < 32
    if name == "event":
        return instruction.imm < 1 << 16
    return name != "launch" or instruction.imm < 1 << 26


@dataclass(frozen=True, kw_only=True)
class LaunchWord:
    """What a launch does besides issuing its commands.

    Parameters
    ----------
    levels
        Loop levels, 0 to 3.
    signal, wait_a, wait_b
        Numbers of semaphores (6 bits; above 31 they are error 5), or None.
    signal_each, wait_a_each, wait_b_each
        For each command; otherwise signal after the last and wait before the first.
    """

    levels: int = 0
    signal: int | None = None
    signal_each: bool = False
    wait_a: int | None = None
    wait_a_each: bool = False
    wait_b: int | None = None
    wait_b_each: bool = False

    _LOWS = (("signal", 2), ("wait_a", 10), ("wait_b", 18))

    def pack(self) -> int:
        """Return the launch word.

        Raises
        ------
        InputError
            A number does not fit, or `..._each` is set without its semaphore.
        """
        if not 0 <= self.levels <= LEVELS:
            raise InputError(f"a launch has 0 to {LEVELS} loop levels, not {self.levels}")
        word = self.levels
        for name, low in self._LOWS:
            number, each = getattr(self, name), getattr(self, f"{name}_each")
            if number is None:
                if each:
                    raise InputError(f"{name}_each needs {name}")
                continue
            if not 0 <= number < 64:
                raise InputError(f"{name} has 6 bits: {number} does not fit")
            word |= (1 | number << 1 | int(each) << 7) << low
        return word

    @classmethod
    def unpack(cls, word: int) -> LaunchWord:
        """Return what a launch word means; bits of semaphores that take no part are dropped."""
        values: dict[str, int | bool] = {"levels": word & 3}
        for name, low in cls._LOWS:
            part = word >> low
            if part & 1:
                values[name] = part >> 1 & 63
                values[f"{name}_each"] = bool(part >> 7 & 1)
        return cls(**values)  # type: ignore[arg-type]

    @property
    def semaphores(self) -> tuple[int, ...]:
        """The numbers that take part: signal, wait A, wait B."""
        numbers = (self.signal, self.wait_a, self.wait_b)
        return tuple(number for number in numbers if number is not None)

    @property
    def waits(self) -> tuple[tuple[int, bool], ...]:
        """The waits that take part: number, and whether before each command."""
        pairs = ((self.wait_a, self.wait_a_each), (self.wait_b, self.wait_b_each))
        return tuple((number, each) for number, each in pairs if number is not None)


@dataclass(frozen=True)
class SourceLine:
    """Where an instruction comes from."""

    file: str
    number: int
    text: str


@dataclass(eq=False)
class Program:
    """Instructions, with what a person needs to read them.

    Parameters
    ----------
    words
        uint64 [instructions].
    labels
        Name -> program address.
    lines
        Source of each instruction, or None; empty when there is no source.
    entries
        Addresses at which the host may start; 0 when none is named.
    """

    words: npt.NDArray[np.uint64]
    labels: dict[str, int] = field(default_factory=dict)
    lines: Sequence[SourceLine | None] = ()
    entries: tuple[int, ...] = (0,)

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def of(cls, instructions: Iterable[Instruction], **others: object) -> Program:
        """Return a program of instructions; `others` are the other parameters."""
        words = np.array([encode(i) for i in instructions], dtype=np.uint64)
        return cls(words, **others)  # type: ignore[arg-type]

    @classmethod
    def from_bytes(cls, image: bytes) -> Program:
        """Return the program of a memory image: 8 bytes an instruction, little endian.

        Raises
        ------
        InputError
            The image does not end with a whole instruction.
        """
        if len(image) % 8:
            raise InputError(
                f"a program has 8 bytes for each instruction; {len(image)} bytes are no multiple"
            )
        return cls(np.frombuffer(image, dtype="<u8").astype(np.uint64))

    def to_bytes(self) -> bytes:
        """Return the memory image: 8 bytes an instruction, little endian."""
        return self.words.astype("<u8").tobytes()

    def beats(self) -> npt.NDArray[np.uint8]:
        """Return the image as uint8 [beats, 32], filled up with zeros, which are illegal."""
        raw = np.frombuffer(self.to_bytes(), np.uint8)
        return np.pad(raw, (0, -len(raw) % 32)).reshape(-1, 32)

    def where(self, address: int) -> str:
        """Return a description of an address: label and offset, and the source line."""
        best = max(
            ((at, name) for name, at in self.labels.items() if at <= address), default=(-1, "")
        )
        text = f"{address}"
        if best[1]:
            text += f" ({best[1]}{f' + {address - best[0]}' if address > best[0] else ''})"
        line = self.lines[address] if address < len(self.lines) else None
        return text if line is None else f"{text}, {line.file}:{line.number}"

    def replace(self, **changes: object) -> Program:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]
