"""cocotb test that lets the HBM bench's player run to its end and judges the command log.

Python wakes once, when the player says it is done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from pequin.hbm.timing import HbmTiming
from pequin_tb import job
from pequin_tb.hbm.monitor import check_commands, read_commands


@cocotb.test()
async def play(dut: Any) -> None:
    """Run the player; check the commands when the job names a log."""
    order = job.load()
    job.start_clock(dut)
    await job.reset(dut)
    if not int(dut.done.value):
        await RisingEdge(dut.done)
    result: dict[str, Any] = {}
    if order.get("commands"):
        path = Path(order["commands"])
        monitor = check_commands(
            read_commands(path),
            HbmTiming(**order["timing"]),
            clocks=order["clocks"] or _last_clock(path),
            refresh=order["refresh"],
            postpone=order["postpone"],
        )
        result = {
            "commands": dict(monitor.commands),
            "violations": [[v.rule, v.clock, v.bank, v.detail] for v in monitor.violations[:1000]],
            "broken": sorted({v.rule for v in monitor.violations}),
        }
    job.finish(result)


def _last_clock(path: Path) -> int:
    last = 0
    for command in read_commands(path):
        last = command.clock
    return last
