"""One simulation from start to result."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pequin.errors import ConfigError, PequinError
from pequin.export import Design
from pequin_sim.runner import build as _build
from pequin_sim.runner import icarus as _icarus
from pequin_sim.runner.cache import cache_root
from pequin_sim.runner.results import Outcome, read_results
from pequin_sim.runner.waves import CLOCK_NS, Waves

LEDGER = "PEQUIN_LEDGER"
"""Environment variable: a file to which each simulation adds a line with its clocks."""


class SimulationFailed(PequinError, RuntimeError):  # noqa: N818 - it reads as a report
    """A cocotb test failed, or the simulation ended without saying how it went.

    Parameters
    ----------
    message
        One line with the test's name and its failure.
    test
        The failed test, or None when the simulation itself broke.
    log
        What the simulation printed.
    """

    def __init__(self, message: str, *, test: str | None = None, log: str = "") -> None:
        super().__init__(message)
        self.test = test
        self.log = log


@dataclass(frozen=True, kw_only=True)
class SimResult:
    """What a simulation that passed left.

    Parameters
    ----------
    result
        What the testbench gave to `pequin_tb.job.finish`; None when it gave nothing.
    tests
        Every test's outcome; none has failed.
    clocks
        Simulated clocks of all tests, resets included.
    build_cached
        True when nothing was compiled.
    build_seconds, run_seconds
        Time for compiling and for running the simulation (s).
    log
        What the simulation printed.
    build_directory
        The simulation in the cache.
    """

    result: Any
    tests: tuple[Outcome, ...]
    clocks: int
    build_cached: bool
    build_seconds: float
    run_seconds: float
    log: str
    build_directory: Path


def simulate(
    design: Design,
    *,
    test_module: str,
    job: Mapping[str, Any] | None = None,
    plusargs: Sequence[str] = (),
    testcase: str | None = None,
    public: Sequence[str] = (),
    waves: Waves | None = None,
    build_args: Sequence[str] = (),
    simulator: str = "verilator",
    cache_dir: Path | None = None,
    seed: int | None = None,
    quiet: bool = True,
    timeout: float = 3600,
) -> SimResult:
    """Run cocotb tests on a design; build it first unless the cache has it.

    Parameters
    ----------
    design
        From `pequin.export.elaborate`.
    test_module
        Importable name of the module that holds the tests.
    job
        Plain data for the testbench (`pequin_tb.job.load`).
    plusargs
        Passed to the simulation, each with its `+`.
    testcase
        Run only the test of this name.
    public
        Signals to make visible to the testbench beside the top's ports (`drain.busy`).
    waves
        Waveform request; none is written otherwise.
    build_args
        More flags for the simulator's build.
    simulator
        `verilator` or `icarus`.
    cache_dir
        Build cache; default $PEQUIN_CACHE or ~/.cache/pequin.
    seed
        cocotb's random seed; None takes a new one each time.
    quiet
        False shows the simulation's output on stderr while it runs.
    timeout
        Longest run (s) before the simulation counts as hung.

    Raises
    ------
    SimulationFailed
        A test failed; the message has its name and its reason.
    ToolError
        The build failed or a tool is missing.
    ConfigError
        An argument breaks a rule.
    """
    if simulator not in ("verilator", "icarus"):
        raise ConfigError(f"simulator must be verilator or icarus, not {simulator!r}")
    root = cache_root(cache_dir)
    if waves is not None:
        waves.check(design)
    if simulator == "verilator":
        trace = waves.format if waves else None
        built = _build.build_verilator(
            design,
            public=public,
            trace=trace,
            build_args=build_args,
            root=root,
            quiet=False,
        )
    else:
        built = _icarus.build_icarus(
            design, build_args=build_args, waves=waves, root=root, quiet=False
        )
    run = _Run(design, built, simulator, test_module, testcase, plusargs, waves, seed)
    directory = Path(tempfile.mkdtemp(prefix="pequin-run-"))
    try:
        return run.execute(directory, job, quiet, timeout)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class _Run:
    design: Design
    built: _build.Build
    simulator: str
    test_module: str
    testcase: str | None
    plusargs: Sequence[str]
    waves: Waves | None
    seed: int | None

    def execute(
        self, directory: Path, job: Mapping[str, Any] | None, quiet: bool, timeout: float
    ) -> SimResult:
        answer = directory / "result.json"
        order = {"job": dict(job or {}), "result": str(answer), "clock_ns": CLOCK_NS}
        (directory / "job.json").write_text(json.dumps(order))
        results = directory / "results.xml"
        log_path = directory / "simulation.log"
        command, env = self._command(directory, results)
        env["PEQUIN_JOB"] = str(directory / "job.json")
        started = time.monotonic()
        code = _run_bounded(command, directory, env, log_path, quiet, timeout)
        seconds = time.monotonic() - started
        log = log_path.read_text(errors="replace")
        tests = read_results(results)
        clocks = round(sum(test.sim_ns for test in tests) / CLOCK_NS)
        self._note(clocks)
        self._check(tests, code, timeout, log)
        result = json.loads(answer.read_text()) if answer.exists() else None
        return SimResult(
            result=result,
            tests=tuple(tests),
            clocks=clocks,
            build_cached=self.built.cached,
            build_seconds=self.built.seconds,
            run_seconds=seconds,
            log=log,
            build_directory=self.built.directory,
        )

    def _note(self, clocks: int) -> None:
        """Write the run into the ledger that the environment names, whether it passed or not."""
        path = os.environ.get(LEDGER)
        if path:
            who = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (setup)")
            line = {
                "test": who.removesuffix(" (call)"),
                "design": self.design.top,
                "clocks": clocks,
            }
            with Path(path).open("a") as ledger:
                ledger.write(json.dumps(line) + "\n")

    def _check(self, tests: list[Outcome], code: int | None, timeout: float, log: str) -> None:
        for test in tests:
            if test.status == "failed":
                raise SimulationFailed(
                    f"cocotb test {test.name} failed: {test.message}", test=test.name, log=log
                )
        if code is None:
            raise SimulationFailed(
                f"the simulation of {self.design.top} ({self.test_module}) did not finish in "
                f"{timeout:g} s and was stopped",
                log=log,
            )
        if code or not any(test.status == "passed" for test in tests):
            last = next((s for s in reversed(log.splitlines()) if s.strip()), "no output")
            what = f"ended with code {code}" if code else "ran no test"
            raise SimulationFailed(
                f"the simulation of {self.design.top} ({self.test_module}) {what}: {last}",
                log=log,
            )

    def _command(self, directory: Path, results: Path) -> tuple[list[str], dict[str, str]]:
        """Let cocotb's runner write the command line and the environment; run neither."""
        recorder = _recorder(self.simulator)
        plusargs = list(self.plusargs)
        if self.waves:
            plusargs += self.waves.plusargs(self.design.top)
        # Under pytest cocotb's runner goes on to look for results: leave it before it does.
        with contextlib.suppress(_Recorded):
            recorder.test(
                test_module=self.test_module,
                hdl_toplevel=self.design.top,
                hdl_toplevel_lang="verilog",
                testcase=self.testcase,
                seed=self.seed,
                plusargs=plusargs,
                build_dir=self.built.directory,
                test_dir=directory,
                results_xml=str(results),
            )
        command, env = recorder.recorded
        env["PYTHONUNBUFFERED"] = "1"
        return command, env


class _Recorded(Exception):  # noqa: N818 - it is no error
    """The command line is known."""


def _recorder(simulator: str) -> Any:
    base = _build.LeanVerilator if simulator == "verilator" else _icarus.QuietIcarus

    class Recorder(base):  # type: ignore[misc, valid-type]
        recorded: tuple[list[str], dict[str, str]]

        def _execute(self, cmds: Sequence[Sequence[str]], cwd: Any) -> None:
            (command,) = cmds
            self.recorded = (list(command), dict(self.env))
            raise _Recorded

    return Recorder()


def _run_bounded(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    quiet: bool,
    timeout: float,
) -> int | None:
    """Run in a process group of its own; None when it had to be stopped."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output if quiet else sys.stderr,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
