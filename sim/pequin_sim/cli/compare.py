"""`pequin compare`: a program on the RTL and on the golden machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console

from pequin.config import PRESETS, TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.isa import Program, assemble
from pequin_sim.machine import Column, EventKind, Machine, Result, Step
from pequin_sim.model import Formats, ModelShape, quantize_model, random_model
from pequin_sim.rtl.bench import Pauses
from pequin_sim.runner.progress import spinner
from pequin_sim.tile.compare import Comparison, compare_tile
from pequin_sim.tile.decode import decode_greedily

_FILE = click.Path(path_type=Path)
_SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "vocab")


@click.command("compare", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("program", type=_FILE, required=False, metavar="[PROGRAM]")
@click.option("--hbm", type=_FILE, metavar="FILE", help="HBM from beat 0 on, 32 bytes a beat.")
@click.option(
    "--steps", type=_FILE, metavar="FILE.json",
    help="STEPs of the host: a list of steps, each a list of columns, each an object with some of "
    "slot, token, position, start, flags, kv_base.",
)  # fmt: skip
@click.option(
    "--model", metavar="LxHxAxKxDxMxV",
    help="Instead of a program: a decoder with random weights of this many layers, hidden size, "
    "heads, KV heads, head size, MLP size, vocabulary.",
)  # fmt: skip
@click.option(
    "--formats", default="mxfp4", show_default=True,
    help="With --model: mxfp4, mxfp4x2, mxint8, and others for some matrices: mxfp4,head=mxint8.",
)  # fmt: skip
@click.option("--positions", default=4, show_default=True, help="With --model: tokens to decode.")
@click.option("--seed", default=1, show_default=True, help="With --model: of the weights.")
@click.option("--preset", default="ref", show_default=True, help=f"One of {', '.join(PRESETS)}.")
@click.option(
    "--pauses", default=0.0, show_default=True, type=click.FloatRange(0, 0.9),
    help="Share of clocks in which HBM's answers and the host's streams rest.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout and nothing else.")
def command(
    program: Path | None,
    hbm: Path | None,
    steps: Path | None,
    model: str | None,
    formats: str,
    positions: int,
    seed: int,
    preset: str,
    pauses: float,
    as_json: bool,
) -> None:
    """Run a program on the simulated tile and on the golden machine, and compare all they leave.

    PROGRAM is assembler text, or an image of `pequin asm`. Every event, vector memory, the scalar
    registers, the activation buffer and the KV buffer are compared; of a difference, the
    instruction that wrote it, its place and both values are told. The exit code is 0 only when
    everything is equal.
    """
    params = TileParams(TileConfig.preset(preset))
    if (program is None) == (model is None):
        raise InputError("give either a PROGRAM or --model")
    if model is not None:
        code, image, done, golden = _decode(params, model, formats, positions, seed)
    else:
        assert program is not None
        code, image, done = _load(params, program, hbm, steps)
        golden = Machine(params, image, code).run(done)
    job: dict[str, Any] = {}
    if pauses:
        rests = Pauses(rate=int(256 * pauses), burst_rate=16, burst_clocks=200, seed=seed + 1)
        job = {
            "hbm_pauses": rests,
            "pauses": {name: rests for name in ("steps", "control", "events")},
        }
    with spinner("simulating", quiet=as_json):
        result = compare_tile(params, code, image, done, golden=golden, job=job)
    if as_json:
        click.echo(json.dumps(_describe(result), indent=2))
    else:
        _print(result)
    if not result.match:
        raise click.exceptions.Exit(1)


def _decode(
    params: TileParams, model: str, formats: str, positions: int, seed: int
) -> tuple[Program, npt.NDArray[np.uint8], list[Step], Result]:
    """Decode greedily on the golden machine; return what it ran and what it left."""
    shape, chosen = _parse_shape(model), _parse_formats(formats)
    if positions < 1:
        raise InputError(f"--positions must be at least 1, not {positions}")
    compiled = compile_decoder(shape, params, Options(max_positions=positions, formats=chosen))
    image = compiled.image(quantize_model(random_model(shape, seed=seed), chosen))
    decoded = decode_greedily(params, compiled, image, first=1 % shape.vocab, positions=positions)
    return compiled.program, image, decoded.steps, decoded.result


def _parse_shape(text: str) -> ModelShape:
    numbers = text.split("x")
    if len(numbers) != len(_SHAPE) or not all(n.isdecimal() for n in numbers):
        raise InputError(
            f"--model wants {len(_SHAPE)} whole numbers joined by x ({', '.join(_SHAPE)}), for "
            f"example 2x512x8x2x64x1536x1000, not {text!r}"
        )
    sizes: dict[str, Any] = dict(zip(_SHAPE, map(int, numbers), strict=True))
    return ModelShape(**sizes)


def _parse_formats(text: str) -> Formats:
    default, *others = text.split(",")
    pairs = [other.partition("=") for other in others]
    if any(not mark for _, mark, _ in pairs):
        raise InputError(f"--formats wants a format and then matrix=format pairs, not {text!r}")
    return Formats.of(default, **{name: fmt for name, _, fmt in pairs})


def _load(
    params: TileParams, program: Path, hbm: Path | None, steps: Path | None
) -> tuple[Program, npt.NDArray[np.uint8], list[Step]]:
    data = _read(program)
    if program.suffix in (".asm", ".s"):
        code = assemble(data.decode("utf-8", errors="replace"), str(program))
    else:
        code = Program.from_bytes(data)
    image = np.zeros((1, 32), np.uint8)
    if hbm is not None:
        content = np.frombuffer(_read(hbm), np.uint8)
        image = np.zeros((max(1, -(-len(content) // 32)), 32), np.uint8)
        image.reshape(-1)[: len(content)] = content
    return code, image, _read_steps(steps) if steps is not None else []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _read_steps(path: Path) -> list[Step]:
    rule = (
        f"{path}: expected a list of steps, each a list of objects with some of "
        f"{', '.join(Column._fields)}"
    )
    try:
        content = json.loads(_read(path))
        return [Step([Column(**column) for column in columns]) for columns in content]
    except (TypeError, ValueError) as error:
        raise InputError(f"{rule} ({error})") from None


def _describe(result: Comparison) -> dict[str, Any]:
    return {
        "match": result.match,
        "clocks": result.rtl.clocks,
        "events": len(result.rtl.events),
        "compared": result.compared,
        "differing": result.differing,
        "first": str(result.first) if result.first else None,
        "event": result.event,
        "counters": result.rtl.counters,
    }


def _print(result: Comparison) -> None:
    console = Console(highlight=False, soft_wrap=True)
    tokens = [e.value for e in result.rtl.events if e.kind is EventKind.TOKEN and e.rank == 0]
    if tokens:
        console.print(f"tokens: {' '.join(map(str, tokens))}")
    for event in result.rtl.events:
        if event.kind is EventKind.ERROR:
            console.print(f"error {event.code} of {event.unit} at pc {event.pc}")
    console.print(f"{result.rtl.clocks} clocks, {result.rtl.counters['hbm.reads']} HBM beats read")
    console.print(result.report())
