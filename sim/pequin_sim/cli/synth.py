"""`pequin synth`: FPGA cells of a component, and its clock."""

from __future__ import annotations

import functools
import json

import click
from rich.console import Console

from pequin.config import PRESETS, TileConfig, TileParams
from pequin.errors import ConfigError
from pequin.tops import TOPS, build_top, module_name
from pequin_sim.synth.place_route import DEVICE, place_and_route
from pequin_sim.synth.report import synth_report
from pequin_sim.synth.targets import TARGETS, find_target
from pequin_sim.synth.yosys import synthesize


@click.command("synth", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--top", default="mac-array", show_default=True, help=f"One of {', '.join(TOPS)}.")
@click.option("--preset", default="fpga", show_default=True, help=f"One of {', '.join(PRESETS)}.")
@click.option("--target", default="ecp5", show_default=True, help=f"One of {', '.join(TARGETS)}.")
@click.option(
    "--pnr",
    is_flag=True,
    help=f"Place and route out of context ({DEVICE.name}, speed grade {DEVICE.speed_grade}).",
)
@click.option("--seed", default=1, show_default=True, help="First seed of the placer.")
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Seeds to try, from --seed up; the median and the best clock are reported.",
)
@click.option(
    "--freq",
    default=100.0,
    show_default=True,
    type=click.FloatRange(1, 1000),
    help="Clock that place and route aims at (MHz).",
)
@click.option(
    "--timeout",
    default=3600.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Stop a tool that runs longer (seconds).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    top: str,
    preset: str,
    target: str,
    pnr: bool,
    seed: int,
    seeds: int,
    freq: float,
    timeout: float,
    as_json: bool,
) -> None:
    """Count a component's FPGA cells and, on request, place and route it.

    Results are kept: the same component with the same tools is not synthesized again. Without
    --pnr, `fmax_mhz` in the JSON is null.
    """
    from pequin_sim.rtl.designs import cached_design

    family = find_target(target)
    params = TileParams(TileConfig.preset(preset))
    if top not in TOPS:
        build_top(top, params)  # raises, naming the known ones
    if pnr and family.name != DEVICE.target:
        raise ConfigError(
            f"--pnr needs --target {DEVICE.target}, the family of {DEVICE.name}, not {target}"
        )
    design = cached_design(module_name(top), params, functools.partial(build_top, top, params))
    netlist = synthesize(design, family, timeout=timeout)
    runs = tuple(
        place_and_route(netlist, seed=seed + i, frequency_mhz=freq, timeout=timeout)
        for i in range(seeds if pnr else 0)
    )
    report = synth_report(top, params, netlist, runs)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        Console().print(report.render())
