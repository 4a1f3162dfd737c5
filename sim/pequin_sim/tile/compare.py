"""One program on the RTL and on the golden machine, and the first place where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import TileParams
from pequin.tile.types import Memory
from pequin_sim.isa import Program, instruction_text
from pequin_sim.machine import CommandRecord, Event, EventKind, Machine, Result, Step
from pequin_sim.rtl.tile import TileJob, TileRun, run_tile

Values = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Difference:
    """A place that the RTL and the golden machine leave with different values.

    Parameters
    ----------
    memory
        `vector`, `scalars`, `activations`, `scales` or `kv`.
    place
        Element of vector memory, register, byte of the activation buffer ((column * act_blocks +
        address) * 32 + element), block of its scales, or byte of the KV buffer.
    golden, rtl
        Values as unsigned numbers: 32 bits, or 8 for bytes.
    writer
        The command that wrote it last in the golden machine; None when none did.
    instruction
        Text of the launch of that command.
    """

    memory: str
    place: int
    golden: int
    rtl: int
    writer: CommandRecord | None
    instruction: str | None

    def __str__(self) -> str:
        digits = 8 if self.memory in ("vector", "scalars") else 2
        text = (
            f"{self.memory} {self.place}: golden 0x{self.golden:0{digits}x}, RTL "
            f"0x{self.rtl:0{digits}x}"
        )
        if self.writer is None:
            return f"{text}; the program does not write there"
        return (
            f"{text}; written by {self.writer.unit} command {self.writer.number}, pc "
            f"{self.writer.pc}: {self.instruction}"
        )


@dataclass(frozen=True, eq=False)
class Comparison:
    """What both left.

    Parameters
    ----------
    rtl, golden
        The runs.
    compared
        Places compared, by memory.
    differing
        Places that differ, by memory.
    first
        The difference whose writer comes first in the program's order.
    event
        The first event that differs, as text.
    """

    rtl: TileRun
    golden: Result
    compared: dict[str, int]
    differing: dict[str, int]
    first: Difference | None
    event: str | None

    @property
    def match(self) -> bool:
        """Whether everything is equal."""
        return self.first is None and self.event is None

    def report(self) -> str:
        """Return one line: what was compared, or the first difference."""
        if self.match:
            parts = ", ".join(f"{count} of {name}" for name, count in self.compared.items())
            return f"equal: {len(self.rtl.events)} events; {parts}"
        lines = []
        if self.event is not None:
            lines.append(f"events differ: {self.event}")
        if self.first is not None:
            total = sum(self.differing.values())
            lines.append(f"{total} places differ, the first written: {self.first}")
        return "\n".join(lines)


def compare_tile(
    params: TileParams,
    program: Program,
    hbm: npt.NDArray[np.uint8],
    steps: Sequence[Step] = (),
    *,
    golden: Result | None = None,
    job: dict[str, Any] | None = None,
    **options: Any,
) -> Comparison:
    """Run a program on both and compare events and every memory that programs write.

    Memory that the program does not write must keep its content.

    Parameters
    ----------
    params
        The tile.
    program, hbm, steps
        As `Machine` takes them.
    golden
        What the golden machine left with the same program, when it has been run already; its
        events are those of the whole run.
    job
        More fields of `TileJob`.
    options
        Go to `run_tile`.

    Raises
    ------
    ProgramError
        The golden machine refuses the program.
    SimulationFailed
        The RTL does not come to the same number of events.
    """
    if golden is None:
        golden = Machine(params, hbm, program).run(steps)
    c = params.config
    blocks = c.columns * c.act_blocks
    reads = {
        Memory.VECTOR: (0, c.vector_elements // 8),
        Memory.SCALARS: (0, c.scalars // 8),
        Memory.KV: (0, c.kv_beats),
        Memory.ACTIVATIONS: (0, 2 * blocks),
    }
    if c.scalars < 8:
        reads.pop(Memory.SCALARS)
    tile_job = TileJob(
        program=np.asarray(program.words, np.uint64),
        steps=steps,
        events=len(golden.events),
        hbm=hbm,
        reads=reads,
        **(job or {}),
    )
    run = run_tile(params, tile_job, **options)
    rtl = _rtl_memories(run, golden, blocks)
    expected = _golden_memories(golden)
    return _compared(run, golden, program, expected, rtl)


def _golden_memories(golden: Result) -> dict[str, Values]:
    return {
        "vector": golden.vector,
        "scalars": golden.scalars,
        "activations": golden.activations.view(np.uint8).reshape(-1),
        "scales": golden.scales.reshape(-1),
        "kv": golden.kv.reshape(-1),
    }


def _rtl_memories(run: TileRun, golden: Result, blocks: int) -> dict[str, Values]:
    inside = run.memories[Memory.ACTIVATIONS].reshape(blocks, 2, 32)
    elements, scales = inside[:, 0].copy(), inside[:, 1, 0]
    # Elements are stored in offset binary: a block that was never written reads as -128.
    written = _written(golden, "activations", blocks)
    assert (elements[~written] == 0x80).all(), "an activation block changed that nothing wrote"
    elements[~written] = 0
    memories: dict[str, Values] = {
        "vector": _words(run.memories[Memory.VECTOR]),
        "activations": elements.reshape(-1),
        "scales": scales,
        "kv": run.memories[Memory.KV].reshape(-1),
    }
    if Memory.SCALARS in run.memories:
        memories["scalars"] = _words(run.memories[Memory.SCALARS])
    return memories


def _words(beats: npt.NDArray[np.uint8]) -> Values:
    return np.ascontiguousarray(beats).view("<u4").reshape(-1)


def _written(golden: Result, memory: str, places: int) -> npt.NDArray[np.bool_]:
    return _writers(golden, memory, places) >= 0


def _writers(golden: Result, memory: str, places: int) -> npt.NDArray[np.int64]:
    """Return the number of the last command that wrote each place, or -1."""
    writer = np.full(places, -1, np.int64)
    for number, command in enumerate(golden.commands):
        for written in command.writes:
            if written.memory == memory:
                writer[written.slice] = number
    return writer


def _compared(
    run: TileRun,
    golden: Result,
    program: Program,
    expected: dict[str, Values],
    rtl: dict[str, Values],
) -> Comparison:
    compared, differing = {}, {}
    first: tuple[int, Difference] | None = None
    for memory, have in rtl.items():
        want = expected[memory]
        assert want.shape == have.shape, (memory, want.shape, have.shape)
        compared[memory] = len(want)
        places = np.flatnonzero(want != have)
        differing[memory] = len(places)
        if len(places):
            found = _first(golden, program, memory, places, want, have)
            first = found if first is None or found[0] < first[0] else first
    return Comparison(
        rtl=run,
        golden=golden,
        compared=compared,
        differing=differing,
        first=first[1] if first else None,
        event=_event_difference(golden.events, run.events),
    )


def _first(
    golden: Result,
    program: Program,
    memory: str,
    places: npt.NDArray[np.int64],
    want: Values,
    have: Values,
) -> tuple[int, Difference]:
    """Return the difference of one memory whose writer is the first; unwritten ones come last."""
    traced, scale = {"scales": ("activations", 1), "activations": ("activations", 32)}.get(
        memory, (memory, 1)
    )
    writers = _writers(golden, traced, len(want) // scale)[places // scale]
    order = np.where(writers < 0, len(golden.commands), writers)
    at = int(np.argmin(order))
    place, number = int(places[at]), int(writers[at])
    record = golden.commands[number] if number >= 0 else None
    text = instruction_text(int(program.words[record.pc])) if record else None
    difference = Difference(memory, place, int(want[place]), int(have[place]), record, text)
    return int(order[at]), difference


def _event_difference(golden: Sequence[Event], rtl: Sequence[Event]) -> str | None:
    """Compare the events unit by unit: between units only semaphores give an order."""
    for unit in dict.fromkeys(event.unit for event in (*golden, *rtl)):
        want = [event for event in golden if event.unit == unit]
        have = [event for event in rtl if event.unit == unit]
        for number, (expected, actual) in enumerate(zip(want, have, strict=False)):
            if expected != actual:
                return f"event {number} of {unit}: golden {_show(expected)}, RTL {_show(actual)}"
        if len(want) != len(have):
            return f"{unit}: golden {len(want)} events, RTL {len(have)}"
    return None


def _show(event: Event) -> str:
    return (
        f"{EventKind(event.kind).name} code {event.code} pc {event.pc} value {event.value} "
        f"detail 0x{event.detail:x}"
    )
