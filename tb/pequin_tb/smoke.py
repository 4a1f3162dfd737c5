"""The smallest testbench: does a built simulation run at all? `pequin doctor` uses it."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge, with_timeout

from pequin_tb import job

WORDS = [0, 1, 41, 255]


async def _run(dut: Any) -> list[int]:
    received: list[int] = []
    pending = list(WORDS)
    dut.sink__ready.value = 1
    while len(received) < len(WORDS):
        dut.source__valid.value = bool(pending)
        dut.source__payload.value = pending[0] if pending else 0
        await FallingEdge(dut.clk)  # everything has settled for the next rising edge
        if dut.sink__valid.value == 1:
            received.append(int(dut.sink__payload.value))
        if pending and dut.source__ready.value == 1:
            pending.pop(0)
        await RisingEdge(dut.clk)
    return received


@cocotb.test()
async def increments(dut: Any) -> None:
    """Every word comes back one larger, modulo 256."""
    dut.source__valid.value = 0
    job.start_clock(dut)
    await job.reset(dut)
    received = await with_timeout(_run(dut), 100 * job.clock_period_ns(), "ns")
    assert received == [(word + 1) % 256 for word in WORDS], received
    job.finish({"words": len(received)})
