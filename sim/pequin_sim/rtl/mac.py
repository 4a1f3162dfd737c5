"""The MAC array in RTL simulation as a function of matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK, TileParams
from pequin.errors import InputError
from pequin.export import Design
from pequin.harness.stream_bench import StreamBench
from pequin.mac.array import MacArray
from pequin.mac.types import (
    Cause,
    Sink,
    WeightFormat,
    activation_write,
    mac_command,
    mac_status,
    result_group,
    selected_entry,
    weight_beats,
)
from pequin_sim.layout import pack_weights
from pequin_sim.mx import MxTensor
from pequin_sim.rtl.bench import BenchJob, BenchRun, Pauses
from pequin_sim.rtl.designs import cached_design
from pequin_sim.rtl.payloads import Words, pack, unpack, word_bytes
from pequin_sim.runner import Waves

WEIGHT_TRANSFERS = 1 << 16
"""Transfers of one or two beats that one simulation run can play."""

RESULT_GROUPS = 1 << 16
"""Groups of results that one simulation run can record."""

COMMANDS = 1 << 8
"""Commands of one simulation run."""


@dataclass(frozen=True)
class Multiply:
    """One command: a matrix times some buffered vectors.

    Parameters
    ----------
    weights
        Matrix, one or two planes.
    acts
        Activations (MXINT8), one row per vector.
    paired
        Use two columns per vector and up to two beats per clock.
    scaled
        Send the weights' scales; otherwise all must be 1.0.
    base
        Activation-buffer address of the vectors (blocks).
    top_k
        Select the largest results instead of streaming them out.
    first_row
        Index of row 0.
    select_first, select_last
        With `top_k`: clear the registers before, emit them after.
    load
        Write the activations first; False when an earlier command did.
    """

    weights: MxTensor
    acts: MxTensor
    paired: bool = False
    scaled: bool = True
    base: int = 0
    top_k: bool = False
    first_row: int = 0
    select_first: bool = True
    select_last: bool = True
    load: bool = True

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return int(self.weights.elements.shape[1])

    @property
    def vectors(self) -> int:
        """Vectors."""
        return int(self.acts.elements.shape[1])

    @property
    def k(self) -> int:
        """Elements of a row."""
        return int(self.weights.elements.shape[2])


@dataclass(frozen=True, eq=False)
class MultiplyResult:
    """Results of one command.

    Parameters
    ----------
    values_u32, flags
        uint32 and uint8 [rows, vectors] in the bits of `pequin_sim.golden.mac.MacResult`; None
        for a top-k command.
    selected
        For a top-k command that emits: per vector, (index, fp32 bits) from the best on.
    status
        `errors` (flag bits), `error_row`, `error_vector`, `zeros`.
    """

    values_u32: npt.NDArray[np.uint32] | None
    flags: npt.NDArray[np.uint8] | None
    selected: list[list[tuple[int, int]]] | None
    status: dict[str, int]


@dataclass(frozen=True, eq=False)
class MacRun:
    """Results of all commands of a simulation run, and its counters.

    Parameters
    ----------
    results
        One per command.
    clocks
        Clocks from the first command or beat to the last result.
    causes
        Clocks by cause over the same simulation (idle clocks around the run included).
    payload_beats
        Payload beats that the array took.
    bench
        The bench's run.
    """

    results: list[MultiplyResult]
    clocks: int
    causes: dict[str, int]
    payload_beats: int
    bench: BenchRun


def mac_bench(params: TileParams, *, cache_dir: Path | None = None) -> Design:
    """Return the MAC array between players and recorders, as Verilog."""
    depths = {
        "command": COMMANDS,
        "weights": WEIGHT_TRANSFERS,
        "activations": params.config.columns * params.config.act_blocks,
        "results": RESULT_GROUPS,
        "selected": params.config.columns * params.config.top_k * COMMANDS,
        "status": COMMANDS,
    }

    def build() -> StreamBench:
        return StreamBench(MacArray(params), depths=depths, preload=("activations",))

    return cached_design("mac_bench", params, build, variant=repr(depths), cache_dir=cache_dir)


def check_fit(params: TileParams, command: Multiply) -> None:
    """Raise `InputError` when the array cannot take a command; the message has the numbers."""
    c = params.config
    limit = c.columns // 2 if command.paired else c.columns
    blocks = command.k // BLOCK
    stored = -(-blocks // 2) if command.paired else blocks
    kind = "paired " if command.paired else ""
    if command.k > c.max_k:
        raise InputError(f"K = {command.k} exceeds the preset's max_k = {c.max_k}")
    if command.k != command.acts.elements.shape[2]:
        raise InputError(
            f"weights have K = {command.k}, activations K = {command.acts.elements.shape[2]}"
        )
    if not 1 <= command.vectors <= limit:
        raise InputError(f"{kind}vectors must be 1 to {limit}, not {command.vectors}")
    if command.base + stored > c.act_blocks:
        raise InputError(
            f"vectors of {blocks} blocks at address {command.base} exceed the activation "
            f"buffer's {c.act_blocks} blocks"
        )
    if command.first_row + command.rows > 1 << c.index_bits:
        raise InputError(
            f"row {command.first_row + command.rows - 1} needs more than the preset's "
            f"index_bits = {c.index_bits}"
        )


def run_mac(
    params: TileParams,
    commands: Sequence[Multiply],
    *,
    pauses: Mapping[str, Pauses] | None = None,
    split: npt.NDArray[np.bool_] | None = None,
    waves: Waves | None = None,
    design: Design | None = None,
    **options: Any,
) -> MacRun:
    """Run commands through the MAC array in RTL simulation.

    Parameters
    ----------
    params
        The tile's parameters.
    commands
        In order; their beats follow each other.
    pauses
        By stream: `command`, `weights`, `activations`, `results`, `selected`, `status`.
    split
        Pattern of transfers, cycled: True brings one beat, False two, also of two commands.
        None brings single beats to unpaired commands and pairs to paired ones.
    waves
        Waveform request.
    design
        The bench, when it was made before.
    options
        For `pequin_sim.runner.simulate`.

    Raises
    ------
    InputError
        A command does not fit the array, or the run exceeds the bench's images.
    """
    for command in commands:
        check_fit(params, command)
    inputs = {
        "command": _commands(params, commands),
        "weights": _transfers(commands, split),
        "activations": _activations(params, commands),
    }
    outputs = _expected(params, commands)
    _check_images(params, inputs, outputs)
    beats = int(sum(inputs["weights"].shape))
    job = BenchJob(
        inputs=inputs,
        outputs=outputs,
        pauses=pauses or {},
        monitors=("counters", "payload_beats"),
        timeout_clocks=20_000 + 1000 * beats + 1000 * outputs["results"][0],
    )
    bench = job.run(design or mac_bench(params), waves=waves, **options)
    results = _results(params, commands, bench.recorded)
    causes = _counters(bench.after["counters"])
    return MacRun(results, bench.clocks, causes, bench.after["payload_beats"], bench)


def _counters(packed: int) -> dict[str, int]:
    mask = (1 << 48) - 1
    return {cause.name.lower(): packed >> 48 * i & mask for i, cause in enumerate(Cause)}


def _check_images(
    params: TileParams, inputs: Mapping[str, Words], outputs: Mapping[str, tuple[int, int]]
) -> None:
    limits = {
        "command": (len(inputs["command"]), COMMANDS),
        "weights": (len(inputs["weights"]), WEIGHT_TRANSFERS),
        "results": (outputs["results"][0], RESULT_GROUPS),
    }
    for name, (count, limit) in limits.items():
        if count > limit:
            raise InputError(f"a run plays or records at most {limit} {name}, not {count}")


def _commands(params: TileParams, commands: Sequence[Multiply]) -> Words:
    rows = [
        {
            "format": _code(WeightFormat[c.weights.fmt.name]),
            "two_planes": c.weights.elements.shape[0] - 1,
            "scaled": c.scaled,
            "paired": c.paired,
            "last_block": c.k // BLOCK - 1,
            "last_row": c.rows - 1,
            "first_row": c.first_row,
            "last_vector": c.vectors - 1,
            "base": c.base,
            "sink": _code(Sink.TOP_K if c.top_k else Sink.STREAM),
            "select_first": c.select_first,
            "select_last": c.select_last,
        }
        for c in commands
    ]
    layout = mac_command(params)
    return pack(layout, {n: np.array([r[n] for r in rows]) for n in rows[0]}, len(rows))


def _code(member: Any) -> int:
    return int(member.value)


def _transfers(commands: Sequence[Multiply], split: npt.NDArray[np.bool_] | None) -> Words:
    """Group the beats into transfers of one or two; with `split` they cross commands."""
    streams = [pack_weights(c.weights, scaled=c.scaled) for c in commands]
    if split is not None:
        return _grouped(np.concatenate(streams), split)
    return np.concatenate(
        [_grouped(s, np.array([not c.paired])) for s, c in zip(streams, commands, strict=True)]
    )


def _grouped(beats: npt.NDArray[np.uint8], single: npt.NDArray[np.bool_]) -> Words:
    starts: list[tuple[int, bool]] = []
    at = 0
    while at < len(beats):
        alone = bool(single[len(starts) % len(single)]) or at + 1 == len(beats)
        starts.append((at, alone))
        at += 1 if alone else 2
    first = np.array([s for s, _ in starts])
    alone_mask = np.array([a for _, a in starts])
    second = np.where(alone_mask, first, first + 1)
    both = np.concatenate([beats[first], beats[second]], axis=1)
    return pack(weight_beats(), {"beats": both, "two": ~alone_mask}, len(first))


def _activations(params: TileParams, commands: Sequence[Multiply]) -> Words:
    layout = activation_write(params)
    words = []
    for command in commands:
        if not command.load:
            continue
        elements = command.acts.elements[0]
        scales = command.acts.scales[0]
        vectors, k = elements.shape
        vector, block = (i.ravel() for i in np.indices((vectors, k // BLOCK)))
        column = 2 * vector + block % 2 if command.paired else vector
        address = command.base + (block // 2 if command.paired else block)
        words.append(
            pack(
                layout,
                {
                    "column": column,
                    "address": address,
                    "elements": elements.reshape(-1, BLOCK).view(np.uint8),
                    "scale": scales.ravel(),
                },
                len(vector),
            )
        )
    return np.concatenate(words)


def _groups(params: TileParams, command: Multiply) -> int:
    return -(-command.vectors // params.config.drain_lanes)


def _expected(params: TileParams, commands: Sequence[Multiply]) -> dict[str, tuple[int, int]]:
    streamed = sum(c.rows * _groups(params, c) for c in commands if not c.top_k)
    selected = sum(c.vectors * params.config.top_k for c in commands if c.top_k and c.select_last)
    return {
        "results": (streamed, word_bytes(result_group(params))),
        "selected": (selected, word_bytes(selected_entry(params))),
        "status": (len(commands), word_bytes(mac_status(params))),
    }


def _results(
    params: TileParams, commands: Sequence[Multiply], recorded: Mapping[str, Words]
) -> list[MultiplyResult]:
    groups = unpack(result_group(params), recorded["results"])
    entries = unpack(selected_entry(params), recorded["selected"])
    statuses = unpack(mac_status(params), recorded["status"])
    results = []
    group_at = entry_at = 0
    for i, command in enumerate(commands):
        status = {name: int(statuses[name][i]) for name in ("error_row", "error_vector", "zeros")}
        status["errors"] = int(_flag_bits(statuses, "errors")[i])
        outcome = MultiplyResult(None, None, None, status)
        if not command.top_k:
            count = command.rows * _groups(params, command)
            part = {name: values[group_at : group_at + count] for name, values in groups.items()}
            group_at += count
            outcome = dataclasses.replace(outcome, **_matrix(params, command, part))
        elif command.select_last:
            count = command.vectors * params.config.top_k
            part = {name: values[entry_at : entry_at + count] for name, values in entries.items()}
            entry_at += count
            outcome = dataclasses.replace(outcome, selected=_selected(command, part))
        results.append(outcome)
    return results


def _flag_bits(leaves: Mapping[str, npt.NDArray[np.int64]], prefix: str) -> Any:
    names = ("nan", "term_clamped", "result_clamped")
    return sum(leaves[f"{prefix}.{name}"] << bit for bit, name in enumerate(names))


def _matrix(
    params: TileParams, command: Multiply, leaves: Mapping[str, npt.NDArray[np.int64]]
) -> dict[str, Any]:
    """Place each lane by the row and vector it names; every result must come exactly once."""
    values = np.zeros((command.rows, command.vectors), np.uint32)
    flags = np.zeros((command.rows, command.vectors), np.uint8)
    seen = np.zeros((command.rows, command.vectors), np.int64)
    row = leaves["row"] - command.first_row
    for d in range(params.config.drain_lanes):
        on = (leaves["mask"] >> d & 1).astype(bool)
        where = (row[on], leaves["vector"][on] + d)
        values[where] = leaves[f"lanes.{d}.value"][on]
        flags[where] = _flag_bits(leaves, f"lanes.{d}.flags")[on]
        np.add.at(seen, where, 1)
    if (seen != 1).any():
        place = tuple(int(i) for i in np.argwhere(seen != 1)[0])
        raise AssertionError(f"result {place} came {seen[place]} times")
    if not (leaves["last"] == (np.arange(len(row)) == len(row) - 1)).all():
        raise AssertionError("`last` does not mark the command's last group")
    return {"values_u32": values, "flags": flags}


def _selected(
    command: Multiply, leaves: Mapping[str, npt.NDArray[np.int64]]
) -> list[list[tuple[int, int]]]:
    chosen: list[list[tuple[int, int]]] = [[] for _ in range(command.vectors)]
    for vector, rank, valid, index, value in zip(
        *(leaves[n].tolist() for n in ("vector", "rank", "valid", "index", "value")), strict=True
    ):
        if valid:
            assert len(chosen[vector]) == rank
            chosen[vector].append((index, value))
    return chosen
