"""What a testbench exchanges with the program that started it, and how it starts its design.

The runner names a JSON file in the environment variable PEQUIN_JOB. Bulk data travel in files
whose paths are in the job.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import ClockCycles


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


def start_clock(dut: Any, signal: str = "clk") -> Clock:
    """Start the design's clock without Python in its loop, and return it.

    The first rising edge comes half a period after now.
    """
    clock = Clock(getattr(dut, signal), clock_period_ns(), unit="ns", impl="gpi")
    clock.start(start_high=False)
    return clock


async def reset(dut: Any, *, clocks: int = 2) -> None:
    """Hold `rst` for some clocks and release it; does nothing when there is no such port.

    Returns just after a rising edge at which the design was still in reset.
    """
    if not hasattr(dut, "rst"):
        return
    dut.rst.value = 1
    await ClockCycles(dut.clk, clocks)
    dut.rst.value = 0
