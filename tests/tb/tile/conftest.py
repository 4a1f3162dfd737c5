"""The tiny tile, and programs for it."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.tile.counters import cause_groups
from pequin_sim.isa import assemble
from pequin_sim.machine import Machine
from pequin_sim.rtl.tile import TileJob, run_tile


@pytest.fixture(scope="session")
def tiny():
    """Return the smallest tile."""
    return TileParams(TileConfig.preset("tiny"))


@pytest.fixture(scope="session")
def check_counters():
    """Return a function that asserts that every group of causes adds up to the clocks."""

    def check(counters):
        clocks = counters["clocks"]
        assert clocks > 0
        for group, names in cause_groups().items():
            assert sum(counters[name] for name in names) == clocks, group

    return check


@pytest.fixture(scope="session")
def join():
    """Return a function that makes one program of pieces of text, and their addresses."""

    def run(pieces):
        programs = [assemble(piece, "piece", check=False).words for piece in pieces]
        starts = [0, *np.cumsum([len(words) for words in programs])[:-1].tolist()]
        # Branches are absolute: each piece is assembled again behind what comes before it.
        text = "".join(
            f"{piece}\n".replace("again", f"again{number}") for number, piece in enumerate(pieces)
        )
        return assemble(text, "pieces", check=False), starts

    return run


@pytest.fixture(scope="session")
def play(tiny, join, check_counters):
    """Return a function that runs pieces of program text one after the other on the RTL.

    Each piece starts at its own address when the one before has ended, by an error or by its
    event.
    """

    def run(pieces, hbm=None, **fields):
        program, starts = join(pieces)
        job = TileJob(program=program.words, starts=starts, hbm=hbm, **fields)
        result = run_tile(tiny, job)
        check_counters(result.counters)
        assert not any(result.answers), "an access was refused"
        return program, starts, result

    return run


@pytest.fixture(scope="session")
def golden(tiny):
    """Return a function that runs the same pieces on the golden machine."""

    def run(program, starts, hbm=None, steps=()):
        store = np.zeros((1, 32), np.uint8) if hbm is None else hbm
        machine = Machine(tiny, store, program, races="off", capacity=False)
        return [machine.run(steps, start) for start in starts], machine

    return run
