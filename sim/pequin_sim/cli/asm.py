"""`pequin asm`: source text to a program image."""

from __future__ import annotations

from pathlib import Path

import click

from pequin.config import PRESETS, TileConfig
from pequin.errors import InputError
from pequin_sim.isa import assemble, listing
from pequin_sim.outputs import check_writable, write_atomic


def read_text(path: Path) -> str:
    """Return a source file's text.

    Raises
    ------
    InputError
        It cannot be read or is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None


@click.command("asm", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Program image. Default: FILE with the suffix .bin, none with --listing.",
    metavar="OUT",
)
@click.option("--listing", "as_listing", is_flag=True, help="Print addresses, words and source.")
@click.option("--no-check", is_flag=True, help="Assemble also what is certain to deadlock.")
@click.option("--preset", default="ref", show_default=True, help=f"One of {', '.join(PRESETS)}.")
def command(file: Path, output: Path | None, as_listing: bool, no_check: bool, preset: str) -> None:
    """Assemble a program.

    The image has 8 bytes for each instruction, little endian. Programs that can be seen to
    deadlock or to break the rules of semaphores, and those that do not fit the preset's program
    memory, are refused.
    """
    size = TileConfig.preset(preset).program_words
    if output is None and not as_listing:
        output = file.with_suffix(".bin")
        if output == file:
            raise InputError(f"{file} would be overwritten by its image: name one with -o")
    if output is not None:
        check_writable(output)
    program = assemble(read_text(file), str(file), check=not no_check)
    if len(program) > size:
        raise InputError(
            f"{file}: {len(program)} instructions do not fit the program memory of {preset}, "
            f"which has {size}"
        )
    if output is not None:
        write_atomic(output, program.to_bytes())
        click.echo(f"wrote {output}: {len(program)} instructions", err=True)
    if as_listing:
        click.echo(listing(program), nl=False)
