"""Speed of the whole tile's simulation while a host decodes on it through packets.

Three engines take turns on the same Verilog, compiled with the same flags: bare C++, cocotb with
the same packets in a file, and cocotb with a host in Python that makes each packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import TileParams
from pequin.errors import ConfigError
from pequin.export import Design
from pequin.tile.types import UnitId
from pequin_sim.bench.link import build_bare_link, run_bare_link
from pequin_sim.bench.speed import REPEATS, Engine, ratios
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.hbm.codes import check_bytes
from pequin_sim.machine import Column, EventKind, Machine, Step
from pequin_sim.machine import Event as MachineEvent
from pequin_sim.model import ModelShape, random_model
from pequin_sim.protocol import Event, LinkScript, Recorded, decode
from pequin_sim.rtl.link import run_link
from pequin_sim.rtl.payloads import Words
from pequin_sim.rtl.tile_link import decode_script, program_beats, tile_link_bench
from pequin_sim.runner.progress import spinner

TARGET = 0.85
"""Share of bare C++'s speed that cocotb is to reach."""

HOST_SCRIPT = "pequin_tb.tile.decode"
"""The testbench in which Python is the host."""

TIMEOUT_CLOCKS = 50_000_000

TITLES = {
    "bare": "bare Verilator C++, packets from a file",
    "played": "cocotb, the same packets from the file",
    "host": "cocotb, a host in Python makes the packets",
}
"""Engines, in the order of the report."""


@dataclass(frozen=True)
class TileCase:
    """What is decoded.

    Parameters
    ----------
    shape
        The model; its weights are random.
    positions
        Tokens.
    """

    shape: ModelShape
    positions: int


CASES = {
    "hidden-512": TileCase(
        ModelShape(layers=2, hidden=512, heads=8, kv_heads=2, head_dim=64, mlp=1536, vocab=1000), 2
    ),
    "hidden-72": TileCase(
        ModelShape(layers=2, hidden=72, heads=4, kv_heads=2, head_dim=20, mlp=100, vocab=50), 3
    ),
}
"""The second fits the smallest preset; its runs are too short to say much about speed."""

Happened = list[tuple[int, ...]]
"""Events as kind, unit, code, pc, value, detail; in order unit by unit."""


@dataclass(frozen=True, eq=False)
class Conversation:
    """A greedy decode, as the golden machine has it.

    Parameters
    ----------
    program
        Instructions.
    first
        The first token.
    positions
        Tokens decoded.
    script
        The host's packets.
    images
        Memories of the tile: HBM with its ECC.
    events
        What the host is told.
    """

    program: npt.NDArray[np.uint64]
    first: int
    positions: int
    script: LinkScript
    images: dict[str, Words]
    events: Happened


@dataclass(frozen=True)
class TileSpeed:
    """How fast it went.

    Parameters
    ----------
    engines
        In the order of `TITLES`.
    match
        Whether every run told the events of the golden machine, and every packet that the tile
        sent to the played file had the same bytes and clocks as in bare C++.
    """

    engines: list[Engine]
    match: bool

    @property
    def passed(self) -> bool:
        """Whether everything was equal and both cocotb engines reach `TARGET`."""
        shares = ratios(self.engines)
        return self.match and len(shares) == 2 and min(shares.values()) >= TARGET

    def describe(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "engines": [engine.describe() for engine in self.engines],
            "ratios": ratios(self.engines),
            "target": TARGET,
            "match": self.match,
            "pass": self.passed,
        }


def converse(case: TileCase, params: TileParams, *, first: int = 1) -> Conversation:
    """Decode on the golden machine and write down what the host says.

    Raises
    ------
    InputError
        The model does not fit the tile.
    """
    compiled = compile_decoder(case.shape, params, Options(max_positions=case.positions))
    image = compiled.image(random_model(case.shape, seed=1))
    machine = Machine(params, image, compiled.program)
    machine.run()
    token, steps, told = first, [], []
    for position in range(case.positions):
        steps.append(Step([Column(token=token, position=position, flags=1)]))
        told.append(machine.step(steps[-1]).events)
        token = next(e.value for e in told[-1] if e.kind is EventKind.TOKEN and e.rank == 0)
    return Conversation(
        program=compiled.program.words,
        first=first,
        positions=case.positions,
        script=decode_script(compiled.program.words, steps, [len(events) for events in told]),
        images={"hbm": image, "hbm.ecc": check_bytes(image)},
        events=_by_unit([_golden(event) for events in told for event in events]),
    )


class TileSpeedBench:
    """Measure one conversation.

    Parameters
    ----------
    params
        The tile.
    conversation
        What is said.
    repeats
        Turns that count; one more, before them, only warms up.
    quiet
        Show no progress.

    Raises
    ------
    ConfigError
        There is no turn that counts.
    """

    def __init__(
        self,
        params: TileParams,
        conversation: Conversation,
        *,
        repeats: int = REPEATS,
        quiet: bool = False,
    ) -> None:
        if repeats < 1:
            raise ConfigError(f"repeats must be at least 1, not {repeats}")
        self._params, self._talk = params, conversation
        self._repeats, self._quiet = repeats, quiet

    def run(self) -> TileSpeed:
        """Build what is missing, and let the engines take turns."""
        design = tile_link_bench(self._params)
        build_bare_link(design, quiet=self._quiet)
        engines = {name: Engine(name, title) for name, title in TITLES.items()}
        match = True
        for turn in range(self._repeats + 1):
            what = f"turn {turn}/{self._repeats}" if turn else "warming up"
            with spinner(f"measuring the tile, {what}", quiet=self._quiet):
                runs = self._take_turn(design, backwards=bool(turn % 2))
            match = match and self._agree(runs)
            for name, run in runs.items() if turn else ():
                engines[name].add(run.clocks, run.clocks / run.seconds)
        return TileSpeed(list(engines.values()), match)

    def _take_turn(self, design: Design, *, backwards: bool) -> dict[str, _Run]:
        """Run every engine once; each other turn in the other order, so that none gains by it."""
        plays = {"bare": self._bare, "played": self._played, "host": self._host}
        names = list(TITLES)
        return {name: plays[name](design) for name in (names[::-1] if backwards else names)}

    def _agree(self, runs: dict[str, _Run]) -> bool:
        bare, played = runs["bare"], runs["played"]
        same = bare.records == played.records and bare.clocks == played.clocks
        return same and all(run.events == self._talk.events for run in runs.values())

    def _bare(self, design: Design) -> _Run:
        talk = self._talk
        run = run_bare_link(design, talk.script, images=talk.images, timeout_clocks=TIMEOUT_CLOCKS)
        return _Run(run.clocks, run.seconds, _packets(run.records), run.records)

    def _played(self, design: Design) -> _Run:
        return self._cocotb(design, script=self._talk.script)

    def _host(self, design: Design) -> _Run:
        job = {
            "program": program_beats(self._talk.program).tobytes().hex(),
            "token": self._talk.first,
            "positions": self._talk.positions,
            "reads": {},
            "hbm_pauses": 0,
        }
        return self._cocotb(design, test_module=HOST_SCRIPT, job=job)

    def _cocotb(self, design: Design, **options: Any) -> _Run:
        run = run_link(design, images=self._talk.images, timeout_clocks=TIMEOUT_CLOCKS, **options)
        result = run.simulation.result
        return _Run(int(result["clocks"]), result["seconds"], _packets(run.records), run.records)


@dataclass(frozen=True)
class _Run:
    clocks: int
    seconds: float
    events: Happened
    records: list[Recorded]


def _packets(records: Sequence[Recorded]) -> Happened:
    packets = [decode(record.frame) for record in records]
    return _by_unit(
        [
            (int(e.kind), e.unit, e.code, e.pc, e.value, e.detail)
            for e in packets
            if isinstance(e, Event)
        ]
    )


def _golden(event: MachineEvent) -> tuple[int, ...]:
    unit = UnitId[event.unit.upper()].value
    return (int(event.kind), unit, event.code, event.pc, event.value, event.detail)


def _by_unit(events: Happened) -> Happened:
    """Sort by unit and keep the order within each: between units only semaphores give one."""
    return sorted(events, key=lambda event: event[1])
