"""The model that the tile is first measured with: two layers of hidden 512, formats mixed."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.machine import Column, Machine, Step
from pequin_sim.model import Formats, ModelShape, ReferenceDecoder, quantize_model, random_model

SHAPE = ModelShape(layers=2, hidden=512, heads=8, kv_heads=2, head_dim=64, mlp=1536, vocab=1000)
FORMATS = Formats.of("mxfp4", head="mxint8", k="mxint8", v="mxint8", down="mxfp4x2")


@pytest.mark.parametrize("positions", [16, pytest.param(64, marks=pytest.mark.soak)])
def test_it_follows_the_reference_with_its_own_tokens(positions):
    params = TileParams(TileConfig.preset("ref"))
    options = Options(max_positions=64, formats=FORMATS, head="logits")
    compiled = compile_decoder(SHAPE, params, options)
    quantized = quantize_model(random_model(SHAPE, 7), FORMATS)
    reference = ReferenceDecoder(quantized.dequantized())
    machine = Machine(params, compiled.image(quantized), compiled.program)
    machine.run()
    token, worst, ratios = 1, 0.0, []
    for position in range(positions):
        result = machine.step(Step([Column(token=token, position=position, flags=1)]))
        exact = reference.step(token)
        at = compiled.map.vector.logits
        error = np.abs(result.vector[at : at + 1000].view(np.float32) - exact.logits)
        worst = max(worst, np.max(error / exact.bound))
        ratios.append(np.sqrt(np.mean((error / exact.sigma) ** 2)))
        token = result.tokens[0].value
    assert worst < 1
    assert 0.6 < np.mean(ratios) < 1.4
    assert not result.races
