"""The disassembler: a program as text that assembles to the same words."""

from __future__ import annotations

from pequin_sim.isa.instructions import (
    BRANCHES,
    OPERANDS,
    Instruction,
    LaunchWord,
    Program,
    decode,
    is_legal,
)
from pequin_sim.isa.units import (
    COLUMNS_FIELD,
    COUNT_REGISTER,
    SEMAPHORES,
    TABLE_FIELDS,
    UNIT_FIELDS,
    UNIT_NAMES,
    VALUES,
    WORD_NAMES,
    pack_word,
    register_exists,
    unpack_word,
)

_TABLE = {number: name for name, number in TABLE_FIELDS.items()} | {COLUMNS_FIELD: "columns"}


def disassemble(program: Program) -> str:
    """Return the source of a program; labels it has not are made up.

    `assemble(disassemble(program), check=False)` has the same words.
    """
    labels = label_names(program)
    lines = []
    for pc, word in enumerate(program.words):
        lines += [f"{name}:" for name in sorted(labels.get(pc, ()))]
        lines.append(f"    {instruction_text(int(word), labels)}")
    lines += [f"{name}:" for name in sorted(labels.get(len(program), ()))]
    return "\n".join(lines) + "\n" if lines else ""


def label_names(program: Program) -> dict[int, list[str]]:
    """Return the labels of each address; a branch target inside the program has at least one."""
    labels: dict[int, list[str]] = {}
    for name, pc in program.labels.items():
        labels.setdefault(pc, []).append(name)
    for word in program.words:
        i = decode(int(word))
        inside = i.mnemonic in BRANCHES and is_legal(i) and i.imm < len(program)
        if inside and i.imm not in labels:
            name = f"L{i.imm}"
            while name in program.labels:
                name += "_"
            labels[i.imm] = [name]
    return labels


def instruction_text(word: int, labels: dict[int, list[str]] | None = None) -> str:
    """Return one instruction's text; what has none is `.word`."""
    i = decode(word)
    text = _text(i, labels or {}) if is_legal(i) else None
    return f".word {word:#018x}" if text is None else text


def _text(i: Instruction, labels: dict[int, list[str]]) -> str | None:
    name = i.mnemonic
    assert name is not None
    if name == "set":
        return _set(i)
    if name == "launch":
        return _launch(i)
    if name in ("wait", "signal") and i.imm >= SEMAPHORES:
        return None
    operands = []
    for place in OPERANDS[name]:
        if place != "imm":
            operands.append(f"r{getattr(i, place)}")
        elif name == "ldt":
            if i.imm not in _TABLE:
                return None
            operands.append(_TABLE[i.imm])
        elif name in BRANCHES and i.imm in labels:
            operands.append(sorted(labels[i.imm])[0])
        elif name == "addi":
            operands.append(str(_signed(i.imm)))
        else:
            operands.append(hex(i.imm) if name == "andi" else str(i.imm))
    return f"{name} {', '.join(operands)}".strip()


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _set(i: Instruction) -> str | None:
    unit = UNIT_NAMES[i.unit] if i.unit < len(UNIT_NAMES) else ""
    if not register_exists(unit, i.reg):
        return None
    level, word = divmod(i.reg, 16)
    if level and word == COUNT_REGISTER:
        target = f"{unit}.count{level}"
    else:
        target = f"{unit}.{WORD_NAMES[unit][word]}" + (f".stride{level}" if level else "")
    value = str(_signed(i.imm))
    if word != COUNT_REGISTER and level == 0:
        value = _fields(unit, word, i.imm) or value
    if i.rs and i.imm == 0:
        value = f"r{i.rs}"
    elif i.rs:
        value = f"r{i.rs} - {value[1:]}" if value.startswith("-") else f"r{i.rs} + {value}"
    return f"set {target}, {value}"


def _fields(unit: str, word: int, value: int) -> str | None:
    """Return a word of several fields by their names, if that says all of it."""
    fields = unpack_word(unit, word, value)
    if not value or len(fields) == 1:
        return None
    used = {name: number for name, number in fields.items() if number}
    if pack_word(unit, word, **used) != value:
        return None
    return "{" + ", ".join(_field(unit, name, number) for name, number in used.items()) + "}"


def _field(unit: str, name: str, number: int) -> str:
    known = VALUES[unit].get(name, {})
    if name == "per_vector":
        return f"{name}={' | '.join(part for part, bit in known.items() if number & bit)}"
    for text, value in known.items():
        if value == number:
            return f"{name}={text}"
    return name if UNIT_FIELDS[unit][name].width == 1 else f"{name}={number}"


def _launch(i: Instruction) -> str | None:
    unit = UNIT_NAMES[i.unit] if i.unit < len(UNIT_NAMES) else "seq"
    if unit == "seq":
        return None
    launch = LaunchWord.unpack(i.imm)
    plain = launch.wait_a is not None or launch.wait_b is None
    fits = all(number < SEMAPHORES for number in launch.semaphores)
    if launch.pack() != i.imm or not plain or not fits:
        return f"launch {unit}, raw {i.imm:#x}"
    parts = [unit]
    if launch.levels:
        parts.append(f"loops {launch.levels}")
    parts += [f"wait {number}{' each' if each else ''}" for number, each in launch.waits]
    if launch.signal is not None:
        parts.append(f"signal {launch.signal}{' each' if launch.signal_each else ''}")
    return f"launch {', '.join(parts)}"
