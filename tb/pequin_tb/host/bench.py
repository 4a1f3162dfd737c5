"""Starting a `LinkBench`.

Job keys: `link` (the mailbox's files), `pauses` (by port, the packed `PauseControl`),
`timeout_clocks`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pequin_sim.protocol import HostSession
from pequin_tb.host.link import TileLink
from pequin_tb.job import load, reset, start_clock


async def start(dut: Any, **inputs: int) -> dict[str, Any]:
    """Start the clock, set the inputs, release the reset; return the job."""
    job = load()
    start_clock(dut)
    dut.posted.value = 0
    for name, value in inputs.items():
        getattr(dut, name).value = value
    for name in ("rx", "tx"):
        getattr(dut, f"{name}_pauses").value = 0
    for name, packed in job["pauses"].items():
        getattr(dut, f"{name}_pauses").value = packed
    await reset(dut)
    return job


async def connect(dut: Any, session: HostSession | None = None, **inputs: int) -> TileLink:
    """Start the bench and take the host's end of the link; no packet is sent."""
    job = await start(dut, **inputs)
    return TileLink(
        dut,
        play=Path(job["link"]["play"]),
        record=Path(job["link"]["record"]),
        session=session,
        timeout_clocks=job["timeout_clocks"],
    )
