"""Running a slow tool: its progress on stderr, its log in a file, its errors in one line."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pequin.errors import ToolError

_LAST_LINES = 200


@contextlib.contextmanager
def stages(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show `text`, the stage a tool is in, and the elapsed time on stderr.

    Yields a function that takes the name of the stage that begins. Where stderr is not a
    terminal, the start and the end get a line each.
    """
    console = Console(stderr=True)
    if quiet:
        yield lambda stage: None
    elif not console.is_terminal:
        start = time.monotonic()
        console.print(f"{escape(text)} ...", highlight=False, soft_wrap=True)
        yield lambda stage: None
        seconds = time.monotonic() - start
        console.print(f"{escape(text)}: {seconds:.0f} s", highlight=False, soft_wrap=True)
    else:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(escape(text), total=None)
            yield lambda stage: progress.update(
                task, description=f"{escape(text)}: {escape(stage)}"
            )


def run_logged(
    command: Sequence[str | Path],
    *,
    directory: Path,
    log: Path,
    timeout: float,
    on_line: Callable[[str], None] = lambda line: None,
) -> None:
    """Run a program, write what it says to `log`, and hand each line to `on_line`.

    Parameters
    ----------
    command
        Program and arguments.
    directory
        Where it runs.
    log
        File for its output and its errors.
    timeout
        Seconds after which it is stopped.
    on_line
        Called with each line, without its end.

    Raises
    ------
    ToolError
        It cannot be started, fails, or takes too long. The message has the line that tells why.
    """
    words = [str(word) for word in command]
    name = Path(words[0]).name
    last: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        process = subprocess.Popen(
            words,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ToolError(f"{name} cannot be started: {error.strerror}") from error
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout, stop)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None
        with log.open("w", encoding="utf-8") as record:
            for line in process.stdout:
                record.write(line)
                last.append(line.rstrip("\n"))
                on_line(last[-1])
        code = process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if late.is_set():
        raise ToolError(f"{name} did not finish in {timeout:g} s; allow more with --timeout")
    if code:
        raise ToolError(f"{name} failed with code {code}: {_reason(last)}")


def _reason(lines: Sequence[str]) -> str:
    """Return the line that names the error, else the last one that says something."""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if re.search(r"\berror:", line, re.IGNORECASE)]
    return errors[0] if errors else (said or ["no message"])[-1]
