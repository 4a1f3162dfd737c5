"""Place and route by nextpnr for ECP5, out of context, kept by the hash of what goes into it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pequin.errors import ConfigError, ToolError
from pequin_sim.runner.cache import cache_root, digest, obtain
from pequin_sim.synth.paths import Endpoint, TimingPath, slowest_path, slowest_registers
from pequin_sim.synth.tools import run_logged, stages
from pequin_sim.synth.yosys import Netlist
from pequin_sim.toolchain import Tool, find_nextpnr

ROUTE_VERSION = 1
"""Raise it when a change here makes routings in the cache wrong."""

_STAGES = {
    "Info: Packing constants": "packing",
    "Info: Running main analytical placer": "placing",
    "Info: Running simulated annealing placer": "refining the placement",
    "Info: Routing..": "routing",
}


@dataclass(frozen=True)
class Device:
    """What a component is placed into.

    Parameters
    ----------
    name
        Part.
    target
        Family it belongs to.
    flags
        nextpnr's options for it.
    speed_grade
        6 is the slowest of ECP5.
    package
        Which pins there are; of no effect out of context.
    lut, ff, dsp, bram
        What it has.
    """

    name: str
    target: str
    flags: tuple[str, ...]
    speed_grade: int
    package: str
    lut: int
    ff: int
    dsp: int
    bram: int


DEVICE = Device(
    name="LFE5U-85F",
    target="ecp5",
    flags=("--85k", "--speed", "6", "--package", "CABGA756"),
    speed_grade=6,
    package="CABGA756",
    lut=83640,
    ff=83640,
    dsp=156,
    bram=208,
)
"""The largest ECP5, in its slowest speed grade."""


@dataclass(frozen=True)
class Routing:
    """One placed and routed netlist.

    Parameters
    ----------
    seed
        Of the placer.
    fmax_mhz
        Achieved clock (MHz), between registers: ports have no timing out of context.
    critical_path
        The slowest path between two registers.
    slowest
        The slowest registers, each with the arrival time of its data.
    used
        Device resources in use, by nextpnr's names.
    tool
        The nextpnr that made it.
    """

    seed: int
    fmax_mhz: float
    critical_path: TimingPath
    slowest: tuple[Endpoint, ...]
    used: Mapping[str, int]
    tool: Tool


def arguments(device: Device, *, seed: int, frequency_mhz: float) -> list[str]:
    """Return nextpnr's command line without the program."""
    return [
        *device.flags,
        # A component has more ports than a package has pins: no pads, and only the paths
        # between registers count.
        "--out-of-context",
        "--json",
        "netlist.json",
        "--report",
        "report.json",
        "--detailed-timing-report",
        "--timing-allow-fail",
        "--freq",
        f"{frequency_mhz:g}",
        "--seed",
        str(seed),
    ]


def place_and_route(
    netlist: Netlist,
    *,
    seed: int = 1,
    frequency_mhz: float = 100,
    device: Device = DEVICE,
    timeout: float = 3600,
    cache_dir: Path | None = None,
    quiet: bool = False,
) -> Routing:
    """Place and route a netlist out of context.

    Parameters
    ----------
    netlist
        For the device's family.
    seed
        Of the placer.
    frequency_mhz
        Clock the tool aims at (MHz); it may miss it.
    device
        What it is placed into.
    timeout
        Seconds after which nextpnr is stopped.
    cache_dir
        Where results are kept: as in `pequin_sim.runner`.
    quiet
        Show no progress.

    Raises
    ------
    ConfigError
        The netlist is for another family.
    ToolError
        nextpnr is missing, fails (a netlist that does not fit, for example), or takes too long.
    """
    if netlist.target.name != device.target:
        raise ConfigError(
            f"place and route needs --target {device.target}, the family of {device.name}, "
            f"not {netlist.target.name}"
        )
    tool = find_nextpnr()
    words = arguments(device, seed=seed, frequency_mhz=frequency_mhz)
    inputs = {
        "version": ROUTE_VERSION,
        "netlist": netlist.key,
        "arguments": words,
        "nextpnr": tool.version,
    }
    key = "routing-" + digest(inputs)

    def build(directory: Path) -> None:
        copy = directory / "netlist.json"
        copy.write_bytes(netlist.path.read_bytes())
        with stages(f"nextpnr: {netlist.top}, {device.name}, seed {seed}", quiet=quiet) as stage:

            def show(line: str) -> None:
                for start, name in _STAGES.items():
                    if line.startswith(start):
                        stage(name)

            run_logged(
                [tool.path, *words],
                directory=directory,
                log=directory / "nextpnr.log",
                timeout=timeout,
                on_line=show,
            )
        copy.unlink()
        summary = summarize(json.loads((directory / "report.json").read_text(encoding="utf-8")))
        (directory / "summary.json").write_text(json.dumps(summary), encoding="utf-8")

    directory, _ = obtain(cache_root(cache_dir), key, build)
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return Routing(
        seed=seed,
        fmax_mhz=summary["fmax_mhz"],
        critical_path=TimingPath.from_plain(summary["critical_path"]),
        slowest=tuple(Endpoint(**item) for item in summary["slowest"]),
        used=summary["used"],
        tool=tool,
    )


def summarize(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of nextpnr's report, as plain data.

    Raises
    ------
    ToolError
        It reports no clock: the netlist has no path between two registers.
    """
    clocks: Mapping[str, Mapping[str, float]] = report["fmax"]
    if not clocks:
        raise ToolError("nextpnr reports no clock: no path between two registers in this netlist")
    clock = min(clocks, key=lambda name: clocks[name]["achieved"])
    return {
        "clock": re.sub(r"^\$glbnet\$", "", clock),
        "fmax_mhz": round(clocks[clock]["achieved"], 2),
        "critical_path": slowest_path(report["critical_paths"]).to_plain(),
        "slowest": [item.to_plain() for item in slowest_registers(report["detailed_net_timings"])],
        "used": {name: item["used"] for name, item in report["utilization"].items()},
    }


def median_run(runs: Sequence[Routing]) -> Routing:
    """Return the run with the median clock; of an even number the slower of the middle two."""
    return sorted(runs, key=lambda run: run.fmax_mhz)[(len(runs) - 1) // 2]
