"""`pequin bench`: benchmarks."""

from __future__ import annotations

import dataclasses
import json
import platform

import click
from rich.console import Console
from rich.table import Table

from pequin.config import PRESETS, TileConfig, TileParams
from pequin.errors import InputError
from pequin.tops import TOPS, build_top
from pequin_sim.bench.layer import CASES, LayerResult, measure_layer
from pequin_sim.bench.speed import REPEATS, TITLES, Engine, SpeedBench, ratios
from pequin_sim.bench.tile import CASES as TILE_CASES
from pequin_sim.bench.tile import TARGET, TileSpeedBench, converse
from pequin_sim.runner.progress import spinner
from pequin_sim.scale import scale_statement

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group("bench", context_settings=_SETTINGS)
def command() -> None:
    """Measure simulation speed, and how busy a decoder layer keeps HBM."""


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
        Console().print(_table(f"Simulation speed of {top}, preset {preset}", measured))


@command.command("tile", context_settings=_SETTINGS)
@click.option(
    "--case", "name", default="hidden-512", show_default=True, type=click.Choice(list(TILE_CASES)),
    help="The decoder: two layers of this hidden size.",
)  # fmt: skip
@click.option("--preset", default="ref", show_default=True, help=f"One of {', '.join(PRESETS)}.")
@click.option(
    "--repeats", default=REPEATS, show_default=True, type=click.IntRange(min=1),
    help="Runs of each engine that count; the median is taken.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tile(name: str, preset: str, repeats: int, as_json: bool) -> None:
    """Compare the simulation speed of the tile under cocotb with bare C++, driven by packets.

    A host decodes some tokens through the link: bare C++ and cocotb play the same packets from a
    file, and a host in Python makes them in cocotb. All take turns on the same model. Only the
    ratios mean anything on another machine.
    """
    case, params = TILE_CASES[name], TileParams(TileConfig.preset(preset))
    measured = TileSpeedBench(params, converse(case, params), repeats=repeats).run()
    if as_json:
        report = {
            "preset": preset,
            "case": name,
            "shape": dataclasses.asdict(case.shape),
            "positions": case.positions,
            "machine": platform.machine(),
            **measured.describe(),
        }
        click.echo(json.dumps(report, indent=2))
    else:
        console = Console(highlight=False)
        title = f"Simulation speed of the tile, preset {preset}, decoding {name}"
        console.print(_table(title, measured.engines))
        console.print(
            f"share of bare: at least {TARGET} wanted; results "
            f"{'equal' if measured.match else 'DIFFER'}: {'pass' if measured.passed else 'FAIL'}"
        )
    if not measured.passed:
        raise click.exceptions.Exit(1)


@command.command("layer", context_settings=_SETTINGS)
@click.option(
    "--case", "names", multiple=True,
    help="Measure only the layers whose name has this text; may be repeated.",
)  # fmt: skip
@click.option("--preset", default="ref", show_default=True, help=f"One of {', '.join(PRESETS)}.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def layer(names: tuple[str, ...], preset: str, as_json: bool) -> None:
    """Measure in RTL which share of a decoder layer's clocks the HBM data bus is busy.

    A layer is the difference of two runs, one with a layer more. Busy counts the beats of weights
    and their scales; they must be as many as the closed form says, and everything that the
    program writes must equal the golden machine's.
    """
    config = TileConfig.preset(preset)
    TileParams(config)
    cases = [case for case in CASES if not names or any(name in case.name for name in names)]
    if not cases:
        raise InputError(f"no layer is called {names}; there are: {[c.name for c in CASES]}")
    results = []
    for case in cases:
        with spinner(f"measuring {case.name}", quiet=as_json):
            results.append(measure_layer(case, config))
    if as_json:
        report = {
            "preset": preset,
            "scale": dataclasses.asdict(scale_statement(TileParams(config))),
            "layers": [r.describe() for r in results],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        console = Console()
        console.print(_layer_table(preset, results))
        console.print(scale_statement(TileParams(config)).sentence(), highlight=False)
    if not all(result.passed for result in results):
        raise click.exceptions.Exit(1)


def _layer_table(preset: str, results: list[LayerResult]) -> Table:
    table = Table(title=f"A decoder layer on one tile, batch 1, preset {preset}")
    for name in ("layer", "clocks", "HBM beats", "busy", "target", "bound", "MAC", "vector", "HBM"):
        table.add_column(name, justify="left" if name == "layer" else "right")
    for result in results:
        table.add_row(
            result.case.name,
            f"{result.clocks:,}",
            f"{result.beats:,}" + ("" if result.beats == result.expected_beats else " (!)"),
            f"{result.busy:.1%}",
            f"{result.case.target:.0%}",
            f"{result.bound:.1%}",
            *(_shares(result, group) for group in ("mac", "vector", "hbm.clocks")),
        )
    return table


def _shares(result: LayerResult, group: str) -> str:
    """Return the causes of a group that took at least a thousandth of the clocks."""
    causes = result.causes[group].items()
    shown = [(n, c) for n, c in causes if c >= max(1, result.clocks // 1000)]
    return "\n".join(f"{n} {c / result.clocks:.1%}" for n, c in shown)


def _table(title: str, engines: list[Engine]) -> Table:
    table = Table(title=title)
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
