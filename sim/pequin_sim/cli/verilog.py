"""`pequin verilog`: a component as Verilog."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pequin.config import PRESETS, TileConfig, TileParams
from pequin.errors import InputError
from pequin.tops import TOPS, build_top, module_name
from pequin_sim.outputs import check_writable, write_atomic
from pequin_sim.runner.progress import spinner


@click.command("verilog", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--top", default="mac-array", show_default=True, help=f"One of {', '.join(TOPS)}.")
@click.option("--preset", default="ref", show_default=True, help=f"One of {', '.join(PRESETS)}.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write FILE and, with the suffix .json, a description of its ports. Default: stdout.",
    metavar="FILE",
)
def command(top: str, preset: str, output: Path | None) -> None:
    """Write a component as Verilog.

    The same component and preset give the same bytes. FILE.json beside FILE lists the ports: name,
    direction, width, the stream they belong to and the fields of its payload.
    """
    from pequin.export import elaborate

    params = TileParams(TileConfig.preset(preset))
    sidecar = None
    if output is not None:
        sidecar = output.with_suffix(".json")
        if sidecar == output:
            raise InputError(f"{output} would be overwritten by its port description: name it .v")
        check_writable(output)
        check_writable(sidecar)
    component = build_top(top, params)
    with spinner(f"writing {top} ({preset}) as Verilog", quiet=output is None):
        design = elaborate(component, module_name(top))
    if output is None or sidecar is None:
        click.echo(design.verilog, nl=False)
        return
    write_atomic(output, design.verilog)
    description = {"top": design.top, "preset": preset, "component": top, **design.describe()}
    write_atomic(sidecar, json.dumps(description, indent=2) + "\n")
    click.echo(f"wrote {output} and {sidecar}", err=True)
