"""What a run leaves: commands, events, memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pequin_sim.isa import unpack_word
from pequin_sim.machine.events import Event, EventKind
from pequin_sim.machine.fetch import Words
from pequin_sim.machine.races import Race, Range
from pequin_sim.machine.state import Beats

Where = Literal["halted", "waiting", "error"]
"""How a run ended."""


@dataclass(frozen=True, eq=False)
class CommandRecord:
    """One command, as it was executed.

    Parameters
    ----------
    unit, number
        Name of the unit, and the command's number there, from 1.
    pc
        Program address of the launch.
    words
        Words of the command.
    reads, writes
        Places it read and wrote; HBM included.
    waits, signals
        Semaphores it took and signalled.
    values
        What it computed, uint32 bits: results of `mac` [rows, vectors], elements of `dma`. None
        otherwise, and unless the machine keeps values.
    """

    unit: str
    number: int
    pc: int
    words: Words
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    waits: tuple[int, ...]
    signals: tuple[int, ...]
    values: npt.NDArray[np.uint32] | None = None

    def __str__(self) -> str:
        fields = [
            f"{name}={value:#x}"
            for word, bits in enumerate(self.words)
            for name, value in unpack_word(self.unit, word, bits).items()
            if value
        ]
        parts = [f"{self.unit} command {self.number} (pc {self.pc}): {', '.join(fields)}"]
        for what, places in (("reads", self.reads), ("writes", self.writes)):
            if places:
                parts.append(f"{what} {', '.join(map(str, places))}")
        for what, numbers in (("waits on", self.waits), ("signals", self.signals)):
            if numbers:
                parts.append(f"{what} {', '.join(map(str, numbers))}")
        return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class Result:
    """What a run has done; the arrays are the machine's own, as they are now.

    Parameters
    ----------
    state
        "halted", "waiting" (for a STEP), or "error".
    pc
        Where the sequencer stands.
    events
        Events of this run, in program order.
    commands
        Commands of this run, in program order.
    races
        Races found in this run, unless they were raised.
    instructions
        Instructions of this run.
    vector, scalars
        uint32 bits of vector memory and of the scalar registers.
    limits
        int64 [columns, 2].
    activations, scales
        int8 [columns, act_blocks, 32] and uint8 [columns, act_blocks].
    kv, hbm
        uint8 [beats, 32].
    """

    state: Where
    pc: int
    events: list[Event]
    commands: list[CommandRecord]
    races: list[Race]
    instructions: int
    vector: npt.NDArray[np.uint32]
    scalars: npt.NDArray[np.uint32]
    limits: npt.NDArray[np.int64]
    activations: npt.NDArray[np.int8]
    scales: npt.NDArray[np.uint8]
    kv: Beats
    hbm: Beats

    @property
    def error(self) -> Event | None:
        """The ERROR event, if there was one."""
        return next((e for e in self.events if e.kind is EventKind.ERROR), None)

    @property
    def tokens(self) -> list[Event]:
        """The TOKEN events."""
        return [e for e in self.events if e.kind is EventKind.TOKEN]
