"""What can be seen to be wrong with a program before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from pequin.errors import InputError
from pequin_sim.isa.instructions import BRANCHES, Instruction, LaunchWord, Program, decode, is_legal
from pequin_sim.isa.units import SEMAPHORES, UNIT_NAMES, UNITS

_UNIT_BIT = SEMAPHORES
"""Facts are sets of bits: semaphores signalled, and from this bit on units launched."""


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
        facts = _facts(program, code, entry)
        reached |= facts.keys()
        for pc in sorted(facts):
            _check_waits(program, code[pc], pc, facts[pc])
            _check_supply(program, code[pc], pc, facts[pc])
    _check_owners(program, code, sorted(reached))


def _fail(program: Program, pc: int, message: str) -> InputError:
    line = program.lines[pc] if pc < len(program.lines) else None
    where = f"{line.file}:{line.number}" if line else f"pc {pc}"
    return InputError(f"{where}: {message}")


def _facts(program: Program, code: list[Instruction], entry: int) -> dict[int, int]:
    """Return, for each address that can be reached, what may have happened before it."""
    if entry >= len(code):
        raise InputError("the program has no instructions")
    facts = {entry: 0}
    todo = [entry]
    while todo:
        pc = todo.pop()
        after = facts[pc] | _adds(code[pc])
        for target in _next(program, code[pc], pc):
            known = facts.get(target)
            if known is None or known | after != known:
                facts[target] = (known or 0) | after
                todo.append(target)
    return facts


def _adds(i: Instruction) -> int:
    """Return the facts that an instruction adds."""
    if i.mnemonic == "signal":
        return 1 << i.imm if i.imm < SEMAPHORES else 0
    if i.mnemonic != "launch":
        return 0
    signal = LaunchWord.unpack(i.imm).signal
    added = 1 << _UNIT_BIT + i.unit
    return added | (1 << signal if signal is not None and signal < SEMAPHORES else 0)


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


def _check_waits(program: Program, i: Instruction, pc: int, before: int) -> None:
    for number in _waits(i):
        if number < SEMAPHORES and not before >> number & 1:
            raise _fail(
                program,
                pc,
                f"deadlock: nothing before this wait can have signalled semaphore {number}",
            )


def _check_supply(program: Program, i: Instruction, pc: int, before: int) -> None:
    """Check that what a unit takes from another can have been launched before."""
    if i.mnemonic != "launch":
        return
    sources = {UNITS["mac"]: ("stream", "kv"), UNITS["drain"]: ("mac", "dma")}.get(i.unit, ())
    if sources and not any(before >> _UNIT_BIT + UNITS[unit] & 1 for unit in sources):
        raise _fail(
            program,
            pc,
            f"deadlock: {UNIT_NAMES[i.unit]} takes what {' or '.join(sources)} brings, and "
            "neither is launched before",
        )


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
