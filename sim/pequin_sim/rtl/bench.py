"""Images in, simulation, images out: a component between stream players and recorders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pequin.export import Design
from pequin_sim.images import read_image, write_image
from pequin_sim.rtl.payloads import Words
from pequin_sim.runner import SimResult, Waves, simulate


@dataclass(frozen=True)
class Pauses:
    """Random pauses of one stream, as `pequin.harness.PauseControl` takes them.

    Parameters
    ----------
    rate
        Probability of a pause after an item, in 1/256; also the share of clocks paused.
    burst_rate
        Probability of a long pause, in 1/65536.
    burst_clocks
        Length of a long pause (clocks).
    seed
        Start of the generator.
    """

    rate: int = 0
    burst_rate: int = 0
    burst_clocks: int = 0
    seed: int = 1

    def packed(self) -> int:
        """Return the value of a `PauseControl` port."""
        return self.rate | self.burst_rate << 8 | self.burst_clocks << 24 | self.seed << 40


@dataclass(frozen=True)
class BenchRun:
    """What a run of a `StreamBench` brought.

    Parameters
    ----------
    clocks
        Clocks from the first item that was not preloaded to the last one recorded.
    recorded
        Payloads of each output stream, uint8 [items, bytes].
    before, after
        Monitored ports, before the start and at the end.
    simulation
        Times and log of the simulation.
    """

    clocks: int
    recorded: dict[str, Words]
    before: dict[str, int]
    after: dict[str, int]
    simulation: SimResult


@dataclass
class BenchJob:
    """One run of a `StreamBench`.

    Parameters
    ----------
    inputs
        Payloads of each input stream, uint8 [items, bytes].
    outputs
        For each output stream: items to expect and bytes of a word.
    pauses
        Per stream; none by default.
    monitors
        Output ports to report.
    timeout_clocks
        Clocks after which the run counts as hung.
    images
        More memories to load, by the name of their RAM: uint8 [words, bytes].
    test_module
        The testbench; it must report what `pequin_tb.stream_bench` reports.
    extra
        More keys of the testbench's job.
    """

    inputs: Mapping[str, Words]
    outputs: Mapping[str, tuple[int, int]]
    timeout_clocks: int
    pauses: Mapping[str, Pauses] = field(default_factory=dict)
    monitors: tuple[str, ...] = ()
    images: Mapping[str, Words] = field(default_factory=dict)
    test_module: str = "pequin_tb.stream_bench"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def run(self, design: Design, *, waves: Waves | None = None, **options: Any) -> BenchRun:
        """Simulate; `options` go to `pequin_sim.runner.simulate`."""
        folder = Path(tempfile.mkdtemp(prefix="pequin-bench-"))
        try:
            return self._run(design, folder, waves, options)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(
        self, design: Design, folder: Path, waves: Waves | None, options: dict[str, Any]
    ) -> BenchRun:
        plusargs = []
        counts = {name: count for name, (count, _) in self.outputs.items()}
        for name, words in self.inputs.items():
            counts[name] = len(words)
            if len(words):
                write_image(folder / f"{name}.in", words)
                plusargs.append(f"+{name}.load={folder / name}.in")
        plusargs += [f"+{name}.dump={folder / name}.out" for name in self.outputs]
        for name, words in self.images.items():
            write_image(folder / f"{name}.image", words)
            plusargs.append(f"+{name}.load={folder / name}.image")
        job = {
            **self.extra,
            "counts": counts,
            "pauses": {name: pauses.packed() for name, pauses in self.pauses.items()},
            "timeout_clocks": self.timeout_clocks,
            "monitors": list(self.monitors),
            "outputs": list(self.outputs),
        }
        simulation = simulate(
            design,
            test_module=self.test_module,
            job=job,
            plusargs=plusargs,
            waves=waves,
            **options,
        )
        result = simulation.result
        assert result is not None, "the testbench reported nothing"
        recorded = {
            name: read_image(folder / f"{name}.out", size)[: min(count, result["taken"][name])]
            for name, (count, size) in self.outputs.items()
        }
        return BenchRun(result["clocks"], recorded, result["before"], result["after"], simulation)
