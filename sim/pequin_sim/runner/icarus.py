"""Building with Icarus Verilog: slow, but it knows X."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import cocotb_tools.runner

from pequin.export import Design
from pequin_sim import toolchain
from pequin_sim.runner import cache
from pequin_sim.runner.build import RUNNER_VERSION, TIMESCALE, Build, obtain_build, run_logged
from pequin_sim.runner.waves import Waves

_DUMPER = """\
module pequin_waves;
  string path;
  time first, last;
  initial
    if ($value$plusargs("pequin.waves=%s", path)) begin
      if (!$value$plusargs("pequin.waves.from=%d", first)) first = 0;
      $dumpfile(path);
      #(first) $dumpvars(0, SCOPE);
      if ($value$plusargs("pequin.waves.to=%d", last)) #(last - first) $dumpoff;
    end
endmodule
"""
"""A second top module that writes a waveform inside its window."""


class QuietIcarus(cocotb_tools.runner.Icarus):
    """cocotb's Icarus runner with the build's output in a file and our own waveforms."""

    def _execute(self, cmds: Sequence[Sequence[str]], cwd: Any) -> None:
        run_logged(cmds, Path(cwd), self.env, Path(cwd) / "build.log")

    def _test_command(self) -> list[list[str]]:
        (command,) = super()._test_command()
        wave = next((word for word in command if word.startswith("+pequin.waves=")), None)
        if wave is None:
            return [command]
        # cocotb turns all dumping off, since it did not ask for any.
        command = [word for word in command if word != "-none"]
        return [[*command, "-fst"] if wave.endswith(".fst") else command]


def wake_processes(verilog: str) -> str:
    """Return a design whose combinational processes run once at time zero in Icarus.

    Yosys gives every `always @*` a register in its sensitivity that is initialized to 0, and
    counts on the initialization as the first event. In SystemVerilog it happens before any
    process waits, so Icarus would leave outputs at X until an input changes.
    """
    return re.sub(
        r"^(\s*)reg (\\\$auto\$verilog_backend\.cc\S*) += 0;",
        r"\1reg \2 ;\n\1initial #0 \2 = 0;",
        verilog,
        flags=re.MULTILINE,
    )


def build_icarus(
    design: Design,
    *,
    build_args: Sequence[str],
    waves: Waves | None,
    root: Path,
    quiet: bool,
) -> Build:
    """Build with Icarus Verilog, or find the build in the cache."""
    icarus = toolchain.find_icarus()
    verilog = wake_processes(design.verilog)
    args = list(build_args)
    if waves is not None:
        scope = ".".join(filter(None, (design.top, waves.module)))
        verilog += "\n" + _DUMPER.replace("SCOPE", scope)
        args += ["-s", "pequin_waves"]
    key = cache.digest(
        {
            "simulator": "icarus",
            "runner": RUNNER_VERSION,
            "verilog": verilog,
            "top": design.top,
            "flags": args,
            "tools": [icarus.version, metadata.version("cocotb")],
        }
    )

    def build(directory: Path) -> None:
        source = directory / f"{design.top}.v"
        source.write_text(verilog, encoding="utf-8")
        QuietIcarus().build(
            sources=[source],
            hdl_toplevel=design.top,
            build_args=args,
            build_dir=directory,
            timescale=TIMESCALE,
        )

    return obtain_build(design, root, key, build, quiet)
