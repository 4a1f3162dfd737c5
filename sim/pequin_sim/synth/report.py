"""One component on one FPGA family: what is reported of it, as data and as tables."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from pequin.config import TileParams
from pequin_sim.synth.place_route import DEVICE, Device, Routing, median_run
from pequin_sim.synth.yosys import Netlist

MAC_TOPS = ("mac-array",)
"""Tops whose multiply-accumulates are the tile's; others have no figure per MAC."""

_MHZ_TO_GIGA = 1e-3


@dataclass(frozen=True)
class SynthReport:
    """Resources and, with place and route, the clock of one component.

    Parameters
    ----------
    top, preset
        The component.
    netlist
        Its cells.
    macs_per_clock
        MXFP4 multiply-accumulates per clock, or None for a component without any.
    runs
        One routing per seed; empty without place and route.
    device
        What was routed into.
    """

    top: str
    preset: str
    netlist: Netlist
    macs_per_clock: int | None
    runs: tuple[Routing, ...] = ()
    device: Device = DEVICE

    @property
    def median(self) -> Routing | None:
        """The run with the median clock."""
        return median_run(self.runs) if self.runs else None

    @property
    def best_mhz(self) -> float | None:
        """The best clock of all seeds (MHz)."""
        return max((run.fmax_mhz for run in self.runs), default=None)

    def per_mac(self, count: float) -> float | None:
        """Return a resource count divided by the multiply-accumulates per clock."""
        return None if not self.macs_per_clock else round(count / self.macs_per_clock, 4)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data; `fmax_mhz` is the median over the seeds."""
        resources = self.netlist.resources
        median = self.median
        return {
            "target": self.netlist.target.name,
            "top": self.top,
            "preset": self.preset,
            **dataclasses.asdict(resources),
            "fmax_mhz": None if median is None else median.fmax_mhz,
            "fmax_best_mhz": self.best_mhz,
            "macs_per_clock": self.macs_per_clock,
            "lut_per_mac": self.per_mac(resources.lut),
            "ff_per_mac": self.per_mac(resources.ff),
            "dsp_per_mac": self.per_mac(resources.dsp),
            "bram_per_mac": self.per_mac(resources.bram),
            "cells": self.netlist.cells,
            "place_and_route": None if median is None else self._routing_json(median),
            "tools": {
                tool.name: tool.version
                for tool in (self.netlist.tool, *((median.tool,) if median else ()))
            },
        }

    def _routing_json(self, median: Routing) -> dict[str, Any]:
        device = self.device
        return {
            "device": device.name,
            "speed_grade": device.speed_grade,
            "package": device.package,
            "out_of_context": True,
            "runs": [{"seed": run.seed, "fmax_mhz": run.fmax_mhz} for run in self.runs],
            "critical_path": {"seed": median.seed, **median.critical_path.to_plain()},
            "slowest_registers": [item.to_plain() for item in median.slowest],
            "used": {name: count for name, count in median.used.items() if count},
        }

    def render(self) -> RenderableType:
        """Return tables for a terminal."""
        parts: list[RenderableType] = [self._cell_table()]
        if self.median is not None:
            parts += [self._clock_table(), self._path_table(self.median)]
            parts.append(self._endpoint_table(self.median))
        return Group(*parts)

    def _cell_table(self) -> Table:
        target, used, device = self.netlist.target, self.netlist.resources, self.device
        fits = device.target == target.name
        title = f"{self.top} ({self.preset}) on {target.title}"
        if self.macs_per_clock:
            title += f": {self.macs_per_clock} MACs per clock"
        table = Table(title=title, title_justify="left")
        table.add_column("resource")
        table.add_column("count", justify="right")
        if fits:
            table.add_column(f"of {device.name}", justify="right")
        if self.macs_per_clock:
            table.add_column("per MAC", justify="right")
        rows: list[tuple[str, float, int | None]] = [
            (target.lut_name, used.lut, device.lut),
            ("  of them in carry chains", used.lut_carry, None),
            ("  of them as memory", used.lut_memory, None),
            ("dedicated multiplexers", used.mux, None),
            ("flip-flops", used.ff, device.ff),
            (target.dsp_name, used.dsp, device.dsp),
            (target.bram_name, used.bram, device.bram),
        ]
        for name, count, available in rows:
            cells = [name, f"{count:,}"]
            if fits:
                cells.append("" if available is None else f"{count / available:.1%}")
            if self.macs_per_clock:
                cells.append("" if available is None else f"{count / self.macs_per_clock:.3f}")
            table.add_row(*cells)
        return table

    def _clock_table(self) -> Table:
        device, median = self.device, self.median
        assert median is not None
        table = Table(
            title=f"Clock after place and route, {device.name} speed grade {device.speed_grade}, "
            "out of context (paths between registers)",
            title_justify="left",
        )
        table.add_column("seeds")
        table.add_column("median MHz", justify="right")
        table.add_column("best MHz", justify="right")
        table.add_column("worst MHz", justify="right")
        rates = [run.fmax_mhz for run in self.runs]
        seeds = ", ".join(f"{run.seed}: {run.fmax_mhz:.1f}" for run in self.runs)
        cells = [seeds, f"{median.fmax_mhz:.1f}", f"{max(rates):.1f}", f"{min(rates):.1f}"]
        if self.macs_per_clock:
            table.add_column("10^9 MAC/s at the median", justify="right")
            cells.append(f"{self.macs_per_clock * median.fmax_mhz * _MHZ_TO_GIGA:.1f}")
        table.add_row(*cells)
        return table

    def _path_table(self, run: Routing) -> Table:
        path = run.critical_path
        table = Table(
            title=f"Critical path of seed {run.seed}: {path.start} to {path.end}, "
            f"{path.total_ns:.2f} ns, {path.levels} levels",
            title_justify="left",
            show_footer=True,
        )
        table.add_column("through", footer="total")
        table.add_column("levels", justify="right", footer=str(path.levels))
        table.add_column("logic ns", justify="right", footer=f"{path.logic_ns:.2f}")
        table.add_column("routing ns", justify="right", footer=f"{path.routing_ns:.2f}")
        for step in path.steps:
            levels = str(step.cells or "")
            table.add_row(step.name, levels, f"{step.logic_ns:.2f}", f"{step.routing_ns:.2f}")
        return table

    def _endpoint_table(self, run: Routing) -> Table:
        table = Table(title=f"Slowest registers of seed {run.seed}", title_justify="left")
        table.add_column("register")
        table.add_column("arrival ns", justify="right")
        for item in run.slowest:
            table.add_row(item.name, f"{item.arrival_ns:.2f}")
        return table


def synth_report(
    top: str, params: TileParams, netlist: Netlist, runs: tuple[Routing, ...] = ()
) -> SynthReport:
    """Return the report of a top.

    Parameters
    ----------
    top
        Its name on the command line.
    params
        The tile's parameters.
    netlist
        From `synthesize`.
    runs
        From `place_and_route`, one per seed.
    """
    macs = params.macs_per_clock if top in MAC_TOPS else None
    return SynthReport(top, params.config.name, netlist, macs, runs)
