"""What a testbench exchanges with the program that started it, and how it starts its design.

The runner names a JSON file in the environment variable PEQUIN_JOB. Bulk data travel in files
whose paths are in the job.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Event
from cocotb.utils import get_sim_steps


@functools.lru_cache(maxsize=1)
def _order() -> dict[str, Any]:
    path = os.environ.get("PEQUIN_JOB")
    if path is None:
        raise RuntimeError("PEQUIN_JOB is not set: start this test through pequin_sim.runner")
    order = json.loads(Path(path).read_text())
    assert isinstance(order, dict)
    return order


def load() -> dict[str, Any]:
    """Return the job: the plain data given to `pequin_sim.runner.simulate`."""
    job = _order()["job"]
    assert isinstance(job, dict)
    return job


def finish(result: Mapping[str, Any]) -> None:
    """Hand a result back; it becomes `SimResult.result`. A second call replaces the first."""
    Path(_order()["result"]).write_text(json.dumps(dict(result)))


def clock_period_ns() -> int:
    """Return the simulated clock's period (ns)."""
    return int(_order()["clock_ns"])


def start_clock(dut: Any) -> None:
    """Start the design's clock `clk` without Python in its loop; it runs to the test's end.

    It is low now, and the first rising edge comes half a period later. In our Verilator builds
    the main program toggles it; elsewhere cocotb's GPI clock does.
    """
    program = ctypes.CDLL(None)
    half = get_sim_steps(clock_period_ns(), "ns") // 2
    if hasattr(program, "pequin_clock_start") and program.pequin_clock_start(ctypes.c_uint64(half)):
        cocotb.start_soon(_stop_at_end(program))
    else:
        Clock(dut.clk, clock_period_ns(), unit="ns", impl="gpi").start(start_high=False)


async def _stop_at_end(program: ctypes.CDLL) -> None:
    """Wait until cocotb cancels the tasks of a test that has ended."""
    try:
        await Event().wait()
    finally:
        program.pequin_clock_stop()


async def reset(dut: Any, *, clocks: int = 2) -> None:
    """Hold `rst` for some clocks and release it; does nothing when there is no such port.

    Returns just after a rising edge at which the design was still in reset.
    """
    if not hasattr(dut, "rst"):
        return
    dut.rst.value = 1
    await ClockCycles(dut.clk, clocks)
    dut.rst.value = 0
