"""The whole tile behind its link in RTL simulation: packets in, packets out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pequin.config import TileParams
from pequin.export import Design
from pequin.harness.link_bench import LinkBench
from pequin.tile.tile import Tile
from pequin_sim.machine import Step
from pequin_sim.protocol import Column, Credit, Hello, LinkScript, MemoryId, Start, Write
from pequin_sim.protocol import Step as StepPacket
from pequin_sim.protocol.packets import MAX_BEATS
from pequin_sim.rtl.designs import cached_design

UNLIMITED = 1 << 30
"""Credit of a script: more bytes than a conversation has."""


def tile_link_bench(params: TileParams, *, cache_dir: Path | None = None) -> Design:
    """Return the tile with a mailbox at its link, as Verilog."""

    def build() -> LinkBench:
        return LinkBench(Tile(params, hbm_pauses=True))

    return cached_design("tile_link_bench", params, build, cache_dir=cache_dir)


def program_beats(program: Sequence[int] | npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return a program as the tile's memory holds it, uint8 [beats, 32]: 4 instructions a beat."""
    words = np.asarray(program, np.uint64)
    padded = np.zeros(-(-len(words) // 4) * 4, "<u8")
    padded[: len(words)] = words
    return padded.view(np.uint8).reshape(-1, 32)


def decode_script(
    program: npt.NDArray[np.uint64], steps: Sequence[Step], events: Sequence[int]
) -> LinkScript:
    """Return the packets that load a program, start it, and step it.

    Parameters
    ----------
    program
        Instructions.
    steps
        STEPs; each is sent when the events of the one before have come.
    events
        Events of each step.
    """
    script = LinkScript()
    script.add(Hello(credit=UNLIMITED))
    beats = program_beats(program)
    for at in range(0, len(beats), MAX_BEATS):
        part = beats[at : at + MAX_BEATS].tobytes()
        script.add(Write(memory=MemoryId.PROGRAM, address=at, data=part))
    script.wait()
    script.add(Start(pc=0))
    for step, count in zip(steps, events, strict=True):
        script.wait()
        script.add(StepPacket(columns=tuple(Column(**column._asdict()) for column in step.columns)))
        script.expect(count)
    script.wait()
    script.add(Credit(total=UNLIMITED))
    return script
