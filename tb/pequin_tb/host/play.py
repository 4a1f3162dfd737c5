"""Let the mailbox play a whole file; Python wakes once, at the end."""

from __future__ import annotations

import time
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge, SimTimeoutError, with_timeout
from cocotb.utils import get_sim_time

from pequin_tb.host.bench import start
from pequin_tb.job import clock_period_ns, finish


@cocotb.test()
async def play(dut: Any) -> None:
    """Report the clocks and the wall-clock time from reset to the last packet."""
    job = await start(dut)
    began, first = time.perf_counter(), get_sim_time("ns")
    limit = job["timeout_clocks"]
    try:
        await with_timeout(RisingEdge(dut.done), limit * clock_period_ns(), "ns")
    except SimTimeoutError:
        raise AssertionError(
            f"the file was not over in {limit} clocks: {int(dut.played.value)} packets have gone "
            f"out, {int(dut.arrived.value)} have come"
        ) from None
    clocks = (get_sim_time("ns") - first) / clock_period_ns()
    finish({"clocks": clocks, "seconds": time.perf_counter() - began})
