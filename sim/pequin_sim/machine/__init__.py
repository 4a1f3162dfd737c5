"""The golden machine: executes a program in program order, bit for bit; docs/golden_machine.md.

It shares no arithmetic and no layout code with the hardware.
"""

from pequin_sim.machine.events import (
    Column,
    ErrorCode,
    Event,
    EventKind,
    ProgramError,
    RaceError,
    Step,
)
from pequin_sim.machine.machine import Machine
from pequin_sim.machine.races import Access, Race, Range
from pequin_sim.machine.records import CommandRecord, Result

__all__ = [
    "Access",
    "Column",
    "CommandRecord",
    "ErrorCode",
    "Event",
    "EventKind",
    "Machine",
    "ProgramError",
    "Race",
    "RaceError",
    "Range",
    "Result",
    "Step",
]
