"""What is known of the units' registers at a place of the program."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, field

from pequin_sim.compiler.values import Register, Sum

_SERIAL = itertools.count()

Known = int | tuple[int, Hashable, int]
"""A constant; or register, its version, and an offset."""


@dataclass
class RegisterCache:
    """Contents of unit registers, so that none is set to what it holds.

    Parameters
    ----------
    units
        (unit, register) -> content, for those that are known.
    versions
        Sequencer register -> what stands for its present content.
    """

    units: dict[tuple[str, int], Known] = field(default_factory=dict)
    versions: dict[int, Hashable] = field(default_factory=dict)

    def copy(self) -> RegisterCache:
        """Return an independent copy."""
        return RegisterCache(dict(self.units), dict(self.versions))

    def written(self, register: Register) -> None:
        """Note that a sequencer register has a new content."""
        self.versions[register.number] = next(_SERIAL)

    def holds(self, unit: str, register: int, value: int | Sum) -> bool:
        """Return whether a unit register is known to hold a value."""
        return self.units.get((unit, register)) == self._known(value)

    def store(self, unit: str, register: int, value: int | Sum) -> None:
        """Note that a unit register was set."""
        self.units[unit, register] = self._known(value)

    def _known(self, value: int | Sum) -> Known:
        if isinstance(value, int):
            return value & 0xFFFFFFFF
        number = value.register.number
        return (number, self.versions.get(number, 0), value.offset & 0xFFFFFFFF)

    def meet(self, other: RegisterCache, place: Hashable) -> RegisterCache:
        """Return what holds whichever way `place` is reached.

        A register that differs gets a version that belongs to the place, the same every time.
        """
        units = {key: value for key, value in self.units.items() if other.units.get(key) == value}
        versions = {}
        for number in self.versions.keys() | other.versions.keys():
            a, b = self.versions.get(number, 0), other.versions.get(number, 0)
            versions[number] = a if a == b else ("meet", place, number)
        return RegisterCache(units, versions)
