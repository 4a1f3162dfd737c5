"""Decoders on the simulated tile: every value is the golden machine's, on every preset."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.model import Formats, ModelShape, ReferenceDecoder, quantize_model, random_model
from pequin_sim.rtl.bench import Pauses
from pequin_sim.tile.compare import compare_tile
from pequin_sim.tile.decode import decode_greedily

SMALL = ModelShape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=172, vocab=250)
SMALL_FORMATS = Formats.of("mxfp4", head="mxint8", k="mxfp4x2", down="mxint8")
LARGE = ModelShape(layers=2, hidden=512, heads=8, kv_heads=2, head_dim=64, mlp=1536, vocab=1000)
LARGE_FORMATS = Formats.of("mxfp4", head="mxint8", k="mxint8", v="mxint8", down="mxfp4x2")

REST = Pauses(rate=64, burst_rate=16, burst_clocks=200, seed=5)
"""A quarter of the clocks, and bursts of up to 200."""

PAUSED = {
    "hbm_pauses": REST,
    "pauses": {
        name: Pauses(rate=64, burst_rate=16, burst_clocks=200, seed=number)
        for number, name in enumerate(("accesses", "answers", "steps", "control", "events"))
    },
}


class Decoding:
    """A random model decoded on the golden machine, each logit within the float model's bound."""

    def __init__(self, shape, formats, params, positions, seed=7):
        self.params, self.shape, self.positions = params, shape, positions
        options = Options(max_positions=max(32, positions), formats=formats, head="logits")
        self.compiled = compile_decoder(shape, params, options)
        quantized = quantize_model(random_model(shape, seed), formats)
        self.image = self.compiled.image(quantized)
        self.reference = ReferenceDecoder(quantized.dequantized())
        self.logits = []
        self.golden = decode_greedily(
            params, self.compiled, self.image, positions=positions, races="raise", look=self.look
        )

    def look(self, token, result):
        """Keep the logits of a step and compare them with the reference's."""
        at = self.compiled.map.vector.logits
        self.logits.append(result.vector[at : at + self.shape.vocab].copy())
        exact = self.reference.step(token)
        error = np.abs(self.logits[-1].view(np.float32) - exact.logits)
        assert (error < exact.bound).all()

    def on_the_tile(self, **job):
        """Run the same steps in RTL; all that the program writes is the golden machine's."""
        comparison = compare_tile(
            self.params,
            self.compiled.program,
            self.image,
            self.golden.steps,
            golden=self.golden.result,
            job={"timeout_clocks": 50_000_000, **job},
        )
        assert comparison.match, comparison.report()
        return comparison.rtl


def check_traffic(decoding, counters):
    """HBM carries the closed form's beats and nothing of K and V."""
    assert counters["hbm.reads"] == decoding.positions * decoding.compiled.step_beats()
    assert counters["hbm.writes"] == 0
    assert counters["kv.busy"] > 0


@pytest.mark.parametrize("positions", [16, pytest.param(64, marks=pytest.mark.soak)])
def test_hidden_512_with_mixed_formats_and_random_pauses(positions, check_counters):
    params = TileParams(TileConfig.preset("ref"))
    decoding = Decoding(LARGE, LARGE_FORMATS, params, positions)
    run = decoding.on_the_tile(**PAUSED)
    check_counters(run.counters)
    check_traffic(decoding, run.counters)


@pytest.fixture(scope="module")
def expected():
    """Return tokens and logits of the small model."""
    decoding = Decoding(SMALL, SMALL_FORMATS, TileParams(TileConfig.preset("ref")), 3)
    return decoding.golden.tokens, np.array(decoding.logits)


@pytest.mark.parametrize("preset", ["tiny", "fpga", "ref", "wide"])
def test_every_preset_gives_the_same_tokens_and_logits(preset, expected, check_counters):
    decoding = Decoding(SMALL, SMALL_FORMATS, TileParams(TileConfig.preset(preset)), 3)
    run = decoding.on_the_tile(**PAUSED)
    tokens, logits = expected
    assert [e.value for e in run.events if e.kind.name == "TOKEN"] == tokens
    assert np.array_equal(decoding.logits, logits)
    check_counters(run.counters)
    check_traffic(decoding, run.counters)
