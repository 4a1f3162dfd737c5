"""A conversation played on a `LinkBench` by bare C++."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pequin.errors import ToolError
from pequin.export import Design
from pequin_sim.bench.speed import library_path
from pequin_sim.images import write_image
from pequin_sim.protocol import LinkScript, Recorded, read_records
from pequin_sim.rtl.payloads import Words
from pequin_sim.runner import build as build_module
from pequin_sim.runner.cache import cache_root


@dataclass(frozen=True)
class BareRun:
    """What such a run left.

    Parameters
    ----------
    records
        Packets from the tile.
    clocks
        From reset to the last packet.
    seconds
        What they took.
    """

    records: list[Recorded]
    clocks: int
    seconds: float


def build_bare_link(design: Design, *, quiet: bool = True) -> Path:
    """Return the program that plays packets on a `LinkBench`; the build cache keeps it.

    `quiet=False` shows that something is being built.
    """
    text = (resources.files("pequin_sim") / "bench" / "link.cpp").read_text(encoding="utf-8")
    built = build_module.build_verilator(
        design, public=(), trace=None, build_args=(), root=cache_root(), quiet=quiet, main=text
    )
    return built.directory / design.top


def run_bare_link(
    design: Design,
    script: LinkScript,
    *,
    images: Mapping[str, Words] | None = None,
    timeout_clocks: int = 1_000_000,
) -> BareRun:
    """Play a script to its end.

    Parameters
    ----------
    design
        The bench.
    script
        What the host sends.
    images
        Memories to load, by the name of their RAM: uint8 [words, bytes].
    timeout_clocks
        Clocks after which the run counts as hung.

    Raises
    ------
    ToolError
        The script did not come to its end.
    """
    program = build_bare_link(design)
    with tempfile.TemporaryDirectory(prefix="pequin-bare-") as directory:
        folder = Path(directory)
        script.write(folder / "play")
        words = [f"+link.load={folder / 'play'}", f"+link.dump={folder / 'record'}"]
        words.append(f"+clocks={timeout_clocks}")
        for name, content in (images or {}).items():
            write_image(folder / f"{name}.image", content)
            words.append(f"+{name}.load={folder / name}.image")
        done = subprocess.run(
            [str(program), *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LD_LIBRARY_PATH": library_path()},
        )
        records = [found for found, _ in read_records((folder / "record").read_bytes())]
    if done.returncode:
        raise ToolError(
            f"{design.top} played by C++ was not done after {timeout_clocks} clocks: "
            f"{len(records)} of {script.expected} packets came {done.stderr.strip()}".rstrip()
        )
    clocks, seconds = done.stdout.split()[-2:]
    return BareRun(records, int(clocks), float(seconds))
