"""`pequin matmul`: a user's own matrices on the simulated MAC array."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pequin.config import PRESETS, TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim import toolchain
from pequin_sim.matmul import STALLS, Counted, Product, complete_waves, multiply
from pequin_sim.matrices import Matrix, check_shape, generate, load_matrix, parse_shape
from pequin_sim.mx import Format, ScaleRule
from pequin_sim.mx.tensor import check_planes
from pequin_sim.outputs import check_writable, write_atomic
from pequin_sim.rtl.mac import mac_bench
from pequin_sim.scale import scale_statement

WAVE_CLOCKS = 5000
"""Clocks in a waveform file unless a window is given: a long one of a large array is huge."""

_LINE_SECONDS = 10

_FILE = click.Path(path_type=Path)
_FORMATS = click.Choice([fmt.value for fmt in Format])
_RULES = click.Choice([rule.value for rule in ScaleRule])


@click.command("matmul", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("w", type=_FILE, required=False, metavar="W.npy")
@click.argument("x", type=_FILE, required=False, metavar="X.npy")
@click.option("--generate", "generated", metavar="NxKxC", help="Random matrices instead of files.")
@click.option("--seed", default=1, show_default=True, help="Seed of --generate.")
@click.option(
    "--format", "fmt", type=_FORMATS, default="mxfp4", show_default=True, help="Storage of W."
)
@click.option(
    "--planes", type=click.Choice(["1", "2"]), default="1", show_default=True,
    help="MXFP4 planes of W: 2 adds a plane that quantizes what the first leaves.",
)  # fmt: skip
@click.option(
    "--scale-rule", type=_RULES, default="floor", show_default=True,
    help="How the scales of W's blocks are chosen.",
)  # fmt: skip
@click.option("--preset", default="ref", show_default=True, help=f"One of {', '.join(PRESETS)}.")
@click.option(
    "--backend", type=click.Choice(["rtl", "golden"]), default="rtl", show_default=True,
    help="Simulate the RTL and compare, or compute with the golden model alone.",
)  # fmt: skip
@click.option(
    "--paired/--unpaired", default=None,
    help="Two columns per vector and two beats per clock, or one of each.  "
    "[default: paired when all vectors fit half of the columns]",
)  # fmt: skip
@click.option(
    "--waves", type=click.Choice(["none", "vcd", "fst"]), default="none", show_default=True,
    help="Write a waveform file of the first run.",
)  # fmt: skip
@click.option(
    "--wave-file", type=_FILE, metavar="FILE", help="Its name.  [default: matmul.vcd or .fst]"
)
@click.option(
    "--wave-window", metavar="A:B",
    help=f"Write the clocks from A to B; either may be left out.  [default: 0:{WAVE_CLOCKS}]",
)  # fmt: skip
@click.option("-o", "--output", type=_FILE, metavar="Y.npy", help="Write Y, float32 N x C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout and nothing else.")
def command(
    w: Path | None,
    x: Path | None,
    generated: str | None,
    seed: int,
    fmt: str,
    planes: str,
    scale_rule: str,
    preset: str,
    backend: str,
    paired: bool | None,
    waves: str,
    wave_file: Path | None,
    wave_window: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Multiply two matrices on the simulated MAC array: Y = W X^T.

    W.npy is N x K (a weight matrix, one row per output) and X.npy is C x K (one row per vector).
    W is quantized to --format, X to MXINT8; both stream through the array in RTL simulation; every
    result is compared, bit for bit, with the golden model. Y is N x C. The exit code is 0 only
    when everything agrees; Y is not written otherwise.
    """
    params = TileParams(TileConfig.preset(preset))
    wave_path, window = _wave_request(waves, wave_file, wave_window, backend)
    _check_outputs(output, wave_path, [path for path in (w, x) if path is not None])
    if backend == "rtl":
        _check_tools(waves)
    weights, acts = _operands(w, x, generated, seed, params.config)
    check_planes(Format.parse(fmt), int(planes))
    design = mac_bench(params) if backend == "rtl" else None
    with complete_waves(wave_path, window) as request, _progress() as report:
        product = multiply(
            params,
            weights,
            acts,
            fmt=fmt,
            planes=int(planes),
            scale_rule=scale_rule,
            paired=paired,
            design=design,
            waves=request,
            progress=report,
        )
    matched = product.golden_match is not False
    if matched and output is not None:
        write_atomic(output, _npy(product.values))
    facts = {
        "preset": preset,
        "backend": backend,
        "format": fmt,
        "planes": int(planes),
        "scale_rule": scale_rule,
        "rows": weights.shape[0],
        "k": weights.shape[1],
        "vectors": acts.shape[0],
        **_facts(product, params),
        "output": str(output) if matched and output is not None else None,
        "waves": str(wave_path) if wave_path is not None else None,
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _print(product, facts, params)
    if not matched:
        click.echo(f"pequin: error: RTL and golden model differ: {product.difference}", err=True)
        sys.exit(1)


def _wave_request(
    waves: str, path: Path | None, window: str | None, backend: str
) -> tuple[Path | None, tuple[int, int | None]]:
    """Return where a waveform goes, None for nowhere, and its window (clocks)."""
    if waves == "none":
        if path is not None or window is not None:
            raise InputError("--wave-file and --wave-window need --waves vcd or --waves fst")
        return None, (0, None)
    if backend == "golden":
        raise InputError("--waves needs --backend rtl: the golden model has no clocks")
    path = path or Path(f"matmul.{waves}")
    if path.suffix != f".{waves}":
        raise InputError(f"--waves {waves} writes a file that ends in .{waves}, not {path}")
    first, colon, last = (window or f"0:{WAVE_CLOCKS}").partition(":")
    if not colon or not all(not s or (s.isascii() and s.isdigit()) for s in (first, last)):
        raise InputError(f"--wave-window is A:B in clocks, such as 1000:2000, not {window!r}")
    start, stop = int(first or 0), int(last) if last else None
    if stop is not None and stop <= start:
        raise InputError(f"--wave-window {window} must end after it starts")
    return path, (start, stop)


def _check_outputs(output: Path | None, waves: Path | None, inputs: list[Path]) -> None:
    """Check before any work that results can be written, and not over something else."""
    for path in (output, waves):
        if path is None:
            continue
        check_writable(path)
        for given in inputs:
            if given.exists() and path.exists() and path.samefile(given):
                raise InputError(f"cannot write {path}: it is the input {given}")


def _check_tools(waves: str) -> None:
    """Raise `ToolError` before any work when the simulation could not be built."""
    toolchain.find_verilator()
    toolchain.find_build_tools()
    if waves == "fst":
        toolchain.require_fst_headers()


def _operands(
    w: Path | None, x: Path | None, generated: str | None, seed: int, config: TileConfig
) -> tuple[Matrix, Matrix]:
    if generated is not None:
        if w is not None or x is not None:
            raise InputError("give W.npy and X.npy, or --generate NxKxC, not both")
        if seed < 0:
            raise InputError(f"--seed must be 0 or more, not {seed}")
        rows, k, vectors = parse_shape(generated)
        check_shape((rows, k), (vectors, k), config)
        return generate(rows, k, vectors, seed)
    if w is None or x is None:
        raise InputError("give two files, W.npy (N x K) and X.npy (C x K), or --generate NxKxC")
    weights, acts = load_matrix(w), load_matrix(x)
    check_shape(weights.shape, acts.shape, config, names=(str(w), str(x)))
    return weights, acts


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show the simulation runs on stderr: a bar on a terminal, else a line every 10 s."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as p:
        task = p.add_task("simulation runs", total=None)
        last = time.monotonic()

        def report(done: int, total: int) -> None:
            nonlocal last
            p.update(task, completed=done, total=total)
            if not console.is_terminal and time.monotonic() - last >= _LINE_SECONDS:
                last = time.monotonic()
                console.print(f"simulation run {done} of {total} ...", highlight=False)

        yield report


def _npy(values: Matrix) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()


def _facts(product: Product, params: TileParams) -> dict[str, Any]:
    """Return what was found, as plain data; what needs a simulation is None without one."""
    counted, scale = product.counted, scale_statement(params)
    return {
        "paired": product.plan.paired,
        "runs": len(product.plan.parts),
        "golden_match": product.golden_match,
        "difference": product.difference,
        **_clock_facts(counted),
        "payload_beats_closed_form": product.plan.beats.payload,
        "scale_beats_closed_form": product.plan.beats.scale,
        "beats_per_clock_limit": product.plan.rate,
        "beat_rate_share": product.beat_share,
        "max_abs_error": product.error.max_abs,
        "rms_error": product.error.rms,
        "relative_error": product.error.relative,
        "flags": product.flags,
        "rounded_to_zero": product.zeros,
        "clock_ghz": params.config.clock_ghz,
        "columns": params.config.columns,
        "macs_per_clock": scale.macs_per_clock,
        "mac_scale_factor": round(scale.mac_factor, 3),
        "hbm_gb_per_s": scale.hbm_gb_per_s,
    }


def _clock_facts(counted: Counted | None) -> dict[str, Any]:
    if counted is None:
        names = ("clocks", "stall_clocks", "stalls", "busy_clocks", "idle_clocks", "payload_beats")
        return dict.fromkeys(names)
    return {
        "clocks": counted.clocks,
        "stall_clocks": counted.stall_clocks,
        "stalls": counted.stalls,
        "busy_clocks": counted.busy,
        "idle_clocks": counted.idle,
        "payload_beats": counted.payload_beats,
        "build_seconds": round(counted.build_seconds, 3),
        "simulation_seconds": round(counted.simulation_seconds, 3),
    }


_STALL_TEXT = {
    "scale": "scale beats",
    "weights": "waiting for weights",
    "output": "waiting for the drain",
}


def _print(product: Product, facts: dict[str, Any], params: TileParams) -> None:
    """Print the report for people."""
    console = Console(highlight=False)
    pairing = "paired" if product.plan.paired else "unpaired"
    console.print(
        f"Y = W X^T: W {facts['rows']} x {facts['k']} {facts['format']}"
        f"{' in two planes' if facts['planes'] == 2 else ''} ({facts['scale_rule']} scales), "
        f"X {facts['vectors']} x {facts['k']} mxint8; preset {facts['preset']}"
        + (f", {pairing}, {_plural(facts['runs'], 'run')}" if product.counted is not None else ""),
        soft_wrap=True,
    )
    if product.counted is not None:
        console.print(_clock_table(product, product.counted, params))
    console.print(_result_table(product, params))
    if any(product.flags.values()):
        console.print(
            f"Warning: results were clamped or are not numbers: {product.flags}", soft_wrap=True
        )
    for what in ("output", "waves"):
        if facts[what] is not None:
            console.print(f"wrote {facts[what]}", soft_wrap=True)


def _clock_table(product: Product, counted: Counted, params: TileParams) -> Table:
    """Return the clocks by cause and the beats beside their closed form (measured in RTL)."""
    table = Table("clocks, by the RTL's counters", "clocks", "share", "beats", "closed form")
    for column in table.columns[1:]:
        column.justify = "right"
    beats = product.plan.beats

    def add(name: str, clocks: int, *more: str) -> None:
        table.add_row(name, f"{clocks:,}", f"{clocks / counted.clocks:.2%}", *more)

    add("payload beats", counted.busy, f"{counted.payload_beats:,}", f"{beats.payload:,}")
    for cause in STALLS:
        more = (f"{counted.stalls[cause]:,}", f"{beats.scale:,}") if cause == "scale" else ()
        add(_STALL_TEXT[cause], counted.stalls[cause], *more)
    add("pipeline fills and empties", counted.idle)
    table.add_section()
    total = beats.payload + beats.scale
    taken = counted.payload_beats + counted.stalls["scale"]
    add("total", counted.clocks, f"{taken:,}", f"{total:,}")
    nanoseconds = counted.clocks / params.config.clock_ghz
    table.caption = (
        f"{nanoseconds / 1000:,.2f} us at {params.config.clock_ghz:g} GHz; payload at "
        f"{product.beat_share:.1%} of {_plural(product.plan.rate, 'beat')} per clock"
    )
    return table


def _result_table(product: Product, params: TileParams) -> Table:
    table = Table(show_header=False)
    count, error = product.values.size, product.error
    verdict = {
        True: f"equal bit for bit: {count:,} values and flags, status, beats",
        False: f"[bold red]DIFFERENT[/]: {product.difference}",
        None: "used alone: nothing was simulated",
    }
    relative = "" if error.relative is None else f", {error.relative:.3g} of the rms of Y"
    table.add_row("golden model", verdict[product.golden_match])
    table.add_row(
        "error against float64", f"max {error.max_abs:.4g}, rms {error.rms:.4g}{relative}"
    )
    table.add_row("rounded to zero", f"{_plural(product.zeros, 'block sum')}")
    table.add_row("scale", scale_statement(params).sentence())
    return table


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
