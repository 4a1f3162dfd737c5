"""cocotb test: let a `UnitPlayer` run to its end."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge, SimTimeoutError, with_timeout

from pequin_tb import job


@cocotb.test()
async def play(dut: Any) -> None:
    """Wait until all operands have been played; the job gives `depth`."""
    job.start_clock(dut)
    await job.reset(dut)
    depth = int(job.load()["depth"])
    limit = (depth + 100) * job.clock_period_ns()
    try:
        await with_timeout(RisingEdge(dut.done), limit, "ns")
    except SimTimeoutError as error:
        raise AssertionError(f"not done after {depth + 100} clocks") from error
    job.finish({"clocks": depth})
