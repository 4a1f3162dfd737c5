"""Building a design into a simulation: the commands, the cache key, and the errors."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import cocotb_tools.config
import cocotb_tools.runner

from pequin.errors import ConfigError, ToolError
from pequin.export import Design
from pequin_sim import toolchain
from pequin_sim.runner import cache
from pequin_sim.runner.progress import spinner

RUNNER_VERSION = 1
"""Raise it when a change here makes builds in the cache wrong."""

BUILD_JOBS = 2
"""Compilations that run at the same time."""

VERILATOR_FLAGS = (
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-timing",
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
    # Smaller functions and files compile faster, and two at a time.
    "--output-split",
    "5000",
    "--output-split-cfuncs",
    "500",
    "-CFLAGS",
    "-DVL_TIME_CONTEXT",
)

OPTIMIZATION = ("OPT_FAST=-O2", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2")
"""g++ flags: the model, its start-up code, Verilator's run-time library."""

TRACE_FLAGS = {"vcd": ("--trace",), "fst": ("--trace-fst",)}

TIMESCALE = ("1ns", "1ns")


@dataclass(frozen=True)
class Build:
    """A simulation that is ready to run.

    Parameters
    ----------
    directory
        Where it lies.
    cached
        True when nothing was compiled.
    seconds
        What compiling took; 0 when nothing was.
    """

    directory: Path
    cached: bool
    seconds: float


def control_file(design: Design, public: Sequence[str] = ()) -> str:
    """Return a Verilator control file that shows VPI the top's ports and the named signals.

    Everything else stays private, so that Verilator can optimize it.

    Parameters
    ----------
    design
        The design.
    public
        Signals by their path below the top, such as `drain.busy`.

    Raises
    ------
    ConfigError
        The design has no such module or signal.
    """
    lines = ["`verilator_config"]
    for port in design.ports:
        kind = "public_flat_rw" if port.direction == "input" else "public_flat_rd"
        lines.append(f'{kind} -module "{design.top}" -var "{port.name}"')
    for path in public:
        module, signal = _locate(design, path)
        lines.append(f'public_flat_rd -module "{module}" -var "{signal}"')
    return "\n".join(lines) + "\n"


def _locate(design: Design, path: str) -> tuple[str, str]:
    """Split a path into the module that the generator named after it, and the signal."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, -1, -1):
        module = ".".join([design.top, *parts[:cut]])
        body = re.search(
            rf"^module \\?{re.escape(module)} ?\(.*?^endmodule", design.verilog, re.M | re.S
        )
        signal = ".".join(parts[cut:])
        if body and re.search(
            rf"^\s*(wire|reg) (\[[^\]]*\] )?\\?{re.escape(signal)}\s", body[0], re.M
        ):
            return module, signal
    raise ConfigError(f"{design.top} has no signal {path!r} to make public")


class LeanVerilator(cocotb_tools.runner.Verilator):
    """cocotb's Verilator runner without `--public-flat-rw`, and with our main program."""

    def __init__(
        self, verilator: toolchain.Verilator | None = None, root: Path | None = None
    ) -> None:
        self._verilator = verilator
        self._root = root
        super().__init__()

    def _simulator_in_path_build_only(self) -> None:
        assert self._verilator is not None
        self.executable = str(self._verilator.tool.path)

    def _build_command(self) -> list[list[str]]:
        assert self._verilator is not None
        verilate, make = super()._build_command()
        verilate = [word for word in verilate if word != "--public-flat-rw"]
        own_main = str(self.build_dir / "main.cpp")
        verilate = [own_main if word.endswith("/verilator.cpp") else word for word in verilate]
        # Whether the model traces is said to Verilator, which also says it to make.
        make = [word for word in make if not word.startswith("VM_TRACE=")]
        make[make.index("-j") + 1] = str(BUILD_JOBS)
        return [verilate, [*make, *OPTIMIZATION, *self._verilator.make_variables]]

    def _set_env_build(self) -> None:
        assert self._verilator is not None
        super()._set_env_build()
        self.env.update(self._verilator.environment())
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            self.env.pop(name, None)

    def _execute(self, cmds: Sequence[Sequence[str]], cwd: Any) -> None:
        """Verilate, find or compile Verilator's run-time library, then compile the model."""
        assert self._root is not None
        directory = Path(cwd)
        verilate, make = cmds
        run_logged([verilate], directory, self.env, directory / "verilate.log")
        library = self._runtime_library(directory, make)
        make = [*make, "VM_GLOBAL_FAST=", "VM_GLOBAL_SLOW=", f"USER_LDLIBS={library}"]
        run_logged([make], directory, self.env, directory / "build.log")

    def _runtime_library(self, directory: Path, make: Sequence[str]) -> Path:
        """Return an archive of Verilator's run-time library; builds with equal flags share it."""
        assert self._root is not None
        assert self._verilator is not None
        classes = (directory / "Vtop_classes.mk").read_text()
        settings = [line for line in classes.splitlines() if re.match(r"VM_\w+ = \d", line)]
        found = re.search(r"^VM_GLOBAL_FAST \+= \\\n((?:  \w+ \\\n)*)", classes, re.M)
        units = re.findall(r"\w+", found[1]) if found else []
        key = cache.digest(
            {
                "settings": settings,
                "units": units,
                "makefile": (directory / "Vtop.mk").read_text().replace(str(directory), "."),
                "make": [word.replace(str(directory), ".") for word in make],
                "tools": tool_versions(self._verilator),
            }
        )

        def build(target: Path) -> None:
            for name in ("Vtop.mk", "Vtop_classes.mk"):
                shutil.copy(directory / name, target)
            objects = [f"{unit}.o" for unit in units]
            command = [str(target) if word == str(directory) else word for word in make]
            archive = ["ar", "rcs", "libverilated.a", *objects]
            run_logged([[*command, *objects], archive], target, self.env, target / "build.log")
            _keep_only(target, {"libverilated.a", "build.log"})

        return cache.obtain(self._root, f"runtime-{key}", build)[0] / "libverilated.a"


def run_logged(
    commands: Sequence[Sequence[str]], cwd: Path, env: Mapping[str, str], log: Path
) -> None:
    """Run build commands; raises `ToolError` with the first error line of the one that fails."""
    with log.open("w") as output:
        for command in commands:
            code = subprocess.run(
                command, cwd=cwd, env=env, stdout=output, stderr=subprocess.STDOUT, check=False
            ).returncode
            if code:
                text = log.read_text(errors="replace")
                name = Path(command[0]).name
                raise ToolError(f"{name} failed with code {code}: {_first_error(text)}")


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wanted = [line for line in lines if re.search(r"error|not found|No such file", line, re.I)]
    return (wanted or lines or ["no message"])[0]


def tool_versions(verilator: toolchain.Verilator) -> list[str]:
    """Return what a compiled simulation depends on: tools, their versions and places."""
    return [
        verilator.tool.version,
        str(verilator.root),
        *(tool.version for tool in toolchain.find_build_tools()),
        metadata.version("cocotb"),
        str(cocotb_tools.config.libs_dir),
    ]


@functools.lru_cache(maxsize=1)
def _main_program() -> str:
    return (resources.files("pequin_sim") / "runner" / "main.cpp").read_text(encoding="utf-8")


def build_verilator(
    design: Design,
    *,
    public: Sequence[str],
    trace: str | None,
    build_args: Sequence[str],
    root: Path,
    quiet: bool,
    main: str | None = None,
) -> Build:
    """Build with Verilator, or find the build in the cache.

    `main` replaces the text of the main program.
    """
    main = _main_program() if main is None else main
    verilator = toolchain.find_verilator()
    if trace == "fst":
        toolchain.require_fst_headers()
    control = control_file(design, public)
    flags = [*VERILATOR_FLAGS, *(TRACE_FLAGS[trace] if trace else ()), *build_args]
    key = cache.digest(
        {
            "simulator": "verilator",
            "runner": RUNNER_VERSION,
            "verilog": design.verilog,
            "top": design.top,
            "control": control,
            "main": main,
            "flags": flags,
            "optimization": OPTIMIZATION,
            "tools": tool_versions(verilator),
        }
    )

    def build(directory: Path) -> None:
        source, vlt = directory / f"{design.top}.v", directory / "public.vlt"
        source.write_text(design.verilog, encoding="utf-8")
        vlt.write_text(control, encoding="utf-8")
        (directory / "main.cpp").write_text(main, encoding="utf-8")
        LeanVerilator(verilator, root).build(
            sources=[vlt, source],
            hdl_toplevel=design.top,
            build_args=flags,
            build_dir=directory,
            timescale=TIMESCALE,
        )
        _keep_only(directory, {design.top, source.name, vlt.name, "build.log"})

    return obtain_build(design, root, key, build, quiet)


def obtain_build(
    design: Design, root: Path, key: str, build: Callable[[Path], None], quiet: bool
) -> Build:
    """Return a build from the cache, or make it and show that something is going on."""
    started = time.monotonic()

    def announced(directory: Path) -> None:
        with spinner(f"building the simulation of {design.top}", quiet=quiet):
            build(directory)

    directory, cached = cache.obtain(root, key, announced)
    return Build(directory, cached, 0.0 if cached else time.monotonic() - started)


def _keep_only(directory: Path, names: set[str]) -> None:
    for entry in directory.iterdir():
        if entry.name in names:
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
