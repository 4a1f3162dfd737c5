"""`pequin disasm`: a program image as source text."""

from __future__ import annotations

from pathlib import Path

import click

from pequin.errors import InputError
from pequin_sim.isa import Program, disassemble, listing


@click.command("disasm", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--listing", "as_listing", is_flag=True, help="Print addresses and words as well.")
def command(file: Path, as_listing: bool) -> None:
    """Print a program image as source text that assembles to the same bytes."""
    try:
        image = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    try:
        program = Program.from_bytes(image)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    click.echo(listing(program) if as_listing else disassemble(program), nl=False)
