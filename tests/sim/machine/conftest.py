"""Small programs on the golden machine."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin_sim.isa import assemble
from pequin_sim.machine import Machine, Step


def tile(preset="ref", **changes):
    sizes = {"kv_beats": 1 << 14} if preset == "ref" else {}
    return TileParams(TileConfig.preset(preset).replace(**sizes | changes))


@pytest.fixture(scope="session")
def params():
    """Return parameters: `params("tiny", kv_beats=1024)`."""
    return tile


@pytest.fixture
def build():
    """Return a machine of a source text that the assembler does not check."""

    def build(source, hbm=None, preset="ref", changes=None, **options):
        beats = np.zeros((0, 32), np.uint8) if hbm is None else hbm
        program = assemble(source, "test.s", check=False)
        return Machine(tile(preset, **(changes or {})), beats, program, **options)

    return build


@pytest.fixture
def run(build):
    """Return the result of a source text; steps are lists of columns."""

    def run(source, hbm=None, steps=(), **options):
        return build(source, hbm, **options).run([Step(columns) for columns in steps])

    return run
