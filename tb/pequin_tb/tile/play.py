"""Run a `pequin_sim.rtl.tile.TileJob`: load, start, wait for events, read back.

Job keys beside those of `pequin_tb.stream_bench`: `loaded` (accesses before the start; the others
come at the end), `events` (events that end a run; an error ends it too), `starts`, `flips` (port
to clock and bits), `early_flips` (port to bits, until the first start), `stop_after`,
`hbm_pauses`.
"""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from pequin_tb.job import finish, load, reset, start_clock

POLL_CLOCKS = 64
"""Clocks between two looks at the tile."""

FLIPS = ("flip_hbm", "flip_kv", "flip_fifo", "flip_program")
"""Ports that inject errors."""

START_CLOCKS = 16
"""Clocks from an order's release to its effect, at most."""

FAILED = 1 << 4
"""Bit of the core's `state`: an error has stopped the tile."""

FREEZE = 1 << 1
"""Bit of the core's `state`: the tile is stopping."""


@cocotb.test()
async def play(dut: Any) -> None:
    """Play one job."""
    job = load()
    start_clock(dut)
    for name in ("start", "accesses_count", "steps_count", "control_count"):
        getattr(dut, name).value = 0
    for name, packed in job["pauses"].items():
        getattr(dut, f"{name}_pauses").value = packed
    for name in ("accesses", "steps", "control", "answers", "events"):
        if name not in job["pauses"]:
            getattr(dut, f"{name}_pauses").value = 0
    for name in ("answers", "events"):
        getattr(dut, f"{name}_count").value = 0
    for name in FLIPS:
        getattr(dut, name).value = job["early_flips"].get(name, 0)
    dut.hbm_pauses.value = job["hbm_pauses"]
    dut.accesses_count.value = job["loaded"]
    dut.steps_count.value = job["counts"]["steps"]
    await reset(dut)
    dut.start.value = 1
    await ClockCycles(dut.clk, 1)
    dut.start.value = 0
    budget = [job["timeout_clocks"]]
    await _until(dut, budget, job, lambda: int(dut.answers_taken.value) == job["loaded"])
    clocks = 0
    for name in job["early_flips"]:
        getattr(dut, name).value = 0
    for number in range(job["starts"]):
        clocks += await _run(dut, budget, job, number)
    dut.accesses_count.value = job["counts"]["accesses"]
    total = job["counts"]["accesses"]
    await _until(dut, budget, job, lambda: int(dut.answers_taken.value) == total)
    finish(
        {
            "clocks": clocks,
            "taken": {name: int(getattr(dut, f"{name}_taken").value) for name in job["outputs"]},
            "before": {},
            "after": {},
        }
    )


async def _run(dut: Any, budget: list[int], job: dict[str, Any], number: int) -> int:
    """Start a program and wait for its end; inject flips and the stop. Return the clocks."""
    spent = 0
    first = number == 0
    stop_after = job["stop_after"] if first else 0
    orders = number + 1 + bool(job["stop_after"] and not first)
    due = sorted((clock, name, bits) for name, (clock, bits) in job["flips"].items())
    due = due if first else []
    before = int(dut.events_taken.value)
    dut.control_count.value = orders
    await ClockCycles(dut.clk, START_CLOCKS)
    while True:
        if due and due[0][0] <= spent:
            _, name, bits = due.pop(0)
            getattr(dut, name).value = bits
        if stop_after and spent >= stop_after:
            dut.control_count.value = orders + 1
        state = int(dut.state.value)
        if state & FAILED and not state & FREEZE:
            break
        if int(dut.events_taken.value) >= before + job["events"]:
            break
        spent += await _wait(dut, budget, job)
    await ClockCycles(dut.clk, 4 * POLL_CLOCKS)
    for name in job["flips"]:
        getattr(dut, name).value = 0
    return spent


async def _until(dut: Any, budget: list[int], job: dict[str, Any], reached: Any) -> None:
    while not reached():
        await _wait(dut, budget, job)


async def _wait(dut: Any, budget: list[int], job: dict[str, Any]) -> int:
    await ClockCycles(dut.clk, POLL_CLOCKS)
    budget[0] -= POLL_CLOCKS
    if budget[0] < 0:
        taken = ", ".join(f"{n} {int(getattr(dut, f'{n}_taken').value)}" for n in job["outputs"])
        raise AssertionError(
            f"not done after {job['timeout_clocks']} clocks: recorded {taken}; state "
            f"{int(dut.state.value):#x}"
        )
    return POLL_CLOCKS
