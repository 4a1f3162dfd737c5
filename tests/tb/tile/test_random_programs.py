"""Random programs without races on the tiny tile: what they leave is the golden machine's."""

import numpy as np
import pytest

from pequin.tile.types import Memory
from pequin_sim.campaigns.programs import RandomProgram, program_image
from pequin_sim.isa import assemble
from pequin_sim.machine import Machine
from pequin_sim.rtl.bench import Pauses
from pequin_sim.tile.compare import compare_tile

SECTIONS = 7
"""Sections of a program; as many as the tiny tile's program memory holds."""

KV = np.full((64 + 16, 32), 0x7F, np.uint8)
"""KV buffer with scales of 1 before any key is written."""


TRIES = 40
"""Draws of a section of a size before a smaller one is tried."""


def golden_run(params, sections):
    """Return program and what the golden machine leaves; None when commands race."""
    program = assemble(text_of(sections), check=False)
    machine = Machine(params, program_image(), program, races="collect", capacity=False)
    machine.memory.kv[: len(KV)] = KV
    result = machine.run()
    return None if result.races or result.state != "halted" else (program, result)


def text_of(sections):
    """One program of several sections, each drawn from a seed and with some launches."""
    source = RandomProgram(np.random.default_rng(0))
    for seed, launches in sections:
        source.rng = np.random.default_rng(seed)
        source.refresh()
        source.section(launches, 9 * launches, fence=True)
    return source.text


def draw(params, seed):
    """Return a program whose sections have no races, and what the golden machine leaves."""
    rng = np.random.default_rng(seed)
    sections = []
    while len(sections) < SECTIONS:
        size = int(rng.integers(4, 12))
        section = next(
            (
                section
                for section in zip(rng.integers(1 << 31, size=TRIES), [size] * TRIES, strict=True)
                if golden_run(params, [section])
            ),
            None,
        )
        sections += [section] if section else []
    return golden_run(params, sections)


def compare(params, seed):
    rng = np.random.default_rng(seed)
    rest = Pauses(rate=int(rng.integers(0, 160)), burst_rate=64, burst_clocks=60, seed=seed)
    program, golden = draw(params, seed)
    comparison = compare_tile(
        params,
        program,
        program_image(),
        golden=golden,
        job={"hbm_pauses": rest, "loads": [(Memory.KV, 0, KV)]},
    )
    assert comparison.match, f"seed {seed}: {comparison.report()}"
    return comparison.rtl


@pytest.mark.parametrize("seed", range(16))
def test_random_programs(tiny, check_counters, seed):
    check_counters(compare(tiny, seed).counters)


@pytest.mark.soak
def test_many_random_programs(tiny, check_counters):
    for seed in range(1000, 1300):
        check_counters(compare(tiny, seed).counters)
