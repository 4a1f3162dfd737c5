"""`pequin bench`: benchmarks."""

from __future__ import annotations

import json
import platform

import click
from rich.console import Console
from rich.table import Table

from pequin.config import PRESETS, TileConfig, TileParams
from pequin.tops import TOPS, build_top
from pequin_sim.bench.speed import TITLES, Engine, SpeedBench, ratios

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group("bench", context_settings=_SETTINGS)
def command() -> None:
    """Measure simulation speed."""


@command.command("speed", context_settings=_SETTINGS)
@click.option("--top", default="mac-array", show_default=True, help=f"One of {', '.join(TOPS)}.")
@click.option("--preset", default="ref", show_default=True, help=f"One of {', '.join(PRESETS)}.")
@click.option(
    "--clocks",
    default=10_000_000,
    show_default=True,
    help="Clocks of the fast engines, their five repetitions together.",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    help=f"Measure only this one; may be repeated. One of {', '.join(TITLES)}.",
)
@click.option(
    "--default-limit",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Stop the build of cocotb's default runner after this time (seconds).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def speed(
    top: str,
    preset: str,
    clocks: int,
    engines: tuple[str, ...],
    default_limit: float,
    as_json: bool,
) -> None:
    """Compare the speed of one design on several engines, in one run.

    Bare Verilator and our idle cocotb runner take turns; the median of five counts. Only the
    ratios mean anything on another machine.
    """
    params = TileParams(TileConfig.preset(preset))
    if top not in TOPS:
        build_top(top, params)  # raises, naming the known ones
    bench = SpeedBench(top, params, clocks=clocks, default_limit=default_limit)
    measured = bench.run(engines or tuple(TITLES))
    if as_json:
        report = {
            "top": top,
            "preset": preset,
            "machine": platform.machine(),
            "engines": [engine.describe() for engine in measured],
            "ratios": ratios(measured),
        }
        click.echo(json.dumps(report, indent=2))
    else:
        Console().print(_table(top, preset, measured))


def _table(top: str, preset: str, engines: list[Engine]) -> Table:
    table = Table(title=f"Simulation speed of {top}, preset {preset}")
    table.add_column("engine")
    for title in ("clocks/s (median)", "lowest", "highest", "share of bare"):
        table.add_column(title, justify="right")
    table.add_column("note")
    shares = ratios(engines)
    for engine in engines:
        share = shares.get(f"{engine.name}_over_bare")
        numbers = (
            engine.clocks_per_second,
            min(engine.samples, default=None),
            max(engine.samples, default=None),
        )
        table.add_row(
            engine.title,
            *("-" if number is None else f"{number:,.0f}" for number in numbers),
            "-" if share is None else f"{share:.3g}",
            engine.note,
        )
    return table
