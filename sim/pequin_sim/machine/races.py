"""Accesses to memories, and the pairs of them that nothing orders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pequin_sim.isa import UNIT_NAMES
from pequin_sim.machine.order import UNITS, Clock


class Range(NamedTuple):
    """Places of a memory: start, start + step, ... below stop.

    The unit of `vector` is an element, of `scalars` a register, of `limits` a column, of
    `activations` a block (column * act_blocks + address), of `kv` a byte, of `hbm` a beat;
    `kv_blocks` is the one register that `configure` sets.
    """

    memory: str
    start: int
    stop: int
    step: int = 1

    @property
    def slice(self) -> slice:
        """As an index."""
        return slice(self.start, self.stop, self.step)

    def __str__(self) -> str:
        step = f" step {self.step}" if self.step != 1 else ""
        return f"{self.memory} {self.start} to {self.stop - 1}{step}"


def runs(memory: str, places: npt.ArrayLike) -> list[Range]:
    """Return the ranges of neighbouring places."""
    order = np.unique(np.asarray(places, np.int64))
    if not len(order):
        return []
    breaks = np.flatnonzero(np.diff(order) != 1)
    starts = order[np.concatenate(([0], breaks + 1))]
    stops = order[np.concatenate((breaks, [len(order) - 1]))] + 1
    return [Range(memory, int(a), int(b)) for a, b in zip(starts, stops, strict=True)]


class Access(NamedTuple):
    """Who accesses: a command, by its unit, its number there, and its launch's address."""

    unit: int
    number: int
    pc: int

    def __str__(self) -> str:
        return f"{UNIT_NAMES[self.unit]} command {self.number} (pc {self.pc})"


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders.

    Parameters
    ----------
    earlier, later
        The commands, in program order.
    kind
        What they do, in program order: "write, read" and so on; "overflow" for a semaphore that
        may exceed 255.
    place
        A place that both access.
    """

    earlier: Access
    later: Access
    kind: str
    place: Range

    def __str__(self) -> str:
        if self.kind == "overflow":
            return (
                f"semaphore {self.place.start} may exceed 255: {self.later} signals it, and "
                "nothing ensures that it has been taken often enough before"
            )
        first, second = self.kind.split(", ")
        return (
            f"race: {self.earlier} {first}s and {self.later} {second}s {self.place}; no semaphore "
            "or stream puts one before the other"
        )


class Shadow:
    """For each place and unit, the number of the last command that read or wrote it.

    Parameters
    ----------
    sizes
        Places of each memory that is watched.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._last: dict[tuple[str, str, int], npt.NDArray[np.int32]] = {}
        self._pcs: list[list[int]] = [[0] for _ in range(UNITS)]

    def check(
        self, who: Access, clock: Clock, reads: Iterable[Range], writes: Iterable[Range]
    ) -> list[Race]:
        """Return the races of a command with those before it, and note its accesses."""
        pcs = self._pcs[who.unit]
        pcs.extend([who.pc] * (who.number + 1 - len(pcs)))
        accesses = [("read", r) for r in reads] + [("write", r) for r in writes]
        watched = [(kind, place) for kind, place in accesses if place.memory in self._sizes]
        races: dict[tuple[Access, str], Race] = {}
        for kind, place in watched:
            for race in self._conflicts(who, clock, kind, place):
                races.setdefault((race.earlier, race.kind), race)
        for kind, place in watched:
            self._table(place.memory, kind, who.unit)[place.slice] = who.number
        return list(races.values())

    def _table(self, memory: str, kind: str, unit: int) -> npt.NDArray[np.int32]:
        key = (memory, kind, unit)
        if key not in self._last:
            self._last[key] = np.zeros(self._sizes[memory], np.int32)
        return self._last[key]

    def _conflicts(self, who: Access, clock: Clock, kind: str, place: Range) -> Iterable[Race]:
        for other in ("write",) if kind == "read" else ("write", "read"):
            for unit in range(UNITS):
                table = self._last.get((place.memory, other, unit))
                if unit == who.unit or table is None:
                    continue
                numbers = table[place.slice]
                if numbers.size and numbers.max() > clock[unit]:
                    late = np.flatnonzero(numbers > clock[unit])
                    yield self._race(who, (unit, other, kind), place, numbers, late)

    def _race(
        self,
        who: Access,
        how: tuple[int, str, str],
        place: Range,
        numbers: npt.NDArray[np.int32],
        late: npt.NDArray[np.intp],
    ) -> Race:
        """Describe the first place of a conflict, with the neighbours that share it."""
        unit, other, kind = how
        number = int(numbers[late[0]])
        same = 1
        while same < len(late) and late[same] == late[0] + same and numbers[late[same]] == number:
            same += 1
        start = place.start + int(late[0]) * place.step
        where = Range(place.memory, start, start + (same - 1) * place.step + 1, place.step)
        earlier = Access(unit, number, self._pcs[unit][number])
        return Race(earlier, who, f"{other}, {kind}", where)
