"""What comes before what: vector clocks from semaphores and streams.

A clock has an entry for each unit: so many of that unit's commands have completed. Each unit works
through its commands in order, so that what one has waited for holds for all that follow.
"""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, field

from pequin_sim.isa import SEMAPHORE_MAX, SEMAPHORES, UNIT_NAMES
from pequin_sim.machine.events import ErrorCode, Fault, ProgramError

Clock = list[int]
UNITS = len(UNIT_NAMES)


def joined(a: Clock, b: Clock) -> Clock:
    """Return what both clocks know."""
    return [max(x, y) for x, y in zip(a, b, strict=True)]


@dataclass
class Semaphore:
    """A semaphore with the clocks of its signals that nobody has taken."""

    pending: deque[Clock] = field(default_factory=deque)
    signals: int = 0
    taken: list[int] = field(default_factory=list)
    signaller: tuple[int, int] | None = None
    waiter: tuple[int, int] | None = None


class Order:
    """Clocks of all units, and the semaphores that join them.

    Parameters
    ----------
    semaphores
        State of each.
    overflows
        (semaphore, unit, pc) of signals that may exceed 255 under some timing.
    """

    def __init__(self) -> None:
        self._known: list[Clock] = [[0] * UNITS for _ in range(UNITS)]
        self._count = [0] * UNITS
        self.overflows: list[tuple[int, int, int]] = []
        self.clear_semaphores()

    def clear_semaphores(self) -> None:
        """Set all semaphores to zero, as a start does."""
        self.semaphores = [Semaphore() for _ in range(SEMAPHORES)]

    def known(self, unit: int) -> Clock:
        """Return what has completed before anything that `unit` does now."""
        return self._known[unit]

    def number(self, unit: int) -> int:
        """Return the commands that `unit` has begun."""
        return self._count[unit]

    def learn(self, unit: int, clock: Clock) -> None:
        """Let everything that `unit` does from now on come after `clock`."""
        self._known[unit] = joined(self._known[unit], clock)

    def begin(self, unit: int) -> int:
        """Count a command; return its number, from 1."""
        self._count[unit] += 1
        return self._count[unit]

    def at(self, unit: int, completed: int) -> Clock:
        """Return what is known to `unit`, with so many of its own commands completed."""
        clock = list(self._known[unit])
        clock[unit] = max(clock[unit], completed)
        return clock

    def wait(self, unit: int, numbers: tuple[int, ...], pc: int) -> None:
        """Take one of each semaphore at once.

        Raises
        ------
        ProgramError
            One is zero: no command before this one signals it. Or it has another waiter.
        """
        for number in numbers:
            semaphore = self.semaphores[number]
            if semaphore.waiter is None:
                semaphore.waiter = (unit, pc)
            if semaphore.waiter[0] != unit:
                raise ProgramError(
                    f"semaphore {number} has two waiters: {_who(*semaphore.waiter)} and "
                    f"{_who(unit, pc)}; only one unit may wait on it"
                )
            if len(semaphore.pending) < numbers.count(number):
                raise ProgramError(
                    f"deadlock: {_who(unit, pc)} waits on semaphore {number}, which nothing "
                    f"earlier in the program has signalled often enough (signals so far: "
                    f"{semaphore.signals}, taken: {len(semaphore.taken)})"
                )
        for number in numbers:
            self.semaphores[number].taken.append(self._count[unit] + 1)
            self.learn(unit, self.semaphores[number].pending.popleft())

    def signal(self, unit: int, number: int, pc: int) -> None:
        """Add one to a semaphore after the unit's current command has completed.

        Raises
        ------
        ProgramError
            Another unit signals it too.
        Fault
            It is 255.
        """
        semaphore = self.semaphores[number]
        if semaphore.signaller is None:
            semaphore.signaller = (unit, pc)
        if semaphore.signaller[0] != unit:
            raise ProgramError(
                f"semaphore {number} has two signallers: {_who(*semaphore.signaller)} and "
                f"{_who(unit, pc)}; only one unit may signal it"
            )
        if len(semaphore.pending) >= SEMAPHORE_MAX:
            raise Fault(ErrorCode.SEMAPHORE, number)
        clock = self.at(unit, self._count[unit])
        semaphore.pending.append(clock)
        semaphore.signals += 1
        self._check_overflow(unit, number, pc, clock)

    def _check_overflow(self, unit: int, number: int, pc: int, clock: Clock) -> None:
        """Note a signal that exceeds 255 when the waiter is as late as it may be."""
        semaphore = self.semaphores[number]
        if semaphore.signals <= SEMAPHORE_MAX or semaphore.waiter is None:
            return
        certain = bisect.bisect_right(semaphore.taken, clock[semaphore.waiter[0]])
        if semaphore.signals - certain > SEMAPHORE_MAX:
            self.overflows.append((number, unit, pc))


def _who(unit: int, pc: int) -> str:
    return f"{UNIT_NAMES[unit]} (pc {pc})"
