"""Synthesis by Yosys, kept by the hash of what goes into it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pequin.errors import ToolError
from pequin.export import Design
from pequin_sim.runner.cache import cache_root, digest, obtain
from pequin_sim.synth.cells import Resources, count_resources
from pequin_sim.synth.targets import Target
from pequin_sim.synth.tools import run_logged, stages
from pequin_sim.toolchain import Tool, find_yosys

FLOW_VERSION = 1
"""Raise it when a change here makes netlists in the cache wrong."""

_HEADING = re.compile(r"^\d+(?:\.\d+){0,2}\. Executing (?P<step>.+?)(?: pass)?(?: \(.*\))?\.?$")


@dataclass(frozen=True)
class Netlist:
    """A synthesized component.

    Parameters
    ----------
    key
        Name in the cache: a hash of Verilog, flow and Yosys's version.
    directory
        Where it lies.
    target
        Its family.
    top
        Its module.
    tool
        The Yosys that made it.
    cells
        Number of cells of each type.
    resources
        What they occupy.
    """

    key: str
    directory: Path
    target: Target
    top: str
    tool: Tool
    cells: dict[str, int]
    resources: Resources

    @property
    def path(self) -> Path:
        """The netlist in Yosys's JSON format."""
        return self.directory / "netlist.json"


def script(target: Target, top: str) -> str:
    """Return the Yosys script from `design.v` to `netlist.json` and `stat.json`."""
    return "\n".join(
        [
            "read_verilog -sv design.v",
            f"hierarchy -check -top {top}",
            "proc",
            "check -assert",
            target.command.format(top=top),
            "write_json netlist.json",
            "tee -q -o stat.json stat -json",
            "",
        ]
    )


def synthesize(
    design: Design,
    target: Target,
    *,
    timeout: float = 3600,
    cache_dir: Path | None = None,
    quiet: bool = False,
) -> Netlist:
    """Map a design to a family's cells.

    Parameters
    ----------
    design
        Verilog and its top.
    target
        The family.
    timeout
        Seconds after which Yosys is stopped.
    cache_dir
        Where netlists are kept: as in `pequin_sim.runner`.
    quiet
        Show no progress.

    Raises
    ------
    ToolError
        Yosys is missing, fails, or takes too long.
    """
    tool = find_yosys()
    steps = script(target, design.top)
    inputs = {
        "flow": FLOW_VERSION,
        "verilog": design.verilog,
        "script": steps,
        "yosys": tool.version,
    }
    key = "netlist-" + digest(inputs)

    def build(directory: Path) -> None:
        (directory / "design.v").write_text(design.verilog, encoding="utf-8")
        (directory / "run.ys").write_text(steps, encoding="utf-8")
        with stages(f"Yosys: {design.top} for {target.title}", quiet=quiet) as stage:

            def show(line: str) -> None:
                found = _HEADING.match(line)
                if found:
                    stage(found["step"])

            run_logged(
                [tool.path, "-s", "run.ys"],
                directory=directory,
                log=directory / "yosys.log",
                timeout=timeout,
                on_line=show,
            )

    directory, _ = obtain(cache_root(cache_dir), key, build)
    cells = _cells(json.loads((directory / "stat.json").read_text(encoding="utf-8")))
    resources = count_resources(cells, target)
    return Netlist(key, directory, target, design.top, tool, cells, resources)


def _cells(statistics: dict[str, Any]) -> dict[str, int]:
    """Return the number of cells of each type in the flattened design."""
    try:
        found = statistics["design"]["num_cells_by_type"]
    except KeyError as error:
        raise ToolError(
            f"Yosys's statistics have no {error}; this version is not supported"
        ) from None
    return {str(name): int(count) for name, count in sorted(found.items())}
