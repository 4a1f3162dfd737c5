"""Steps are checked on the host before anything is sent."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.machine import Machine
from pequin_sim.model import ModelShape, quantize_model, random_model
from pequin_sim.tile.slots import Request, SlotTable

SHAPE = ModelShape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=96, vocab=50)
PARAMS = TileParams(TileConfig.preset("ref").replace(kv_beats=1 << 10))


@pytest.fixture(scope="module")
def compiled():
    return compile_decoder(SHAPE, PARAMS, Options(max_positions=33, batch=8))


@pytest.fixture
def table(compiled):
    """Return a table with one slot, which is taken and has no tokens."""
    table = SlotTable(compiled)
    assert (table.admit(), table.slots) == (0, 1)
    return table


@pytest.fixture
def two():
    """Return a table with two slots: 0 has three tokens, 1 has none; slot 2 is free."""
    params = TileParams(TileConfig.preset("ref").replace(kv_beats=1 << 11))
    table = SlotTable(compile_decoder(SHAPE, params, Options(max_positions=33, batch=8)))
    assert (table.admit(), table.admit(), table.slots) == (0, 1, 3)
    table.step([Request(0, 5, p) for p in range(3)])
    return table


def test_a_step_has_all_fields_of_its_columns(two):
    step = two.step([Request(1, 7, 0, False), Request(0, 49, 3), Request(1, 8, 1)])
    assert [tuple(c) for c in step.columns] == [
        (1, 7, 0, 0, 0, 576),
        (0, 49, 3, 0, 1, 0),
        (1, 8, 1, 0, 1, 576),
    ]
    assert (two.length(0), two.length(1)) == (4, 2)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "a step has 1 to 8 columns, not 0"),
        ([(1, 5, p) for p in range(9)], "a step has 1 to 8 columns, not 9"),
        ([(3, 5, 0)], "column 0: slot 3 does not exist: there are 3"),
        ([(-1, 5, 0)], "column 0: slot -1 does not exist"),
        ([(0, 5, 3), (2, 5, 0)], "column 1: slot 2 is free"),
        ([(0, 50, 3)], "column 0: token 50 does not exist: there are 50"),
        ([(0, -1, 3)], "column 0: token -1 does not exist"),
        ([(0, 5, 3), (1, 5, 0), (0, 6, 3)], "column 2: position 3 of slot 0 is in the step"),
        ([(0, 5, 2)], "column 0: position 2 of slot 0 is out of order: position 3 is due"),
        ([(0, 5, 4), (0, 5, 3)], "column 0: position 4 of slot 0 is out of order: position 3"),
        ([(1, 5, 1)], "column 0: position 1 of slot 1 is out of order: position 0 is due"),
        ([(0, 5, 3, True, 4)], "column 0: start must be 0 to the position, 3, not 4"),
        ([(0, 5, 3, True, -1)], "column 0: start must be 0 to the position, 3, not -1"),
        ([(1, 5, -1)], "column 0: position -1 of slot 1 is out of order"),
        ([(0, 5, 33)], "column 0: position 33 of slot 0 is beyond its KV cache of 33 positions"),
    ],
)
def test_what_breaks_a_rule_is_refused_and_changes_nothing(two, requests, message):
    with pytest.raises(InputError, match=message):
        two.step([Request(*r) for r in requests])
    assert (two.length(0), two.length(1)) == (3, 0)
    two.step([Request(0, 5, 3), Request(1, 5, 0)])


def test_a_full_cache_takes_no_more(table):
    for first in range(0, 33, 8):
        table.step([Request(0, 1, p) for p in range(first, min(first + 8, 33))])
    with pytest.raises(InputError, match="position 33 of slot 0 is beyond its KV cache"):
        table.step([Request(0, 1, 33)])


def test_slots_are_admitted_and_released(table):
    table.step([Request(0, 1, 0)])
    with pytest.raises(InputError, match="all 1 slots are taken: a sequence has 576 of the KV"):
        table.admit()
    table.release(0)
    for misuse in (table.release, table.length):
        with pytest.raises(InputError, match="slot 0 is free: admit a sequence first"):
            misuse(0)
    with pytest.raises(InputError, match="slot 1 does not exist"):
        table.release(1)
    assert table.admit() == 0
    assert table.length(0) == 0


def test_a_slot_that_is_used_again_shows_nothing_of_its_old_sequence(compiled, table):
    image = compiled.image(quantize_model(random_model(SHAPE, 1)))
    prompt = np.random.default_rng(1).integers(0, 50, 5)

    def answer(machine):
        result = machine.step(table.step([Request(0, int(t), p) for p, t in enumerate(prompt)]))
        return [(t.code, t.value, t.detail) for t in result.tokens]

    machine = Machine(PARAMS, image, compiled.program)
    machine.run()
    first = answer(machine)
    machine.step(table.step([Request(0, 3, p) for p in range(5, 13)]))
    table.release(0)
    table.admit()
    assert answer(machine) == first
