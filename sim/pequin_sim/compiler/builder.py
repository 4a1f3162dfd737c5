"""Builds programs of the tile: sequencer code, launches, named semaphores."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pequin.errors import InputError
from pequin_sim.compiler.cache import RegisterCache
from pequin_sim.compiler.values import Choice, Each, Loop, Register, Signal, Sum, Value, Waits
from pequin_sim.isa import (
    COLUMNS_FIELD,
    LEVELS,
    OPCODES,
    SEMAPHORES,
    STRIDED,
    TABLE_FIELDS,
    UNIT_FIELDS,
    UNITS,
    WORD_NAMES,
    Instruction,
    LaunchWord,
    Program,
    SourceLine,
    count_register,
    field_value,
    pack_word,
    stride_register,
    word_number,
)
from pequin_sim.isa.units import check_unit

REGISTERS = 16
"""Registers of the sequencer; register 0 reads as zero."""

CONDITIONS = {"eq": "beq", "ne": "bne", "lt": "blt", "ge": "bge"}
"""Branch that is taken when a condition holds."""

_OPPOSITE = {"eq": "bne", "ne": "beq", "lt": "bge", "ge": "blt"}


_TABLE = {**TABLE_FIELDS, "columns": COLUMNS_FIELD}


class Label:
    """A place of the program; made by `ProgramBuilder.label`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address: int | None = None


class ProgramBuilder:
    """Collect instructions.

    Unit registers that are known to hold a value are not set again. What is known is followed
    through `when` and `repeat`; a loop's body is built several times until it is consistent, so
    a body must do the same each time it is called.

    A semaphore is made when it is first named. The unit that signals it and the one that waits
    on it are then fixed.

    Parameters
    ----------
    name
        File name in listings.
    """

    def __init__(self, name: str = "program") -> None:
        self.name = name
        self.zero = Register(0, "zero")
        self._registers: dict[str, Register] = {}
        self._code: list[tuple[Instruction, Label | None]] = []
        self._sections: list[str] = []
        self._labels: list[Label] = []
        self._section = ""
        self._cache = RegisterCache()
        self._semaphores: dict[str, int] = {}
        self._roles: dict[tuple[str, str], str] = {}
        self._breaks: list[tuple[Label, list[RegisterCache]]] = []
        self._places = itertools.count()

    def __len__(self) -> int:
        return len(self._code)

    @property
    def semaphores(self) -> dict[str, int]:
        """Numbers of the semaphores by name."""
        return dict(self._semaphores)

    def section(self, text: str) -> None:
        """Describe the instructions that follow, for listings."""
        self._section = text

    def register(self, name: str) -> Register:
        """Return the sequencer register of this name; a new name takes a free one.

        Raises
        ------
        InputError
            All are taken.
        """
        if name not in self._registers:
            if len(self._registers) == REGISTERS - 1:
                raise InputError(f"no register is left for {name!r}: {', '.join(self._registers)}")
            self._registers[name] = Register(len(self._registers) + 1, name)
        return self._registers[name]

    def emit(self, mnemonic: str, target: Label | None = None, **fields: int) -> None:
        """Append one instruction; `target` becomes its `imm`."""
        self._code.append((Instruction(OPCODES[mnemonic], **fields), target))
        self._sections.append(self._section)

    # Registers of the sequencer.

    def table(self, rd: Register, field: str, column: int | Register = 0) -> None:
        """Load a field of a column of the step's table."""
        index = column if isinstance(column, Register) else self.zero
        if isinstance(column, int) and column:
            index = self.register("column")
            self.let(index, column)
        self.emit("ldt", rd=rd.number, rs=index.number, imm=_TABLE[field])
        self._cache.written(rd)

    def let(self, rd: Register, value: int | Register | Sum) -> None:
        """Set a register to a constant, or to a register plus a constant."""
        source = value if isinstance(value, Sum) else Sum(*_parts(self.zero, value))
        self.emit("addi", rd=rd.number, rs=source.register.number, imm=source.offset)
        self._cache.written(rd)

    def compute(self, mnemonic: str, rd: Register, rs: Register, other: Register | int) -> None:
        """Set rd to `rs mnemonic other`: add, sub, and, mul; andi, shl, shr with a number."""
        if isinstance(other, int):
            self.emit(mnemonic, rd=rd.number, rs=rs.number, imm=other)
        else:
            self.emit(mnemonic, rd=rd.number, rs=rs.number, rt=other.number)
        self._cache.written(rd)

    def add_constant(self, rd: Register, constant: int) -> None:
        """Add a constant to a register."""
        self.let(rd, rd + constant)

    def multiply(self, rd: Register, rs: Register, factor: int, scratch: Register) -> None:
        """Set rd to rs * factor; `scratch` is used when no shift does it."""
        if factor > 0 and factor & (factor - 1) == 0:
            self.compute("shl", rd, rs, factor.bit_length() - 1)
        else:
            self.let(scratch, factor)
            self.compute("mul", rd, rs, scratch)

    # Control.

    def label(self, name: str = "") -> Label:
        """Return a label that is yet to be placed."""
        return Label(name)

    def place(self, label: Label) -> None:
        """Put a label here. Nothing is known of the unit registers of what comes from afar."""
        self._bind(label)
        self._cache = RegisterCache()
        for register in self._registers.values():
            self._cache.written(register)

    def jump(self, label: Label) -> None:
        """Go to a label."""
        self.emit("beq", label)

    def branch(self, condition: str, rs: Register, rt: Register, label: Label) -> None:
        """Go to a label when `rs condition rt` (eq, ne, lt, ge; unsigned)."""
        self.emit(CONDITIONS[condition], label, rs=rs.number, rt=rt.number)

    def when(
        self,
        condition: str,
        rs: Register,
        rt: Register,
        then: Callable[[], None],
        otherwise: Callable[[], None] | None = None,
    ) -> None:
        """Build `then` for the case that `rs condition rt`, and `otherwise` for the other."""
        other, end = Label(""), Label("")
        self.emit(_OPPOSITE[condition], other, rs=rs.number, rt=rt.number)
        before = self._cache.copy()
        then()
        if otherwise is None:
            self._bind(other)
            self._cache = self._cache.meet(before, next(self._places))
            return
        self.jump(end)
        after, self._cache = self._cache, before
        self._bind(other)
        otherwise()
        self._bind(end)
        self._cache = self._cache.meet(after, next(self._places))

    def repeat(self, body: Callable[[], None], name: str = "") -> None:
        """Build an endless loop, left by `leave`."""
        head_state, place = self._cache.copy(), next(self._places)
        mark, labels = len(self._code), len(self._labels)
        while True:
            del self._code[mark:], self._sections[mark:], self._labels[labels:]
            head, end = Label(name), Label("")
            self._bind(head)
            self._cache = head_state.copy()
            self._breaks.append((end, []))
            body()
            self.jump(head)
            _, states = self._breaks.pop()
            merged = head_state.meet(self._cache, place)
            if merged == head_state:
                break
            head_state = merged
        self._bind(end)
        self._cache = states[0] if states else RegisterCache()
        for state in states[1:]:
            self._cache = self._cache.meet(state, next(self._places))

    def leave(self, condition: str, rs: Register, rt: Register) -> None:
        """Leave the innermost `repeat` when `rs condition rt`."""
        if not self._breaks:
            raise InputError("leave: there is no loop around it")
        end, states = self._breaks[-1]
        self.branch(condition, rs, rt, end)
        states.append(self._cache.copy())

    def _bind(self, label: Label) -> None:
        label.address = len(self._code)
        self._labels.append(label)

    def step(self) -> None:
        """Wait for a STEP of the host."""
        self.emit("step")

    def event(self, value: Register, code: int = 0) -> None:
        """Tell the host DONE."""
        self.emit("event", rs=value.number, imm=code)

    def halt(self) -> None:
        """Stop."""
        self.emit("halt")

    def wait(self, name: str) -> None:
        """Let the sequencer wait on a semaphore."""
        self.emit("wait", imm=self._semaphore(name, "waiter", "seq"))

    def signal(self, name: str) -> None:
        """Let the sequencer signal a semaphore."""
        self.emit("signal", imm=self._semaphore(name, "signaller", "seq"))

    # Units.

    def launch(
        self,
        unit: str,
        *,
        signal: Signal | None = None,
        choose: Sequence[Choice] = (),
        wait: Waits = (),
        loops: Iterable[Loop] = (),
        words: Mapping[str, Register | Sum] | None = None,
        **fields: Value,
    ) -> None:
        """Set what differs of a unit's registers, and launch.

        Parameters
        ----------
        unit
            Name of the unit.
        signal
            Semaphore, signalled after the last command, or with `Each` after each.
        choose
            Conditions as of `branch`, each with a semaphore: that of the first one that holds is
            signalled instead.
        wait
            Up to two semaphores, taken before the first command, or with `Each` before each.
        loops
            Loop levels, innermost first; those of one iteration are left out.
        words
            Registers that are added to whole words, by word.
        fields
            Fields of the command. Fields of a word that is named are zero when they are not
            given; other words keep what they hold.

        Raises
        ------
        InputError
            A field or a value does not exist, more than one register is in a word, there are
            too many loops or waits, or a semaphore has another signaller or waiter.
        """
        check_unit(unit)
        levels = [loop for loop in loops if loop.count != 1]
        if len(levels) > LEVELS:
            raise InputError(f"a launch has up to {LEVELS} loop levels, not {len(levels)}")
        for word, value in sorted(self._words(unit, fields, words or {}).items()):
            self._set(unit, word, value)
        for number, loop in enumerate(levels, 1):
            self._level(unit, number, loop)
        joins = self._joins(unit, signal, wait)
        launch = LaunchWord(levels=len(levels), **joins)  # type: ignore[arg-type]
        if not choose:
            self.emit("launch", unit=UNITS[unit], imm=launch.pack())
            return
        words_of = [
            (condition, LaunchWord(levels=len(levels), **self._joins(unit, name, wait)).pack())  # type: ignore[arg-type]
            for *condition, name in choose
        ]
        self._choose(unit, words_of, launch.pack())

    def _choose(self, unit: str, choices: list[tuple[list[Any], int]], otherwise: int) -> None:
        """Launch with the word of the first condition that holds."""
        end = Label("")
        for (condition, rs, rt), word in choices:
            following = Label("")
            self.emit(_OPPOSITE[condition], following, rs=rs.number, rt=rt.number)
            self.emit("launch", unit=UNITS[unit], imm=word)
            self.jump(end)
            self._bind(following)
        self.emit("launch", unit=UNITS[unit], imm=otherwise)
        self._bind(end)

    def clear(self, unit: str, levels: int) -> None:
        """Set all words, and all strides of some levels, to zero.

        After a restart they may hold anything, and a field that a tile cannot hold is refused
        whether its command uses it or not.
        """
        for word in range(len(WORD_NAMES[unit])):
            self._set(unit, word, 0)
        for level in range(1, levels + 1):
            for word in STRIDED[unit]:
                self._set(unit, stride_register(unit, word, level), 0)

    def _words(
        self, unit: str, fields: Mapping[str, Value], added: Mapping[str, Register | Sum]
    ) -> dict[int, int | Sum]:
        constants: dict[int, int] = {}
        registers: dict[int, list[Sum]] = {}
        for name, value in fields.items():
            if isinstance(value, Register | Sum):
                place = UNIT_FIELDS[unit].get(name)
                if place is None or place.low:
                    raise InputError(
                        f"{unit}.{name} cannot take a register: it is no field at bit 0 of a word"
                    )
                registers.setdefault(place.word, []).append(_sum(value))
                constants.setdefault(place.word, 0)
            else:
                number = field_value(unit, name, value)
                place = UNIT_FIELDS[unit][name]
                word = constants.get(place.word, 0)
                constants[place.word] = word | pack_word(unit, place.word, **{name: number})
        for name, value in added.items():
            word = word_number(unit, name)
            registers.setdefault(word, []).append(_sum(value))
            constants.setdefault(word, 0)
        return {w: _joined(unit, w, c, registers.get(w, [])) for w, c in constants.items()}

    def _level(self, unit: str, level: int, loop: Loop) -> None:
        """Set the count and all strides of a loop level."""
        if not 1 <= loop.count < 1 << 16:
            raise InputError(f"a loop of {unit} has 1 to 65535 iterations, not {loop.count}")
        strides = dict.fromkeys(STRIDED[unit], 0)
        for name, stride in loop.strides.items():
            if name not in UNIT_FIELDS[unit]:
                raise InputError(f"{unit} has no field {name!r}")
            place = UNIT_FIELDS[unit][name]
            stride_register(unit, place.word, level)
            strides[place.word] += stride << place.low
        self._set(unit, count_register(level), loop.count)
        for word, stride in strides.items():
            self._set(unit, stride_register(unit, word, level), stride)

    def _set(self, unit: str, register: int, value: int | Sum) -> None:
        """Set a unit register unless it holds the value."""
        if self._cache.holds(unit, register, value):
            return
        self._cache.store(unit, register, value)
        source = value if isinstance(value, Sum) else Sum(self.zero, value)
        self.emit(
            "set",
            unit=UNITS[unit],
            reg=register,
            rs=source.register.number,
            imm=source.offset & 0xFFFFFFFF,
        )

    def _joins(self, unit: str, signal: Signal | None, wait: Waits) -> dict[str, int | bool]:
        """Return the semaphores' part of a launch word."""
        waits = wait if isinstance(wait, tuple) and not isinstance(wait, Each) else (wait,)
        if len(waits) > 2:
            raise InputError(f"a launch waits on up to two semaphores, not {len(waits)}")
        parts: dict[str, int | bool] = {}
        roles = [("wait_a", "waiter"), ("wait_b", "waiter")]
        named = list(zip(waits, roles, strict=False))
        if signal is not None:
            named.append((signal, ("signal", "signaller")))
        for item, (name, role) in named:
            text = item.name if isinstance(item, Each) else item
            parts[name] = self._semaphore(str(text), role, unit)
            parts[f"{name}_each"] = isinstance(item, Each)
        return parts

    def _semaphore(self, name: str, role: str, unit: str) -> int:
        """Return a semaphore's number after checking who uses it."""
        if name not in self._semaphores:
            if len(self._semaphores) == SEMAPHORES:
                raise InputError(f"no semaphore is left for {name!r}: there are {SEMAPHORES}")
            self._semaphores[name] = len(self._semaphores)
        known = self._roles.setdefault((name, role), unit)
        if known != unit:
            raise InputError(f"semaphore {name!r} has the {role} {known}; {unit} is a second one")
        return self._semaphores[name]

    def finish(self) -> Program:
        """Return the program.

        Raises
        ------
        InputError
            A label was never placed, or a semaphore lacks its signaller or its waiter.
        """
        for name in self._semaphores:
            for role in ("signaller", "waiter"):
                if (name, role) not in self._roles:
                    raise InputError(f"semaphore {name!r} has no {role}")
        instructions = []
        for instruction, label in self._code:
            if label is not None:
                if label.address is None:
                    raise InputError(f"label {label.name!r} was never placed")
                instruction = instruction._replace(imm=label.address)
            instructions.append(instruction)
        lines = [SourceLine(self.name, i + 1, text) for i, text in enumerate(self._sections)]
        labels = {label.name: label.address or 0 for label in self._labels if label.name}
        return Program.of(instructions, labels=labels, lines=lines)


def _parts(zero: Register, value: int | Register) -> tuple[Register, int]:
    return (value, 0) if isinstance(value, Register) else (zero, value)


def _sum(value: Register | Sum) -> Sum:
    return value if isinstance(value, Sum) else Sum(value)


def _joined(unit: str, word: int, constant: int, registers: list[Sum]) -> int | Sum:
    """Return a word: its constant fields plus at most one register."""
    if not registers:
        return constant
    if len(registers) > 1:
        names = ", ".join(r.register.name for r in registers)
        raise InputError(f"word {word} of {unit} can take one register, not {names}")
    return registers[0] + constant
