"""The assembler: text to program; docs/assembler.md describes the language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pequin.errors import InputError
from pequin_sim.isa.checks import check_program
from pequin_sim.isa.expressions import evaluate
from pequin_sim.isa.instructions import (
    OPCODES,
    OPERANDS,
    Instruction,
    LaunchWord,
    Program,
    SourceLine,
    encode,
    is_legal,
)
from pequin_sim.isa.units import (
    COLUMNS_FIELD,
    SEMAPHORES,
    TABLE_FIELDS,
    UNIT_FIELDS,
    UNITS,
    VALUES,
    check_unit,
    count_register,
    pack_word,
    register_exists,
    stride_register,
    word_number,
)

_NAME = re.compile(r"[A-Za-z_]\w*")
_REGISTER = re.compile(r"r(\d|1[0-5])")
_LABEL = re.compile(r"\s*([A-Za-z_]\w*)\s*:")

PSEUDO = {"li": ("rd", "imm"), "mv": ("rd", "rs"), "j": ("imm",)}
"""Instructions that stand for another: `addi rd, r0, imm`, `addi rd, rs, 0`, `beq r0, r0, imm`."""

_TABLE = {**TABLE_FIELDS, "columns": COLUMNS_FIELD}


@dataclass
class _Statement:
    """An instruction before its expressions are known."""

    line: SourceLine
    mnemonic: str
    operands: list[str]


@dataclass
class _Names:
    """What names mean."""

    constants: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)

    def define(self, kind: dict[str, int], name: str, value: int) -> None:
        if not _NAME.fullmatch(name) or _REGISTER.fullmatch(name):
            raise InputError(f"{name!r} is not a name")
        if any(name in known for known in (self.constants, self.labels, self.registers)):
            raise InputError(f"{name!r} is defined twice")
        kind[name] = value

    @property
    def values(self) -> dict[str, int]:
        return {**self.constants, **self.labels}


def assemble(text: str, file: str = "<text>", *, check: bool = True) -> Program:
    """Return the program of a source text.

    Parameters
    ----------
    text, file
        The source, and its name for messages.
    check
        Refuse a program that can be seen to deadlock, to break the rules of semaphores, or to
        run past its end.

    Raises
    ------
    InputError
        The source is wrong; the message begins with file and line.
    """
    names = _Names()
    statements: list[_Statement] = []
    entries: list[tuple[SourceLine, str]] = []
    for line in _lines(text, file):
        with _Located(line):
            _scan(line, names, statements, entries)
    words = []
    for statement in statements:
        with _Located(statement.line):
            words.append(_encode(statement, names))
    starts = [0]
    for line, name in entries:
        with _Located(line):
            if name not in names.labels:
                raise InputError(f"there is no label {name!r}")
            starts.append(names.labels[name])
    program = Program(
        np.array(words, np.uint64),
        labels=names.labels,
        lines=[statement.line for statement in statements],
        entries=tuple(dict.fromkeys(starts)),
    )
    if check:
        check_program(program)
    return program


class _Located:
    """Puts file and line in front of the message of an `InputError`."""

    def __init__(self, line: SourceLine) -> None:
        self._line = line

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            raise InputError(f"{self._line.file}:{self._line.number}: {error}") from None


def _lines(text: str, file: str) -> Iterator[SourceLine]:
    """Yield lines without comments; a line with an open bracket goes on in the next one."""
    held, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        code = re.split("[;#]", raw, maxsplit=1)[0].rstrip()
        if not held:
            first = number
        held = f"{held} {code.strip()}" if held else code
        if sum(map(held.count, "{(")) > sum(map(held.count, "})")):
            continue
        yield SourceLine(file, first, held)
        held = ""
    if held:
        raise InputError(f"{file}:{first}: a bracket is not closed")


def _scan(
    line: SourceLine,
    names: _Names,
    statements: list[_Statement],
    entries: list[tuple[SourceLine, str]],
) -> None:
    """Take labels and directives out of a line, and note its instruction."""
    rest = line.text
    while match := _LABEL.match(rest):
        names.define(names.labels, match[1], len(statements))
        rest = rest[match.end() :]
    if not rest.strip():
        return
    mnemonic, _, tail = rest.strip().replace("\t", " ").partition(" ")
    operands = _split(tail)
    if mnemonic == ".equ":
        _want(mnemonic, operands, 2)
        names.define(names.constants, operands[0], evaluate(operands[1], names.constants))
    elif mnemonic == ".reg":
        _want(mnemonic, operands, 2)
        names.define(names.registers, operands[0], _register(operands[1], names))
    elif mnemonic == ".entry":
        _want(mnemonic, operands, 1)
        entries.append((line, operands[0]))
    elif mnemonic in OPCODES or mnemonic in PSEUDO or mnemonic == ".word":
        statements.append(_Statement(line, mnemonic, operands))
    else:
        raise InputError(f"there is no instruction {mnemonic!r}")


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, part = [], 0, ""
    for char in text:
        depth += (char in "({") - (char in ")}")
        if char == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += char
    if parts or part.strip():
        parts.append(part.strip())
    if "" in parts:
        raise InputError("an operand is missing between two commas")
    return parts


def _want(mnemonic: str, operands: list[str], count: int) -> None:
    if len(operands) != count:
        raise InputError(f"{mnemonic} takes {count} operands, not {len(operands)}")


def _register(text: str, names: _Names) -> int:
    if _REGISTER.fullmatch(text):
        return int(text[1:])
    if text in names.registers:
        return names.registers[text]
    raise InputError(f"{text!r} is not a register")


def _encode(statement: _Statement, names: _Names) -> int:
    """Return an instruction's word."""
    mnemonic, operands = statement.mnemonic, statement.operands
    if mnemonic == ".word":
        _want(mnemonic, operands, 1)
        word = evaluate(operands[0], names.values)
        if not 0 <= word < 1 << 64:
            raise InputError(f"a word has 64 bits: {word} does not fit")
        return word
    special = {"set": _set, "launch": _launch}.get(mnemonic)
    instruction = special(operands, names) if special else _plain(mnemonic, operands, names)
    word = encode(instruction)
    if not is_legal(_masked(instruction)):
        raise InputError(f"{mnemonic}: {instruction.imm} is out of range")
    return word


def _masked(instruction: Instruction) -> Instruction:
    return instruction._replace(imm=instruction.imm & 0xFFFFFFFF)


def _plain(mnemonic: str, operands: list[str], names: _Names) -> Instruction:
    """Return an instruction of registers and an immediate."""
    form = PSEUDO.get(mnemonic) or OPERANDS[mnemonic]
    _want(mnemonic, operands, len(form))
    fields = {}
    for name, text in zip(form, operands, strict=True):
        if name != "imm":
            fields[name] = _register(text, names)
        elif mnemonic == "ldt":
            fields[name] = evaluate(text, {**names.values, **_TABLE})
        else:
            fields[name] = evaluate(text, names.values)
    real = {"li": "addi", "mv": "addi", "j": "beq"}.get(mnemonic, mnemonic)
    imm = fields.get("imm", 0)
    if mnemonic in ("wait", "signal"):
        _semaphore(imm)
    if mnemonic == "ldt" and imm not in _TABLE.values():
        known = ", ".join(_TABLE)
        raise InputError(f"the table has no field {imm}; it has {known}")
    return Instruction(OPCODES[real], **fields)


def _semaphore(number: int) -> int:
    if not 0 <= number < SEMAPHORES:
        raise InputError(f"semaphores are 0 to {SEMAPHORES - 1}, not {number}")
    return number


def _set(operands: list[str], names: _Names) -> Instruction:
    """Return `set unit.register, value`."""
    _want("set", operands, 2)
    unit, register = unit_register(operands[0], names.values)
    text, source = operands[1], 0
    match = re.match(r"(\w+)\s*(?=$|[+-])", text)
    if match and (_REGISTER.fullmatch(match[1]) or match[1] in names.registers):
        source, text = _register(match[1], names), text[match.end() :].strip()
    if text.startswith("+"):
        text = text[1:].strip()
    if text.startswith("{"):
        imm = _fields(unit, register, text, names)
    else:
        imm = evaluate(text, names.values) if text else 0
    opcode = OPCODES["set"]
    return Instruction(opcode, rs=source, unit=UNITS[unit], reg=register, imm=imm)


def unit_register(text: str, values: dict[str, int]) -> tuple[str, int]:
    """Return unit and number of a register like `mac.base`, `mac.base.stride1`, `mac.count2`.

    Raises
    ------
    InputError
        There is no such register.
    """
    unit, *parts = (part.strip() for part in text.split("."))
    check_unit(unit)
    if not 1 <= len(parts) <= 2:
        raise InputError(f"{text!r} is not a unit's register, such as {unit}.{_words(unit)}")
    count = re.fullmatch(r"count(\d)", parts[0])
    if count and len(parts) == 1:
        return unit, count_register(int(count[1]))
    if len(parts) == 2:
        stride = re.fullmatch(r"stride(\d)", parts[1])
        if not stride:
            raise InputError(f"{text!r}: a word has stride1 to stride3, not {parts[1]!r}")
        return unit, stride_register(unit, parts[0], int(stride[1]))
    if re.fullmatch(r"\d\w*", parts[0]):
        number = evaluate(parts[0], values)
        if not register_exists(unit, number):
            raise InputError(f"{unit} has no register {number}")
        return unit, number
    return unit, word_number(unit, parts[0])


def _words(unit: str) -> str:
    return next(iter(UNIT_FIELDS[unit]))


def _fields(unit: str, register: int, text: str, names: _Names) -> int:
    """Return the word of `{name=value, flag, ...}`."""
    if not text.endswith("}"):
        raise InputError(f"{text!r} does not end with a bracket")
    fields = {}
    for part in _split(text[1:-1]):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name in fields:
            raise InputError(f"field {name!r} is given twice")
        known = {**names.values, **VALUES[unit].get(name, {})}
        fields[name] = evaluate(value, known) if equals else 1
    if register % 16 == 15:
        raise InputError("iterations have no fields")
    return pack_word(unit, register % 16, **fields)


def _launch(operands: list[str], names: _Names) -> Instruction:
    """Return `launch unit, loops N, wait N each, wait N, signal N each`."""
    if not operands:
        raise InputError("launch takes a unit")
    unit = check_unit(operands[0])
    number = UNITS[unit]
    if len(operands) == 2 and operands[1].startswith("raw "):
        imm = evaluate(operands[1][4:], names.values)
        return Instruction(OPCODES["launch"], unit=number, imm=imm)
    given: dict[str, int | bool] = {}
    for operand in operands[1:]:
        word, _, value = operand.partition(" ")
        each = value.endswith(" each")
        value = value.removesuffix(" each")
        key = "wait_a" if word == "wait" else {"loops": "levels"}.get(word, word)
        if key == "wait_a" and key in given:
            key = "wait_b"
        if key not in ("levels", "wait_a", "wait_b", "signal") or key in given or not value:
            raise InputError(f"launch does not understand {operand!r} here")
        given[key] = evaluate(value, names.values)
        if key == "levels":
            if each:
                raise InputError("loops cannot be 'each'")
            continue
        _semaphore(int(given[key]))
        given[f"{key}_each"] = each
    packed = LaunchWord(**given).pack()  # type: ignore[arg-type]
    return Instruction(OPCODES["launch"], unit=number, imm=packed)
