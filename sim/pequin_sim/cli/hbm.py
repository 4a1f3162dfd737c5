"""`pequin hbm`: timings, characterization, and traces of the HBM channel."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from pequin.errors import InputError
from pequin.hbm.config import ADDRESS_MAPS, HbmConfig
from pequin.hbm.timing import TIMINGS, HbmGeometry, HbmTiming

MIB = 1 << 20
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


@click.command("hbm", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--show", is_flag=True, help="Print the timings of --timing in ns and clocks.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Play a trace: `R 0xADDR` or `W 0xADDR` a line, earliest clock optional.",
)
@click.option(
    "--timing",
    default="hbm4-10g",
    show_default=True,
    help=f"For --show and --trace: one of {', '.join(TIMINGS)}.",
)
@click.option(
    "--refresh",
    default="per-bank",
    show_default=True,
    type=click.Choice(("none", "all", "per-bank")),
    help="For --trace.",
)
@click.option(
    "--outstanding",
    default=64,
    show_default=True,
    type=click.IntRange(1, 8192),
    help="For --trace: requests in flight.",
)
@click.option(
    "--store-mib",
    default=64,
    show_default=True,
    type=click.IntRange(1, 576),
    help="For --trace: backing store (MiB).",
)
@click.option(
    "--path-ns",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    help="For --trace: extra latency of PHY and wires (ns).",
)
@click.option(
    "--map",
    "address_map",
    default="stream-xor",
    show_default=True,
    type=click.Choice(ADDRESS_MAPS),
    help="For --trace: the address map.",
)
@click.option(
    "--pattern",
    "names",
    multiple=True,
    metavar="NAME",
    help="Run only these patterns (may be repeated).",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the bandwidth chart and the latency-versus-load curve, PNG and SVG.",
)
@click.option("--monitor", is_flag=True, help="Check every command against the timings as well.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON only.")
def command(
    show: bool,
    trace: Path | None,
    timing: str,
    refresh: str,
    outstanding: int,
    store_mib: int,
    path_ns: float,
    address_map: str,
    names: tuple[str, ...],
    plots: Path | None,
    monitor: bool,
    as_json: bool,
) -> None:
    """Measure the HBM channel in RTL simulation.

    Without --show or --trace, run the characterization: every pattern's share of peak bandwidth
    beside its closed form or the value of an independent simulator, and idle latencies. The exit
    code is 1 when a pattern misses what it needs.
    """
    config = HbmConfig(
        timing=HbmTiming.preset(timing),
        geometry=HbmGeometry(store_bytes=store_mib * MIB),
        path_ns=path_ns,
        address_map=address_map,
        test_rules=True,
    )
    if show:
        _show(config, as_json)
    elif trace is not None:
        _trace(trace, config, refresh, outstanding, as_json)
    else:
        _characterize(names, plots, monitor, as_json)


def _show(config: HbmConfig, as_json: bool) -> None:
    from pequin_sim.hbm.report import timing_json, timing_table

    if as_json:
        click.echo(json.dumps(timing_json(config.timing, config), indent=2))
        return
    geometry = config.geometry
    _print(timing_table(config.timing))
    click.echo(
        f"Geometry: {geometry.banks} banks in {geometry.groups} groups, {geometry.rows} rows of "
        f"{geometry.columns} beats: {geometry.capacity_bytes // MIB} MiB, of which "
        f"{geometry.store_bytes // MIB} MiB are stored. Address map: {config.address_map}. "
        f"Extra path latency: {config.path_clocks} clocks."
    )


def _trace(path: Path, config: HbmConfig, refresh: str, outstanding: int, as_json: bool) -> None:
    from pequin_sim.hbm.play import PlayOptions
    from pequin_sim.hbm.report import trace_table
    from pequin_sim.hbm.trace import run_trace

    mode = "all-bank" if refresh == "all" else refresh
    options = PlayOptions(refresh=mode, outstanding=outstanding, hang=2_000_000_000)
    summary = {"refresh": refresh, **run_trace(path, config, options)}
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _print(trace_table(f"{path.name}, refresh {refresh}", summary))


def _characterize(names: tuple[str, ...], plots: Path | None, monitor: bool, as_json: bool) -> None:
    from pequin_sim.hbm import characterize
    from pequin_sim.hbm.report import latency_table, pattern_table

    patterns = characterize.all_patterns()
    known = [pattern.name for pattern in patterns]
    for name in names:
        if name not in known:
            raise InputError(f"pattern {name!r} is unknown; choose from {', '.join(known)}")
    if plots is not None:
        _make_directory(plots)
    chosen = [pattern for pattern in patterns if not names or pattern.name in names]
    lines = []
    for number, pattern in enumerate(chosen, 1):
        click.echo(f"[{number}/{len(chosen)}] {pattern.name} ({pattern.timing})", err=True)
        lines.append(characterize.run_pattern(pattern, monitor=monitor))
    latencies = []
    if not names:
        click.echo("idle latencies", err=True)
        for timing in ("hbm4-10g", "hbm4-8g"):
            latencies += characterize.measure_latency(timing)
    points = []
    if plots is not None:
        click.echo("latency against load", err=True)
        points = list(characterize.load_curve("hbm4-10g", LOADS))
    if as_json:
        report: dict[str, Any] = {
            "patterns": [line.to_json() for line in lines],
            "latencies": [line.to_json() for line in latencies],
            "load": [dataclasses.asdict(point) for point in points],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        _print(pattern_table(lines))
        if latencies:
            _print(latency_table(latencies))
    if plots is not None:
        from pequin_sim.hbm import plots as draw

        files = [
            *draw.bandwidth_chart(lines, plots),
            *draw.latency_chart(points, "hbm4-10g", plots),
        ]
        for file in files:
            click.echo(f"wrote {file}", err=True)
    failed = [line.pattern.name for line in lines if line.passed is False]
    failed += [f"latency {x.state} ({x.timing})" for x in latencies if not x.passed]
    if failed:
        click.echo(f"missed: {', '.join(failed)}", err=True)
        raise SystemExit(1)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory} cannot be made: {error.strerror}") from error


def _print(item: Any) -> None:
    from rich.console import Console

    console = Console()
    console.print(item, soft_wrap=not console.is_terminal)
