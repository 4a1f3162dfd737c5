"""Run vector commands in RTL and in the golden model, and compare everything they leave."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import TileConfig, TileParams
from pequin.export import Design
from pequin.vector import VectorUnit
from pequin.vector.memory import BANKS
from pequin.vector.types import access_request
from pequin_sim.compare import require_same
from pequin_sim.golden.fp32 import F32, to_bits
from pequin_sim.golden.vector import Response, VectorCommand, VectorMachine
from pequin_sim.images import read_image, write_image
from pequin_sim.rtl.designs import cached_design
from pequin_sim.runner import simulate
from pequin_tb.vector import pack


@functools.lru_cache(maxsize=8)
def design(preset: str) -> Design:
    """Return the vector unit of a preset."""
    p = params(preset)
    return cached_design("vector_unit", p, lambda: VectorUnit(p))


def params(preset: str) -> TileParams:
    """Return a preset's parameters."""
    return TileParams(TileConfig.preset(preset))


@dataclass
class Program:
    """What to play: commands of both queues, drained rows, blocks, and waits between.

    Parameters
    ----------
    preset
        Configuration.
    memory
        float32 [vector_elements]: content of the vector memory at the start.
    steps
        (queue, command) or None, which waits until all earlier commands have ended.
    drained
        float32 [vectors] for each matrix row that the drain will deliver.
    blocks
        (32 elements, scale) of each quantized block.
    """

    preset: str
    memory: F32
    steps: list[tuple[int, VectorCommand] | None] = field(default_factory=list)
    drained: list[F32] = field(default_factory=list)
    blocks: list[tuple[bytes, int]] = field(default_factory=list)

    def add(self, command: VectorCommand, queue: int = 0) -> None:
        """Append a command."""
        self.steps.append((queue, command))

    def wait(self) -> None:
        """Append a wait for all commands so far."""
        self.steps.append(None)


@dataclass(frozen=True)
class Run:
    """What the RTL left.

    Parameters
    ----------
    memory
        float32 [vector_elements].
    responses
        Of each queue, in order.
    machine
        The golden model after the same program.
    clocks, issue_clocks, end_clocks
        Length of the run; when each command was taken and when each ended.
    causes
        Clocks by `LaneCause`.
    """

    memory: F32
    responses: tuple[list[Response], list[Response]]
    machine: VectorMachine
    clocks: int
    issue_clocks: list[int]
    end_clocks: list[int]
    causes: list[int]


def run(program: Program, *, pause: float = 0.0, seed: int = 1, timeout: int = 200_000) -> Run:
    """Play a program in RTL and in the golden model; compare all they leave.

    Raises
    ------
    AssertionError
        A word of memory, a response, a block or a KV write differs.
    """
    p = params(program.preset)
    machine, expected = _golden(program, p)
    job = _job(program, p, pause, seed, timeout)
    with tempfile.TemporaryDirectory() as name:
        plusargs = _load(Path(name), program.memory, p)
        result = simulate(
            design(program.preset),
            test_module="pequin_tb.vector.play",
            job=job,
            plusargs=plusargs,
        ).result
        memory = _dump(Path(name), p)
    responses: tuple[list[Response], list[Response]] = ([], [])
    for word in result["responses"]:
        queue, item = pack.response(int(word, 16))
        responses[queue].append(item)
    got = Run(
        memory,
        responses,
        machine,
        result["clocks"],
        result["issue_clocks"],
        result["end_clocks"],
        result["causes"],
    )
    for queue in (0, 1):
        for kind in ("result", "done"):
            # An entry precedes its own command's end, not those of earlier commands.
            _same(
                f"{kind} responses of queue {queue}",
                [r for r in expected[queue] if r.kind == kind],
                [r for r in responses[queue] if r.kind == kind],
            )
    acts = [pack.block_write(p, int(w, 16)) for w in result["activations"]]
    _same("activation writes", machine.activations, acts)
    kv = [pack.kv_item(int(w, 16)) for w in result["kv"]]
    for values in (False, True):
        # Elements of V and blocks of K of different commands may change places.
        _same(
            "writes of V" if values else "writes of K",
            [item for item in machine.kv if item.values == values],
            [item for item in kv if item.values == values],
        )
    require_same(machine.memory, memory, "vector memory", ("element",))
    return got


def play_words(preset: str, words: Sequence[int]) -> list[Response]:
    """Play raw command words into the memory queue; return the responses."""
    job = _job(Program(preset, np.zeros(0, np.float32)), params(preset), 0.0, 1, 20_000)
    job["script"] = [["command", 0, hex(word)] for word in words]
    result = simulate(design(preset), test_module="pequin_tb.vector.play", job=job).result
    return [pack.response(int(word, 16))[1] for word in result["responses"]]


def write_and_read(preset: str, address: int, words: Sequence[bytes]) -> list[bytes]:
    """Write beats of 32 bytes from outside, from an element address on, and read them back."""
    p = params(preset)
    layout = access_request(p)
    script: list[list[Any]] = []
    for write in (1, 0):
        for i, word in enumerate(words):
            fields = {"write": write, "address": address + 8 * i}
            fields["data"] = int.from_bytes(word, "little") if write else 0
            script.append(["access", hex(pack.pack(layout, fields))])
        script.append(["wait"])
    job = _job(Program(preset, np.zeros(0, np.float32)), p, 0.0, 1, 20_000)
    job["script"] = script
    result = simulate(design(preset), test_module="pequin_tb.vector.play", job=job).result
    return [int(word, 16).to_bytes(32, "little") for word in result["access_data"]]


def _same(name: str, expected: Sequence[Any], actual: Sequence[Any]) -> None:
    for i, (want, have) in enumerate(zip(expected, actual, strict=False)):
        if want != have:
            raise AssertionError(f"{name} differ at {i}: expected {want}, actual {have}")
    if len(expected) != len(actual):
        raise AssertionError(f"{name}: expected {len(expected)}, actual {len(actual)}")


def _golden(
    program: Program, p: TileParams
) -> tuple[VectorMachine, tuple[list[Response], list[Response]]]:
    machine = VectorMachine(p, memory=program.memory.copy())
    machine.drained.extend(program.drained)
    machine.blocks.extend(program.blocks)
    responses: tuple[list[Response], list[Response]] = ([], [])
    for step in program.steps:
        if step is not None:
            responses[step[0]].extend(machine.execute(step[1], step[0]))
    return machine, responses


def _job(program: Program, p: TileParams, pause: float, seed: int, timeout: int) -> dict[str, Any]:
    script = [
        ["wait"] if step is None else ["command", step[0], hex(pack.command_word(p, step[1]))]
        for step in program.steps
    ]
    groups: list[int] = []
    for row in program.drained:
        groups += pack.drain_words(p, to_bits(row)[np.newaxis])
    blocks = [
        int.from_bytes(elements, "little") | scale << 256 for elements, scale in program.blocks
    ]
    return {
        "script": script,
        "results": [hex(w) for w in groups],
        "blocks": [hex(w) for w in blocks],
        "pause": pause,
        "seed": seed,
        "timeout_clocks": timeout,
    }


def _by_ram(memory: npt.NDArray[np.uint32], p: TileParams) -> npt.NDArray[np.uint32]:
    """Reorder [elements] to [row in bank, bank, lane], a view."""
    return memory.reshape(-1, BANKS, p.config.lanes)


def _load(directory: Path, memory: F32, p: TileParams) -> list[str]:
    words = _by_ram(to_bits(memory), p)
    plusargs = []
    for bank in range(BANKS):
        for lane in range(p.config.lanes):
            path = directory / f"load.{bank}.{lane}"
            column = np.ascontiguousarray(words[:, bank, lane])
            write_image(path, column.view(np.uint8).reshape(-1, 4))
            plusargs.append(f"+vector.{bank}.{lane}.load={path}")
            plusargs.append(f"+vector.{bank}.{lane}.dump={directory}/dump.{bank}.{lane}")
    return plusargs


def _dump(directory: Path, p: TileParams) -> F32:
    memory = np.zeros(p.config.vector_elements, np.uint32)
    words = _by_ram(memory, p)
    for bank in range(BANKS):
        for lane in range(p.config.lanes):
            image = read_image(directory / f"dump.{bank}.{lane}", 4)
            words[:, bank, lane] = image.view(np.uint32).reshape(-1)
    return memory.view(np.float32)
