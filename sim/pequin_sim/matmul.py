"""A user's matrices on the MAC array: quantized, cut into runs, simulated and checked."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin.export import Design
from pequin_sim.compare import first_difference
from pequin_sim.golden.mac import MacFlag, MacResult, mac_array
from pequin_sim.layout import BeatCount, beat_count
from pequin_sim.matrices import Matrix
from pequin_sim.mx import Format, MxTensor, quantize, quantize_activations
from pequin_sim.rtl.mac import RESULT_GROUPS, WEIGHT_TRANSFERS, MacRun, Multiply, run_mac
from pequin_sim.runner import Waves

STALLS = ("scale", "weights", "output")
"""Causes of a clock in which a command is at work but no payload beat is taken."""


@dataclass(frozen=True)
class Part:
    """What one simulation run computes: some rows for some vectors."""

    rows: slice
    vectors: slice


@dataclass(frozen=True)
class Plan:
    """How a product is cut into simulation runs.

    Parameters
    ----------
    parts
        One per run: for each slice of rows, each batch of vectors.
    paired
        Each vector takes two columns and the array up to two beats per clock.
    beats
        Beats of all runs in closed form. Every batch streams its weights anew.
    """

    parts: tuple[Part, ...]
    paired: bool
    beats: BeatCount

    @property
    def rate(self) -> int:
        """Payload beats that the array can take per clock."""
        return 2 if self.paired else 1


def plan(
    config: TileConfig,
    shape: tuple[int, int, int],
    fmt: Format,
    planes: int = 1,
    paired: bool | None = None,
) -> Plan:
    """Cut a product into runs that fit the array and the bench's images.

    Parameters
    ----------
    config
        The tile.
    shape
        N, K and C.
    fmt, planes
        Storage of the weights.
    paired
        None pairs columns when all vectors fit half of them.

    Raises
    ------
    InputError
        The format does not have that many planes.
    """
    rows, k, vectors = shape
    if paired is None:
        paired = vectors <= config.columns // 2
    batch = config.columns // 2 if paired else config.columns
    step = _rows_per_run(config, k, min(batch, vectors), fmt, planes, paired)
    parts, payload, scale = [], 0, 0
    for row in range(0, rows, step):
        part = slice(row, min(row + step, rows))
        beats = beat_count(part.stop - part.start, k, fmt, planes)
        for vector in range(0, vectors, batch):
            parts.append(Part(part, slice(vector, min(vector + batch, vectors))))
            payload += beats.payload
            scale += beats.scale
    return Plan(tuple(parts), paired, BeatCount(payload, scale))


def _rows_per_run(
    config: TileConfig, k: int, vectors: int, fmt: Format, planes: int, paired: bool
) -> int:
    """Return the most rows, an even number, whose stream and results one run can hold."""
    groups = -(-vectors // config.drain_lanes)

    def fits(rows: int) -> bool:
        beats = beat_count(rows, k, fmt, planes).total
        transfers = -(-beats // 2) if paired else beats
        return transfers <= WEIGHT_TRANSFERS and rows * groups <= RESULT_GROUPS

    low, high = 1, max(1, (1 << config.index_bits) // 2)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(2 * middle) else (low, middle - 1)
    return 2 * low


@dataclass(frozen=True, eq=False)
class Counted:
    """What the simulated array's counters said, over all runs.

    Parameters
    ----------
    clocks
        Clocks from a run's first command or beat to its last result, summed over the runs.
    busy
        Clocks in which payload beats were taken.
    stalls
        Clocks of each of `STALLS`.
    payload_beats
        Payload beats taken.
    build_seconds, simulation_seconds
        Time for compiling and for simulating (s).
    """

    clocks: int = 0
    busy: int = 0
    stalls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STALLS, 0))
    payload_beats: int = 0
    build_seconds: float = 0.0
    simulation_seconds: float = 0.0

    @property
    def stall_clocks(self) -> int:
        """Clocks with a command at work in which no payload beat was taken."""
        return sum(self.stalls.values())

    @property
    def idle(self) -> int:
        """Clocks at the start and at the end of runs: the pipeline fills and empties."""
        return self.clocks - self.busy - self.stall_clocks

    def plus(self, run: MacRun) -> Counted:
        """Return the sums with a further run."""
        return Counted(
            self.clocks + run.clocks,
            self.busy + run.causes["busy"],
            {cause: self.stalls[cause] + run.causes[cause] for cause in STALLS},
            self.payload_beats + run.payload_beats,
            self.build_seconds + run.bench.simulation.build_seconds,
            self.simulation_seconds + run.bench.simulation.run_seconds,
        )


@dataclass(frozen=True)
class Error:
    """Distance of results from the float64 product of the unquantized matrices.

    Parameters
    ----------
    max_abs, rms
        Largest and root-mean-square difference.
    relative
        `rms` over the root mean square of the float64 product; None when that is zero.
    """

    max_abs: float
    rms: float
    relative: float | None


@dataclass(frozen=True, eq=False)
class Product:
    """A product and all that is known about it.

    Parameters
    ----------
    values
        Y = W X^T, float32 [N, C].
    plan
        How it was cut.
    counted
        Counters of the simulation; None for the golden backend.
    difference
        First difference between simulation and golden model, in words; None when there is none.
    flags
        Results with each `MacFlag`, by its name in lower case.
    zeros
        Block sums that were not zero but rounded to zero.
    error
        Distance from float64.
    """

    values: Matrix
    plan: Plan
    counted: Counted | None
    difference: str | None
    flags: dict[str, int]
    zeros: int
    error: Error

    @property
    def golden_match(self) -> bool | None:
        """Whether the simulation equals the golden model; None without a simulation."""
        return None if self.counted is None else self.difference is None

    @property
    def beat_share(self) -> float | None:
        """Payload beats taken over those that the array could take in the same clocks."""
        if self.counted is None:
            return None
        return self.counted.payload_beats / (self.plan.rate * self.counted.clocks)


Progress = Callable[[int, int], None]


def multiply(
    params: TileParams,
    weights: Matrix,
    acts: Matrix,
    *,
    fmt: Format | str = Format.MXFP4,
    planes: int = 1,
    scale_rule: str = "floor",
    paired: bool | None = None,
    design: Design | None = None,
    waves: Waves | None = None,
    progress: Progress = lambda done, total: None,
    **options: Any,
) -> Product:
    """Quantize two matrices and multiply them, in simulation and by the golden model.

    Parameters
    ----------
    params
        The tile.
    weights, acts
        W [N, K] and X [C, K], finite.
    fmt, planes, scale_rule
        How W is quantized; X becomes MXINT8.
    paired
        As for `plan`.
    design
        The bench (`pequin_sim.rtl.mac.mac_bench`); None computes with the golden model only.
    waves
        Waveform request for the first run.
    progress
        Called with the runs that are done and all runs.
    options
        For `pequin_sim.runner.simulate`.

    Raises
    ------
    InputError
        A matrix or an option breaks a rule.
    """
    fmt = Format.parse(fmt)
    w, x = quantize(weights, fmt, scale_rule, planes), quantize_activations(acts)
    cut = plan(params.config, (w.rows, w.k, x.rows), fmt, planes, paired)
    golden, simulated = _Results.empty(w.rows, x.rows), _Results.empty(w.rows, x.rows)
    counted = None if design is None else Counted()
    differences: list[str] = []
    zeros = 0
    for done, part in enumerate(cut.parts):
        progress(done, len(cut.parts))
        command = Multiply(_rows(w, part.rows), _rows(x, part.vectors), paired=cut.paired)
        expected = mac_array(command.weights, command.acts)
        golden.put(part, expected.values_u32, expected.flags)
        zeros += expected.zero_count
        if counted is not None:
            shown = None if done else waves
            run = run_mac(params, [command], design=design, waves=shown, **options)
            counted = counted.plus(run)
            result = run.results[0]
            simulated.put(part, result.values_u32, result.flags)
            differences += _status_differences(expected, result.status, part)
    progress(len(cut.parts), len(cut.parts))
    if counted is not None:
        differences = golden.differences(simulated) + differences + _beat_differences(cut, counted)
    values = (golden if counted is None else simulated).values
    return Product(
        values=values,
        plan=cut,
        counted=counted,
        difference=next(iter(differences), None),
        flags={str(flag.name).lower(): golden.count(flag) for flag in MacFlag},
        zeros=zeros,
        error=_error(values, weights, acts),
    )


@dataclass(frozen=True, eq=False)
class _Results:
    """Values and flags [N, C], filled part by part."""

    values: Matrix
    flags: npt.NDArray[np.uint8]

    @classmethod
    def empty(cls, rows: int, vectors: int) -> _Results:
        return cls(np.zeros((rows, vectors), np.float32), np.zeros((rows, vectors), np.uint8))

    def put(
        self,
        part: Part,
        bits: npt.NDArray[np.uint32] | None,
        flags: npt.NDArray[np.uint8] | None,
    ) -> None:
        assert bits is not None
        assert flags is not None
        self.values[part.rows, part.vectors] = bits.view(np.float32)
        self.flags[part.rows, part.vectors] = flags

    def differences(self, other: _Results) -> list[str]:
        """Return the first difference of the values and that of the flags, bit for bit."""
        axes = ("row", "vector")
        found = (
            first_difference(self.values, other.values, "values", axes),
            first_difference(self.flags, other.flags, "flags", axes),
        )
        return [text for text in found if text is not None]

    def count(self, flag: MacFlag) -> int:
        return int(np.count_nonzero(self.flags & flag))


def _rows(tensor: MxTensor, rows: slice) -> MxTensor:
    return MxTensor(tensor.fmt, tensor.elements[:, rows], tensor.scales[:, rows])


def _status_differences(golden: MacResult, status: dict[str, int], part: Part) -> list[str]:
    """Compare the status that ended a command: joined flags, their first place, the count."""
    expected = {
        "errors": int(np.bitwise_or.reduce(golden.flags, axis=None)),
        "zeros": min(golden.zero_count, (1 << 32) - 1),
    }
    if golden.error:
        row, vector = np.argwhere(golden.flags)[0]
        expected |= {"error_row": int(row), "error_vector": int(vector)}
    where = f"for the rows from {part.rows.start} and the vectors from {part.vectors.start}"
    return [
        f"status {name} {where}: expected {value}, actual {status[name]}"
        for name, value in expected.items()
        if status[name] != value
    ]


def _beat_differences(cut: Plan, counted: Counted) -> list[str]:
    taken = (counted.payload_beats, counted.stalls["scale"])
    if taken == tuple(cut.beats):
        return []
    return [
        f"the array took {taken[0]} payload and {taken[1]} scale beats, but the stream has "
        f"{cut.beats.payload} and {cut.beats.scale} in closed form"
    ]


def _error(values: Matrix, weights: Matrix, acts: Matrix) -> Error:
    exact = weights.astype(np.float64) @ acts.astype(np.float64).T
    difference = values - exact
    rms, size = (float(np.sqrt(np.mean(a * a))) for a in (difference, exact))
    return Error(float(np.max(np.abs(difference))), rms, rms / size if size else None)


@contextlib.contextmanager
def complete_waves(path: Path | None, window: tuple[int, int | None]) -> Iterator[Waves | None]:
    """Give a waveform request whose file appears at `path` only if the block succeeds.

    Parameters
    ----------
    path
        Where the file shall be, ending in .vcd or .fst; None requests nothing.
    window
        First clock and first clock no longer written (None: to the end).
    """
    if path is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        partial = Path(folder) / path.name
        yield Waves(path=partial, start=window[0], stop=window[1])
        if not partial.exists():
            raise InputError(
                f"{path} was not written: the first run has fewer than {window[0]} clocks"
            )
        partial.replace(path)
