"""How fast a simulation runs: idle, and with Python driving a stream.

Job keys: `clocks`, and for `drive` the names of the `valid` and `payload` ports and the
payload's `width`. The result is the elapsed wall-clock time (s).
"""

from __future__ import annotations

import time
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge, Timer

from pequin_tb.job import clock_period_ns, finish, load, reset, start_clock

WARM_UP_CLOCKS = 1000
"""Clocks before the measurement."""


@cocotb.test()
async def idle(dut: Any) -> None:
    """Let the design run by itself; Python wakes at the end only."""
    job = load()
    start_clock(dut)
    await reset(dut)
    await Timer(WARM_UP_CLOCKS * clock_period_ns(), "ns")
    begin = time.perf_counter()
    await Timer(job["clocks"] * clock_period_ns(), "ns")
    finish({"seconds": time.perf_counter() - begin})


@cocotb.test()
async def drive(dut: Any) -> None:
    """Write a new payload to a stream in every clock."""
    job = load()
    start_clock(dut)
    await reset(dut)
    valid, payload = getattr(dut, job["valid"]), getattr(dut, job["payload"])
    mask = (1 << job["width"]) - 1
    values = [0x9E3779B97F4A7C15 ** (i + 1) & mask for i in range(16)]
    edge = RisingEdge(dut.clk)
    valid.value = 1
    begin = time.perf_counter()
    for clock in range(job["clocks"]):
        payload.value = values[clock % len(values)]
        await edge
    finish({"seconds": time.perf_counter() - begin})
