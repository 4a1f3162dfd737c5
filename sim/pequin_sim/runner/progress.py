"""A sign of life on stderr while something slow runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextlib.contextmanager
def spinner(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show `text` and the elapsed time on stderr until the block ends.

    Where stderr is not a terminal one plain line is written instead.
    """
    console = Console(stderr=True)
    if quiet:
        yield
    elif not console.is_terminal:
        console.print(f"{text} ...", highlight=False, soft_wrap=True)
        yield
    else:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            progress.add_task(text, total=None)
            yield
