"""Shares of layers on the golden machine."""

import dataclasses

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim.compiler import Options, compile_decoder, compile_share, share_heads, share_sizes
from pequin_sim.machine import Column, Machine, Step
from pequin_sim.model import ModelShape, quantize_model, random_model

SHAPE = ModelShape(layers=2, hidden=96, heads=8, kv_heads=2, head_dim=32, mlp=100, vocab=20)
REF = TileParams(TileConfig.preset("ref"))
OPTIONS = Options(max_positions=64)


def run(compiled, model, positions, params=REF, prepare=None):
    machine = Machine(params, compiled.image(model), compiled.program)
    machine.run()
    if prepare:
        prepare(machine)
    for position in positions:
        result = machine.step(Step([Column(token=3, position=position, flags=1)]))
        assert result.state == "waiting", result.events
        assert [e.kind.name for e in result.events] == ["DONE"]
    return result


def hbm_beats(result):
    places = [place for command in result.commands for place in command.reads]
    return sum(p.stop - p.start for p in places if p.memory == "hbm")


@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 8, 9, 300])
def test_any_number_of_tiles(tiles):
    compiled = compile_share(SHAPE, REF, tiles, OPTIONS)
    result = run(compiled, random_model(SHAPE, 1), range(3))
    assert hbm_beats(result) == compiled.step_beats()
    heads, kv_heads = share_heads(SHAPE, tiles)
    macs = [c for c in result.commands if c.unit == "mac"]
    plan = compiled.map.attention
    assert len(macs) == 2 * (7 + 2 * plan.passes)
    assert plan.passes * plan.vectors == heads
    assert (heads, kv_heads) == {
        1: (8, 2),
        2: (4, 1),
        3: (2, 1),
        5: (1, 1),
        8: (1, 1),
        9: (0, 0),
        300: (0, 0),
    }[tiles]


def test_rows_are_cut_and_k_is_whole():
    sizes = share_sizes(SHAPE, 9)
    assert sizes == {
        "k": (8, 96),
        "v": (8, 96),
        "q": (29, 96),
        "o": (11, 256),
        "gate": (12, 96),
        "up": (12, 96),
        "down": (11, 128),
    }
    whole = compile_decoder(SHAPE, REF, OPTIONS)
    shares = compile_share(SHAPE, REF, 1, OPTIONS)
    assert shares.map.hbm.layer_beats == whole.map.hbm.layer_beats


@pytest.mark.parametrize("exchange", [False, True])
def test_the_share_of_one_tile_is_the_layer(exchange):
    """With all rows on this tile, the residual is that of the whole decoder, bit for bit."""
    model = random_model(SHAPE, 2)
    whole = compile_decoder(SHAPE, REF, OPTIONS)
    share = compile_share(SHAPE, REF, 1, OPTIONS, exchange=exchange)
    a, b = run_whole(whole, model, 5), run(share, model, range(5))
    x = slice(whole.map.vector.x, whole.map.vector.x + SHAPE.hidden)
    y = slice(share.map.vector.x, share.map.vector.x + SHAPE.hidden)
    assert np.array_equal(a.vector[x], b.vector[y])
    assert np.array_equal(a.kv, b.kv)


def run_whole(compiled, model, positions):
    machine = Machine(REF, compiled.image(model), compiled.program)
    machine.run()
    for position in range(positions):
        result = machine.step(Step([Column(token=3, position=position, flags=0)]))
    return result


def test_norm_and_quantization_are_of_the_full_vector():
    """Rows of other tiles lie in vector memory: they reach the residual, its norm and blocks."""
    compiled = compile_share(SHAPE, REF, 9, OPTIONS)
    model = quantize_model(random_model(SHAPE, 3))
    gathered = compiled.map.vector.gathered
    others = np.float32(0.25)

    def fill(machine):
        machine.memory.vector_bits[gathered : gathered + 96] = others.view(np.uint32)

    result = run(compiled, model, [0], prepare=fill)
    plain = run(compiled, model, [0])
    at = compiled.map.vector.x
    x, without = (r.vector[at : at + 96].view(np.float32) for r in (result, plain))
    # Four residuals (two layers, each after attention and MLP) add what the others wrote; the
    # last three rows of the vector are of no row of this tile.
    assert np.allclose(x[11:] - without[11:], 4 * others, atol=1e-6)
    scalars = result.scalars.view(np.float32)
    rms = 1 / np.sqrt(np.mean(x.astype(np.float64) ** 2) + SHAPE.norm_eps)
    assert scalars[compiled.map.scalars.rms_attention] == pytest.approx(rms, rel=1e-6)
    residuals = [c for c in result.commands if c.unit == "vector" and c.words[0] & 15 == 1]
    assert len(residuals) == 4
    assert all(c.words[1] & 0xFFFF == 96 for c in residuals)


def test_presets_agree():
    shape = dataclasses.replace(SHAPE, hidden=64, mlp=64, heads=4, layers=1)
    model = random_model(shape, 1)
    found = []
    for preset in ("tiny", "ref", "wide"):
        params = TileParams(TileConfig.preset(preset))
        compiled = compile_share(shape, params, 2, Options(max_positions=32))
        result = run(compiled, model, range(3), params)
        found.append(result.vector[compiled.map.vector.x :][:64])
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_large_shares_compile():
    """The shares whose bandwidth is measured in RTL."""
    shape = ModelShape(layers=1, hidden=2880, heads=64, kv_heads=8, head_dim=64, mlp=2880, vocab=2)
    layer = compile_decoder(shape, REF, Options(max_positions=256)).map.hbm.layer_beats
    assert layer == 853740
    for tiles, beats in ((64, 13554), (384, 2459)):
        assert compile_share(shape, REF, tiles, Options(max_positions=256)).weight_beats == beats


def test_there_is_at_least_one_tile():
    with pytest.raises(InputError, match="at least one tile, not 0"):
        compile_share(SHAPE, REF, 0, OPTIONS)
    with pytest.raises(InputError, match="3 tiles have to exchange their rows"):
        compile_share(SHAPE, REF, 3, OPTIONS, exchange=False)


def test_one_tile_exchanges_nothing_unless_told_to():
    """Its residual is added while a matrix drains, not by the memory queue."""
    units = {}
    for exchange in (None, True):
        compiled = compile_share(SHAPE, REF, 1, OPTIONS, exchange=exchange)
        result = run(compiled, random_model(SHAPE, 1), [0])
        units[exchange] = {
            c.unit
            for c in result.commands
            if c.unit in ("vector", "drain") and c.words[0] & 15 == 1
        }
    assert units == {None: {"drain"}, True: {"vector"}}
