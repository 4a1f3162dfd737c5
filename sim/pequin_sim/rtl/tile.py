"""The tile without its host port in RTL simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import TileParams
from pequin.errors import InputError
from pequin.export import Design
from pequin.harness.stream_bench import StreamBench
from pequin.tile.core import TileCore, counter_names
from pequin.tile.registers import (
    COUNTER_BEAT,
    SEMAPHORE_BEAT,
    SETTINGS_BEAT,
    STATUS,
    STATUS_BEAT,
    register_beats,
)
from pequin.tile.types import (
    COUNT_FIELD,
    TABLE_FIELDS,
    ControlKind,
    Memory,
    StepItem,
    TileAccess,
    TileAnswer,
    TileControl,
    TileEvent,
    UnitId,
)
from pequin_sim.hbm.codes import check_bytes
from pequin_sim.machine import Column, Event, EventKind, Step
from pequin_sim.rtl.bench import BenchJob, BenchRun, Pauses
from pequin_sim.rtl.designs import cached_design
from pequin_sim.rtl.payloads import Words, pack, unpack, word_bytes
from pequin_sim.runner import Waves

Beats = npt.NDArray[np.uint8]
"""uint8 [beats, 32]"""

ACCESSES, STEP_ITEMS, EVENTS, ORDERS = 1 << 17, 1 << 14, 1 << 14, 1 << 8
"""Images of the bench: accesses, parts of steps, events, orders."""

REFRESH = {"none": 0, "all-bank": 1, "per-bank": 2}


@dataclass(frozen=True, eq=False)
class TileRun:
    """What a run of the tile left.

    Parameters
    ----------
    events
        In order.
    stamps
        Clock of each event.
    clocks
        Clocks from START to the last event waited for.
    memories
        The beats that were asked for, by memory.
    counters
        By dotted name.
    status
        Words of the status beat by name.
    semaphores
        Counts.
    answers
        Error code of every access, loads first.
    bench
        The bench's run.
    """

    events: list[Event]
    stamps: list[int]
    clocks: int
    memories: dict[Memory, Beats]
    counters: dict[str, int]
    status: dict[str, int]
    semaphores: list[int]
    answers: list[int]
    bench: BenchRun


@dataclass
class TileJob:
    """What to do with a tile.

    Parameters
    ----------
    program
        Instructions, uint64.
    steps
        STEPs of the host, in order.
    events
        Events after which a run is over; an error event ends it in any case.
    starts
        Program addresses, each started when the run before is over.
    hbm
        Content of HBM from beat 0 on.
    loads
        More content, written before the start: memory, first beat, beats.
    reads
        What to read at the end: memory to (first beat, beats).
    watchdog, refresh
        Settings of the tile.
    flips
        Error injection: name of a core's `flip_` port to (after so many clocks, bits).
    early_flips
        Bits of `flip_` ports from before the loads to the first start.
    pauses
        Of the bench's streams.
    hbm_pauses
        Of the channel's answers to the tile.
    stop_after
        Clocks after the first START at which the host sends STOP; 0 never.
    timeout_clocks
        Clocks after which the whole run counts as hung.
    """

    program: npt.NDArray[np.uint64]
    steps: Sequence[Step] = ()
    events: int = 1
    starts: Sequence[int] = (0,)
    hbm: Beats | None = None
    loads: Sequence[tuple[Memory, int, Beats]] = ()
    reads: Mapping[Memory, tuple[int, int]] = field(default_factory=dict)
    watchdog: int = 1 << 16
    refresh: str = "per-bank"
    flips: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    early_flips: Mapping[str, int] = field(default_factory=dict)
    pauses: Mapping[str, Pauses] = field(default_factory=dict)
    hbm_pauses: Pauses = field(default_factory=Pauses)
    stop_after: int = 0
    timeout_clocks: int = 5_000_000


def tile_bench(params: TileParams, *, cache_dir: Path | None = None) -> Design:
    """Return the tile core between players and recorders, as Verilog."""
    depths = {
        "accesses": ACCESSES,
        "answers": ACCESSES,
        "steps": STEP_ITEMS,
        "control": ORDERS,
        "events": EVENTS,
    }

    def build() -> StreamBench:
        core = TileCore(params, hbm_pauses=True)
        return StreamBench(core, depths=depths, controls=core.controls)

    return cached_design("tile_bench", params, build, variant=repr(depths), cache_dir=cache_dir)


def run_tile(
    params: TileParams,
    job: TileJob,
    *,
    waves: Waves | None = None,
    design: Design | None = None,
    **options: Any,
) -> TileRun:
    """Load, start, step, wait for the events, read everything back.

    Raises
    ------
    InputError
        Something does not fit the tile or the bench.
    SimulationFailed
        The events did not come in time.
    """
    loads = _loads(params, job)
    counters = counter_names()
    reads = dict(job.reads)
    reads[Memory.REGISTERS] = (0, register_beats(len(counters)))
    accesses, loaded = _accesses(loads, reads, _settings(job, hold=True))
    steps = _step_items(job.steps)
    for what, given, most in (
        ("accesses", len(accesses), ACCESSES),
        ("parts of steps", len(steps), STEP_ITEMS),
        ("events", job.events * len(job.starts), EVENTS),
        ("starts", len(job.starts) + 1, ORDERS),
    ):
        if given > most:
            raise InputError(f"the bench has room for {most} {what}, not for {given}")
    images = {}
    if job.hbm is not None:
        if len(job.hbm) * 32 > params.config.store_bytes:
            raise InputError(
                f"HBM holds {params.config.store_bytes} bytes, not {32 * len(job.hbm)}"
            )
        images = {"hbm": job.hbm, "hbm.ecc": check_bytes(job.hbm)}
    orders = [(ControlKind.START.value, pc) for pc in job.starts]
    if job.stop_after:
        orders.insert(1, (ControlKind.STOP.value, 0))
    kinds, places = zip(*orders, strict=True)
    control = pack(TileControl.as_shape(), {"kind": kinds, "pc": places}, len(orders))
    bench = BenchJob(
        inputs={"accesses": accesses, "steps": steps, "control": control},
        outputs={
            "answers": (len(accesses), word_bytes(TileAnswer.as_shape())),
            "events": (EVENTS, word_bytes(TileEvent.as_shape())),
        },
        pauses=job.pauses,
        timeout_clocks=job.timeout_clocks,
        images=images,
        test_module="pequin_tb.tile.play",
        extra={
            "loaded": loaded,
            "events": job.events,
            "starts": len(job.starts),
            "flips": {name: list(value) for name, value in job.flips.items()},
            "early_flips": dict(job.early_flips),
            "stop_after": job.stop_after,
            "hbm_pauses": job.hbm_pauses.packed(),
        },
    )
    run = bench.run(design or tile_bench(params), waves=waves, **options)
    return _collect(run, reads, loaded, counters)


def _loads(params: TileParams, job: TileJob) -> list[tuple[Memory, int, Beats]]:
    program = np.asarray(job.program, np.uint64)
    if len(program) > params.config.program_words:
        raise InputError(
            f"the program memory holds {params.config.program_words} instructions, not "
            f"{len(program)}"
        )
    padded = np.zeros(-(-len(program) // 4) * 4, "<u8")
    padded[: len(program)] = program
    return [
        (Memory.REGISTERS, SETTINGS_BEAT, _settings(job, hold=False)),
        (Memory.PROGRAM, 0, padded.view(np.uint8).reshape(-1, 32)),
        *job.loads,
    ]


def _settings(job: TileJob, *, hold: bool) -> Beats:
    settings = np.zeros((1, 32), np.uint8)
    words = np.array([job.watchdog, REFRESH[job.refresh], hold], "<u4")
    settings[0, :12] = words.view(np.uint8)
    return settings


def _accesses(
    loads: Sequence[tuple[Memory, int, Beats]],
    reads: Mapping[Memory, tuple[int, int]],
    hold: Beats,
) -> tuple[Words, int]:
    """Return loads, then what holds the counters, then reads; and the number of loads."""
    layout = TileAccess.as_shape()
    parts = [
        pack(
            layout,
            {
                "memory": memory.value,
                "write": 1,
                "address": base + np.arange(len(beats)),
                "data": beats,
            },
            len(beats),
        )
        for memory, base, beats in (*loads, (Memory.REGISTERS, SETTINGS_BEAT, hold))
    ]
    loaded = sum(len(part) for part in parts[:-1])
    parts += [
        pack(layout, {"memory": memory.value, "address": base + np.arange(count)}, count)
        for memory, (base, count) in reads.items()
    ]
    return np.concatenate(parts), loaded


def _step_items(steps: Sequence[Step]) -> Words:
    rows = []
    for step in steps:
        for number, column in enumerate(step.columns):
            rows += [(0, number, f, value) for f, value in enumerate(column)]
        rows.append((1, 0, COUNT_FIELD, len(step.columns)))
    table = np.array(rows, np.int64).reshape(-1, 4)
    names = ("commit", "column", "field", "value")
    assert len(Column._fields) == TABLE_FIELDS
    fields = {name: table[:, i] for i, name in enumerate(names)}
    return pack(StepItem.as_shape(), fields, len(table))


def _collect(
    run: BenchRun,
    reads: Mapping[Memory, tuple[int, int]],
    loaded: int,
    counters: Sequence[str],
) -> TileRun:
    result = run.simulation.result
    words = run.recorded["answers"]
    data, errors = words[:, 1:33], words[:, 0].tolist()
    assert word_bytes(TileAnswer.as_shape()) == 33
    at = loaded + 1
    memories = {}
    for memory, (_, count) in reads.items():
        memories[memory] = data[at : at + count]
        at += count
    registers = memories[Memory.REGISTERS]
    status = np.ascontiguousarray(registers[STATUS_BEAT]).view("<u4")
    counts = np.ascontiguousarray(registers[COUNTER_BEAT:]).view("<u8").ravel()
    events, stamps = _events(run.recorded["events"])
    return TileRun(
        events=events,
        stamps=stamps,
        clocks=result["clocks"],
        memories=memories,
        counters={name: int(counts[i]) for i, name in enumerate(counters)},
        status={name: int(status[i]) for i, name in enumerate(STATUS)},
        semaphores=registers[SEMAPHORE_BEAT].tolist(),
        answers=errors,
        bench=run,
    )


def _events(words: Words) -> tuple[list[Event], list[int]]:
    leaves = unpack(TileEvent.as_shape(), words)
    names = ("kind", "unit", "code", "pc", "value", "detail")
    events = [
        Event(EventKind(kind), UnitId(unit).name.lower(), *(int(v) for v in rest))
        for kind, unit, *rest in zip(*(leaves[n].tolist() for n in names), strict=True)
    ]
    return events, leaves["stamp"].tolist()
