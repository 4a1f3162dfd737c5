"""Run a `pequin.harness.StreamBench`: set counts and pauses, start, wait, report.

Job keys: `counts` (items per stream), `pauses` (per stream, the packed `PauseControl`),
`timeout_clocks`, `monitors` (output ports to report as integers).
"""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, SimTimeoutError, with_timeout

from pequin_tb.job import clock_period_ns, finish, load, reset, start_clock


@cocotb.test()
async def play(dut: Any) -> None:
    """Play all images once and report clocks, items recorded and monitored ports."""
    job = load()
    start_clock(dut)
    dut.start.value = 0
    for name, count in job["counts"].items():
        getattr(dut, f"{name}_count").value = count
        getattr(dut, f"{name}_pauses").value = job["pauses"].get(name, 0)
    await reset(dut)
    before = _read(dut, job["monitors"])
    dut.start.value = 1
    await ClockCycles(dut.clk, 1)
    dut.start.value = 0
    limit = job["timeout_clocks"]
    try:
        await with_timeout(RisingEdge(dut.done), limit * clock_period_ns(), "ns")
    except SimTimeoutError:
        raise AssertionError(f"not done after {limit} clocks: {_progress(dut, job)}") from None
    await ClockCycles(dut.clk, 2)
    after = _read(dut, job["monitors"])
    finish(
        {
            "clocks": int(dut.clocks.value),
            "taken": {n: int(getattr(dut, f"{n}_taken").value) for n in job["outputs"]},
            "before": before,
            "after": after,
        }
    )


def _read(dut: Any, names: list[str]) -> dict[str, int]:
    return {name: int(getattr(dut, name).value) for name in names}


def _progress(dut: Any, job: dict[str, Any]) -> str:
    taken = (f"{n} {int(getattr(dut, f'{n}_taken').value)}" for n in job["outputs"])
    return "recorded " + ", ".join(taken)
