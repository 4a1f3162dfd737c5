"""Decode on the whole tile through its link, as a host does: every token comes from the tile.

Job keys beside those of `pequin_tb.host.bench`: `program` (beats in hexadecimal), `token` (the
first one), `positions`, `reads` (memory to first beat and beats), `hbm_pauses`. The result has
`clocks` and `seconds` of wall-clock time from reset to the last token.
"""

from __future__ import annotations

import time
from typing import Any

import cocotb
import numpy as np
from cocotb.utils import get_sim_time

from pequin_sim.protocol import Column, EventKind, MemoryId
from pequin_tb.host.bench import connect
from pequin_tb.job import clock_period_ns, finish, load

FLIPS = ("flip_hbm", "flip_kv", "flip_fifo", "flip_program")


@cocotb.test()
async def decode(dut: Any) -> None:
    """Load the program, decode greedily, read memories back."""
    job = load()
    inputs = dict.fromkeys(FLIPS, 0) | {"hbm_pauses": job["hbm_pauses"]}
    link = await connect(dut, **inputs)
    began, first_ns = time.perf_counter(), get_sim_time("ns")
    welcome = await link.open()
    program = np.frombuffer(bytes.fromhex(job["program"]), np.uint8).reshape(-1, 32)
    await link.write(MemoryId.PROGRAM, 0, program)
    assert (await link.read(MemoryId.PROGRAM, 0, len(program)) == program).all()
    await link.start()
    token, tokens = job["token"], []
    for position in range(job["positions"]):
        await link.step([Column(token=token, position=position, flags=1)])
        first = len(link.events)
        await link.wait_event(EventKind.DONE)
        best = [e for e in link.events[first:] if e.kind == EventKind.TOKEN and e.code & 0xFF == 0]
        assert len(best) == 1, f"{len(best)} tokens in step {position}"
        token = best[0].value
        tokens.append(token)
    seconds = time.perf_counter() - began
    clocks = (get_sim_time("ns") - first_ns) / clock_period_ns()
    memories = {}
    for name, (base, count) in job["reads"].items():
        beats = await link.read(MemoryId[name], base, count)
        memories[name] = np.asarray(beats).tobytes().hex()
    link.close()
    names = ("kind", "unit", "code", "pc", "value", "detail", "stamp")
    finish(
        {
            "tokens": tokens,
            "clocks": clocks,
            "seconds": seconds,
            "events": [[int(getattr(event, name)) for name in names] for event in link.events],
            "memories": memories,
            "sizes": {
                "columns": welcome.sizes.columns,
                "kv_beats": welcome.sizes.kv_beats,
                "program_words": welcome.sizes.program_words,
            },
        }
    )
