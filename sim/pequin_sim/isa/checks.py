"""What can be seen to be wrong with a program before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from pequin.errors import InputError
from pequin_sim.isa.instructions import BRANCHES, Instruction, LaunchWord, Program, decode, is_legal
from pequin_sim.isa.units import SEMAPHORES, UNIT_NAMES, UNITS

_SUPPLIERS = {"mac": ("stream", "kv"), "drain": ("mac", "dma")}
"""Units that take what others bring."""


def check_program(program: Program) -> None:
    """Refuse a program that breaks a rule for certain.

    Only what can be reached counts. That a program passes does not mean that it is right: the
    golden machine decides.

    Raises
    ------
    InputError
        A jump leaves the program, the program runs past its end, a semaphore has two signallers
        or two waiters, or is waited for before anything can have signalled it, or a unit needs
        what no other can have brought before. The message begins with file and line, if known.
    """
    code = [decode(int(word)) for word in program.words]
    reached: set[int] = set()
    for entry in program.entries:
        reached |= _reached(program, code, entry)
        _check_waits(program, code, entry)
        _check_supplies(program, code, entry)
    _check_owners(program, code, sorted(reached))


def _fail(program: Program, pc: int, message: str) -> InputError:
    line = program.lines[pc] if pc < len(program.lines) else None
    where = f"{line.file}:{line.number}" if line else f"pc {pc}"
    return InputError(f"{where}: {message}")


def _reached(program: Program, code: list[Instruction], entry: int) -> set[int]:
    """Return the addresses that can be reached."""
    if entry >= len(code):
        raise InputError("the program has no instructions")
    reached, todo = {entry}, [entry]
    while todo:
        pc = todo.pop()
        for target in _next(program, code[pc], pc):
            if target not in reached:
                reached.add(target)
                todo.append(target)
    return reached


def _never(
    program: Program, code: list[Instruction], entry: int, needs: list[bool], gives: list[bool]
) -> list[int]:
    """Return the instructions that need what none can have given on any way to them.

    A way ends where something is needed that has not been given.
    """
    start = (entry, False)
    reached, todo = {start}, [start]
    while todo:
        pc, given = todo.pop()
        if needs[pc] and not given:
            continue
        given = given or gives[pc]
        for target in _next(program, code[pc], pc):
            if (target, given) not in reached:
                reached.add((target, given))
                todo.append((target, given))
    return sorted(
        pc for pc, given in reached if needs[pc] and not given and (pc, True) not in reached
    )


def _next(program: Program, i: Instruction, pc: int) -> Iterator[int]:
    """Yield where an instruction can go on; nowhere after one that stops the program."""
    size = len(program)
    if i.mnemonic == "halt" or not is_legal(i):
        return
    if i.mnemonic in BRANCHES:
        always = i.rs == i.rt and i.mnemonic in ("beq", "bge")
        never = i.rs == i.rt and i.mnemonic in ("bne", "blt")
        if not never:
            if i.imm >= size:
                raise _fail(program, pc, f"a branch to {i.imm} leaves the program of {size}")
            yield i.imm
        if always:
            return
    if pc + 1 >= size:
        raise _fail(program, pc, "the program runs past its end; add halt or a branch")
    yield pc + 1


def _waits(i: Instruction) -> tuple[int, ...]:
    if i.mnemonic == "wait":
        return (i.imm,)
    if i.mnemonic == "launch":
        return tuple(number for number, _ in LaunchWord.unpack(i.imm).waits)
    return ()


def _signals(i: Instruction) -> tuple[int, ...]:
    if i.mnemonic == "signal":
        return (i.imm,)
    signal = LaunchWord.unpack(i.imm).signal if i.mnemonic == "launch" else None
    return () if signal is None else (signal,)


def _check_waits(program: Program, code: list[Instruction], entry: int) -> None:
    waits, signals = [_waits(i) for i in code], [_signals(i) for i in code]
    found = []
    for number in {n for numbers in waits for n in numbers if n < SEMAPHORES}:
        needs = [number in numbers for numbers in waits]
        gives = [number in numbers for numbers in signals]
        found += [(pc, number) for pc in _never(program, code, entry, needs, gives)]
    for pc, number in sorted(found):
        message = f"deadlock: nothing before this wait can have signalled semaphore {number}"
        raise _fail(program, pc, message)


def _check_supplies(program: Program, code: list[Instruction], entry: int) -> None:
    """Check that what a unit takes from another can have been launched before."""
    for name, sources in _SUPPLIERS.items():
        givers = [UNITS[source] for source in sources]
        needs = [i.mnemonic == "launch" and i.unit == UNITS[name] for i in code]
        gives = [i.mnemonic == "launch" and i.unit in givers for i in code]
        for pc in _never(program, code, entry, needs, gives):
            message = f"takes what {' or '.join(sources)} brings, and neither is launched before"
            raise _fail(program, pc, f"deadlock: {name} {message}")


def _check_owners(program: Program, code: list[Instruction], reached: list[int]) -> None:
    """Check that one unit signals a semaphore, and one waits on it."""
    for who, numbers in (("signal", _signals), ("wait on", _waits)):
        owners: dict[int, tuple[int, int]] = {}
        for pc in reached:
            for number in numbers(code[pc]):
                unit = code[pc].unit
                first, at = owners.setdefault(number, (unit, pc))
                if first != unit:
                    raise _fail(
                        program,
                        pc,
                        f"two units {who} semaphore {number}: {UNIT_NAMES[unit]} here, and "
                        f"{UNIT_NAMES[first]} at {program.where(at)}",
                    )
