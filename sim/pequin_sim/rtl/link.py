"""Simulations with a host at a link: the files of the mailbox, and what was recorded."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pequin.config import TileParams
from pequin.export import Design
from pequin.harness.link_bench import LinkBench
from pequin.harness.tile_stub import StubTile
from pequin.host import HostPort
from pequin_sim.images import write_image
from pequin_sim.protocol import LinkScript, Recorded, read_records
from pequin_sim.rtl.bench import Pauses
from pequin_sim.rtl.designs import cached_design
from pequin_sim.rtl.payloads import Words
from pequin_sim.runner import SimResult, Waves, simulate

PLAY_SCRIPT = "pequin_tb.host.play"
"""The testbench that waits until a file has been played."""


@dataclass(frozen=True)
class LinkRun:
    """What a simulation with a link left.

    Parameters
    ----------
    records
        Packets from the tile.
    simulation
        Result, times and log of the simulation.
    """

    records: list[Recorded]
    simulation: SimResult


def host_bench(params: TileParams, *, cache_dir: Path | None = None) -> Design:
    """Return the host port with a stub behind it and a mailbox before it, as Verilog."""

    def build() -> LinkBench:
        return LinkBench(StubTile(HostPort(params)))

    return cached_design("host_bench", params, build, cache_dir=cache_dir)


def run_link(
    design: Design,
    *,
    script: LinkScript | None = None,
    test_module: str = PLAY_SCRIPT,
    job: Mapping[str, Any] | None = None,
    pauses: Mapping[str, Pauses] | None = None,
    images: Mapping[str, Words] | None = None,
    timeout_clocks: int = 1_000_000,
    waves: Waves | None = None,
    **options: Any,
) -> LinkRun:
    """Simulate a `LinkBench`.

    Parameters
    ----------
    design
        The bench.
    script
        A conversation to play without Python; None lets the testbench drive the link.
    test_module
        The testbench.
    job
        More for the testbench: it gets `link` (the files), `pauses` and `timeout_clocks`.
    pauses
        By port without its `_pauses`: `rx`, `tx`.
    images
        Memories to load, by the name of their RAM: uint8 [words, bytes].
    timeout_clocks
        Clocks after which the run counts as hung.
    waves
        Waveform request.
    options
        For `pequin_sim.runner.simulate`.
    """
    folder = Path(tempfile.mkdtemp(prefix="pequin-link-"))
    try:
        play, record = folder / "play", folder / "record"
        if script is None:
            play.touch()
        else:
            script.write(play)
        plusargs = [f"+link.load={play}", f"+link.dump={record}"]
        if script is None:
            plusargs.append("+link.live=1")
        for name, words in (images or {}).items():
            write_image(folder / f"{name}.image", words)
            plusargs.append(f"+{name}.load={folder / name}.image")
        order = {
            **(job or {}),
            "link": {"play": str(play), "record": str(record)},
            "pauses": {name: value.packed() for name, value in (pauses or {}).items()},
            "timeout_clocks": timeout_clocks,
        }
        simulation = simulate(
            design,
            test_module=test_module,
            job=order,
            plusargs=plusargs,
            waves=waves,
            **options,
        )
        records = [found for found, _ in read_records(record.read_bytes())]
        return LinkRun(records, simulation)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
