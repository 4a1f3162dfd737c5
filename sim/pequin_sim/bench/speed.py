"""Simulation speed of one design on several engines, in one run on one machine.

Absolute numbers say more about the machine than about us; the ratios are what counts. Every
engine toggles the same clock of the same design; the two that a ratio is formed of take turns,
so that a busy machine slows both.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from pequin.config import TileParams
from pequin.errors import ConfigError, ToolError
from pequin.export import Design
from pequin.tops import build_top, module_name
from pequin_sim import toolchain
from pequin_sim.rtl.designs import cached_design
from pequin_sim.runner import build as build_module
from pequin_sim.runner import simulate
from pequin_sim.runner.cache import cache_root
from pequin_sim.runner.progress import spinner

REPEATS = 5
"""Samples of an engine; the median counts."""

SLOW_BUDGET = 10.0
"""Wall-clock time given to each engine that is too slow for a fixed number of clocks (s)."""

TEST_MODULE = "pequin_tb.speed"


@dataclass
class Engine:
    """One way to run the design.

    Parameters
    ----------
    name
        Key in the report.
    title
        What a person reads.
    samples
        Clocks per second of each repetition.
    clocks
        Clocks of each repetition.
    note
        Why there are no samples, or what else is worth knowing.
    """

    name: str
    title: str
    samples: list[float] = field(default_factory=list)
    clocks: int = 0
    note: str = ""

    @property
    def clocks_per_second(self) -> float | None:
        """Median of the samples; None when the engine did not run."""
        return statistics.median(self.samples) if self.samples else None

    def add(self, clocks: int, speed: float) -> None:
        """Take a repetition of so many clocks at so many clocks per second."""
        self.clocks = clocks
        self.samples.append(speed)

    def describe(self) -> dict[str, Any]:
        """Return the engine as plain data."""
        return {
            "name": self.name,
            "title": self.title,
            "clocks_per_second": self.clocks_per_second,
            "samples": self.samples,
            "clocks": self.clocks,
            "note": self.note,
        }


TITLES = {
    "bare": "bare Verilator C++",
    "cocotb_idle": "our cocotb runner, idle",
    "cocotb_drive": "our cocotb runner, driving a stream",
    "cocotb_default": "cocotb's default Verilator runner, idle",
    "icarus": "Icarus Verilog, idle",
    "amaranth": "Amaranth's Python simulator, idle",
}
"""Engines, in the order of the report."""


@dataclass(frozen=True)
class SpeedBench:
    """Measure the speed of one design.

    Parameters
    ----------
    top, params
        The design.
    clocks
        Clocks of the fast engines, all repetitions together.
    default_limit
        Longest time that the build of cocotb's default runner may take (s).
    quiet
        Show no progress.
    """

    top: str
    params: TileParams
    clocks: int = 10_000_000
    default_limit: float = 600.0
    quiet: bool = False

    def __post_init__(self) -> None:
        """Check the number of clocks."""
        if self.clocks < REPEATS * 100:
            raise ConfigError(f"clocks must be at least {REPEATS * 100}, not {self.clocks}")

    def run(self, names: tuple[str, ...] = tuple(TITLES)) -> list[Engine]:
        """Measure the named engines, in the order of `TITLES`.

        Raises
        ------
        ConfigError
            A name is unknown.
        """
        unknown = [name for name in names if name not in TITLES]
        if unknown:
            raise ConfigError(f"engine {unknown[0]!r} is unknown; choose from {', '.join(TITLES)}")
        design = self._design()
        engines = {name: Engine(name, TITLES[name]) for name in TITLES if name in names}
        self._measure_turns(design, engines)
        slow: dict[str, Callable[[Design, Engine], None]] = {
            "cocotb_drive": self._measure_drive,
            "cocotb_default": self._measure_default,
            "icarus": self._measure_icarus,
            "amaranth": self._measure_amaranth,
        }
        for name, measure in slow.items():
            if name in engines:
                with spinner(f"measuring {TITLES[name]}", quiet=self.quiet):
                    measure(design, engines[name])
        return list(engines.values())

    def _design(self) -> Design:
        return cached_design(
            module_name(self.top),
            self.params,
            functools.partial(build_top, self.top, self.params),
            quiet=self.quiet,
        )

    def _measure_turns(self, design: Design, engines: dict[str, Engine]) -> None:
        """Measure bare Verilator and the idle cocotb runner in turns."""
        clocks = self.clocks // REPEATS
        bare = self._build_bare(design) if "bare" in engines else None
        if "cocotb_idle" in engines:
            simulate(design, test_module=TEST_MODULE, testcase="idle", job={"clocks": 1})
        for turn in range(REPEATS):
            with spinner(f"measuring bare and idle, turn {turn + 1}/{REPEATS}", quiet=self.quiet):
                if bare is not None:
                    engines["bare"].add(clocks, _run_bare(bare, clocks))
                if "cocotb_idle" in engines:
                    engines["cocotb_idle"].add(clocks, self._cocotb(design, "idle", clocks))

    def _build_bare(self, design: Design) -> Path:
        text = (resources.files("pequin_sim") / "bench" / "bare.cpp").read_text(encoding="utf-8")
        built = build_module.build_verilator(
            design,
            public=(),
            trace=None,
            build_args=(),
            root=cache_root(),
            quiet=self.quiet,
            main=text,
        )
        return built.directory / design.top

    def _cocotb(self, design: Design, test: str, clocks: int, **options: Any) -> float:
        """Return the clocks per second of one run of a test."""
        job = {"clocks": clocks, **options.pop("job", {})}
        run = simulate(design, test_module=TEST_MODULE, testcase=test, job=job, **options)
        assert run.result is not None
        return float(clocks / run.result["seconds"])

    def _measure_drive(self, design: Design, engine: Engine) -> None:
        inputs = [p for p in design.ports if p.role == "payload" and p.direction == "input"]
        if not inputs:
            engine.note = "the design takes no stream"
            return
        wide = max(inputs, key=lambda port: port.width)
        clocks = min(self.clocks // REPEATS, 50_000)
        engine.note = f"one write of {wide.width} bits per clock"
        job = {"valid": f"{wide.stream}__valid", "payload": wide.name, "width": wide.width}
        for _ in range(REPEATS):
            engine.add(clocks, self._cocotb(design, "drive", clocks, job=job))

    def _measure_default(self, design: Design, engine: Engine) -> None:
        """Build with cocotb's own runner, all signals public, as its documentation shows."""
        folder = Path(tempfile.mkdtemp(prefix="pequin-default-"))
        clocks = min(self.clocks // REPEATS, 200_000)
        try:
            source = folder / f"{design.top}.v"
            source.write_text(design.verilog, encoding="utf-8")
            if not _run_default(folder, design.top, ["build"], self.default_limit):
                engine.note = f"build stopped after {self.default_limit:g} s"
                return
            for _ in range(REPEATS):
                _run_default(folder, design.top, ["test", str(clocks)], self.default_limit)
                engine.add(clocks, clocks / float((folder / "seconds").read_text()))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _measure_icarus(self, design: Design, engine: Engine) -> None:
        with contextlib.suppress(ToolError):
            toolchain.find_icarus()
            clocks = 200
            speed = self._cocotb(design, "idle", clocks, simulator="icarus")
            clocks = max(200, min(self.clocks // REPEATS, int(speed * SLOW_BUDGET / REPEATS)))
            for _ in range(REPEATS):
                engine.add(clocks, self._cocotb(design, "idle", clocks, simulator="icarus"))
            return
        engine.note = "not installed"

    def _measure_amaranth(self, design: Design, engine: Engine) -> None:
        from amaranth.sim import Simulator

        simulator = Simulator(build_top(self.top, self.params))
        period = 1e-6
        simulator.add_clock(period)
        now = 5 * period
        simulator.run_until(now)
        clocks = 1
        while len(engine.samples) < REPEATS:
            begin = time.perf_counter()
            now += clocks * period
            simulator.run_until(now)
            elapsed = time.perf_counter() - begin
            if elapsed < SLOW_BUDGET / REPEATS / 4 and clocks < self.clocks // REPEATS:
                clocks *= 2
            else:
                engine.add(clocks, clocks / elapsed)


def ratios(engines: list[Engine]) -> dict[str, float]:
    """Return each engine's speed over bare Verilator's, as NAME_over_bare (medians)."""
    speeds = {engine.name: engine.clocks_per_second for engine in engines}
    bare = speeds.get("bare")
    if not bare:
        return {}
    return {
        f"{name}_over_bare": speed / bare
        for name, speed in speeds.items()
        if speed is not None and name != "bare"
    }


def _run_bare(program: Path, clocks: int) -> float:
    done = subprocess.run(
        [str(program), f"+clocks={clocks}", "+repeats=1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": library_path()},
    )
    if done.returncode:
        raise ToolError(f"{program.name} ended with code {done.returncode}: {done.stderr.strip()}")
    return float(done.stdout.split()[0])


@functools.lru_cache(maxsize=1)
def library_path() -> str:
    """Return LD_LIBRARY_PATH for a program that was built with the runner."""
    import cocotb_tools.config

    return os.pathsep.join(
        [str(cocotb_tools.config.libs_dir), os.environ.get("LD_LIBRARY_PATH", "")]
    )


_DEFAULT_RUNNER = """
import sys
from pathlib import Path
from cocotb_tools.runner import get_runner
folder, top, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
runner = get_runner("verilator")
options = dict(build_dir=folder / "build", hdl_toplevel=top)
if what == "build":
    runner.build(sources=[folder / f"{top}.v"], build_args=["-Wno-fatal", "-Wno-lint",
                 "-Wno-style", "-O3"], timescale=("1ns", "1ns"), **options)
else:
    import json, os
    answer = folder / "answer.json"
    order = {"job": {"clocks": int(sys.argv[4])}, "result": str(answer), "clock_ns": 10}
    (folder / "job.json").write_text(json.dumps(order))
    runner.build_dir = folder / "build"
    runner.test(test_module="pequin_tb.speed", testcase="idle", hdl_toplevel_lang="verilog",
                test_dir=folder, extra_env={"PEQUIN_JOB": str(folder / "job.json")}, **options)
    (folder / "seconds").write_text(str(json.loads(answer.read_text())["seconds"]))
"""
"""cocotb's runner in a process of its own, so that a build that takes too long can be stopped."""


def _run_default(folder: Path, top: str, words: list[str], limit: float) -> bool:
    """Return False when the process was stopped at the limit."""
    verilator = toolchain.find_verilator()
    env = verilator.environment()
    variables = " ".join(f"{word!s}" for word in verilator.make_variables)
    env["MAKEFLAGS"] = f" -- {variables}"
    command = [sys.executable, "-c", _DEFAULT_RUNNER, str(folder), top, *words]
    log = folder / "default.log"
    with log.open("w") as output, _process_group(command, folder, env, output) as process:
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            return False
    if code:
        last = next((s for s in reversed(log.read_text().splitlines()) if s.strip()), "")
        raise ToolError(f"cocotb's default runner ended with code {code}: {last}")
    return True


@contextlib.contextmanager
def _process_group(
    command: list[str], cwd: Path, env: dict[str, str], output: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process; at the end stop it and all that it started."""
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdout=output, stderr=output, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
