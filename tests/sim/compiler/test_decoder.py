"""Compiled decoders on the golden machine, against the float64 reference."""

import dataclasses

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.isa import UNIT_NAMES, register_exists
from pequin_sim.machine import Column, Machine, Step
from pequin_sim.model import (
    Formats,
    ModelShape,
    ReferenceDecoder,
    quantize_model,
    random_model,
)

PRESETS = ("tiny", "fpga", "ref", "wide")

SMALL = ModelShape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=172, vocab=250)
ODD = ModelShape(
    layers=2, hidden=72, heads=4, kv_heads=2, head_dim=20, mlp=50, vocab=33, rotary="half"
)
GROUPED = ModelShape(
    layers=2, hidden=96, heads=12, kv_heads=3, head_dim=34, mlp=65, vocab=101, rope_theta=500.0
)
UNEVEN = ModelShape(layers=2, hidden=40, heads=5, kv_heads=5, head_dim=8, mlp=30, vocab=20)
MIXED = Formats.of("mxfp4", head="mxint8", k="mxfp4x2", down="mxint8")


def tile(preset, **changes):
    return TileParams(TileConfig.preset(preset).replace(**changes))


class Run:
    """A compiled decoder on a golden machine, token by token."""

    def __init__(self, shape, params, seed=1, **options):
        self.formats = options.setdefault("formats", MIXED)
        options.setdefault("max_positions", 32)
        self.compiled = compile_decoder(shape, params, Options(**options))
        self.shape, self.options = shape, self.compiled.plan.options
        model = random_model(shape, seed)
        self.quantized = quantize_model(
            model, self.formats, fp32_embedding=self.options.embedding == "fp32"
        )
        self.model = model
        self.hbm = self.compiled.image(self.quantized)
        self.start(params)

    def start(self, params, hbm=None):
        hbm = self.hbm if hbm is None else hbm
        self.machine = Machine(params, hbm, self.compiled.program, races="raise", capacity=True)
        self.position = 0
        assert self.machine.run().state == "waiting"

    def step(self, token, wants=True, start=0, kv_base=0):
        column = Column(
            token=token, position=self.position, start=start, flags=int(wants), kv_base=kv_base
        )
        result = self.machine.step(Step([column]))
        assert result.state == "waiting", result.events
        assert result.events[-1].kind.name == "DONE"
        assert result.events[-1].value == self.position
        self.position += 1
        return result

    def logits(self, result):
        at = self.compiled.map.vector.logits
        return result.vector[at : at + self.shape.vocab].view(np.float32).copy()

    def hbm_beats(self, result):
        places = [place for command in result.commands for place in command.reads]
        return sum(p.stop - p.start for p in places if p.memory == "hbm")


def tokens(shape, count, seed=0):
    return [int(t) for t in np.random.default_rng(seed).integers(0, shape.vocab, count)]


@pytest.mark.parametrize(
    ("shape", "presets"), [(SMALL, PRESETS), (ODD, PRESETS), (GROUPED, PRESETS[1:])]
)
def test_all_presets_give_the_same_bits_within_the_bound(shape, presets):
    # Room for GROUPED: the preset's own memories are small.
    fpga = {"kv_beats": 1 << 12, "store_bytes": 1 << 18}
    runs = [Run(shape, tile(p, **(fpga if p == "fpga" else {})), head="logits") for p in presets]
    reference = ReferenceDecoder(runs[0].quantized.dequantized())
    ratios = []
    for token in tokens(shape, 7):
        exact = reference.step(token)
        results = [run.step(token) for run in runs]
        found = [run.logits(result) for run, result in zip(runs, results, strict=True)]
        for logits, result in zip(found, results, strict=True):
            assert np.array_equal(logits.view("u4"), found[0].view("u4"))
            assert result.tokens[0].value == np.argmax(logits)
        error = np.abs(found[0] - exact.logits)
        assert (error < exact.bound).all()
        ratios.append(np.mean((error / exact.sigma) ** 2) ** 0.5)
    # The bound is no wide one: errors are as large as the propagated noise says.
    assert 0.5 < np.mean(ratios) < 1.5


def test_errors_against_the_float_model_stay_within_its_bound():
    run = Run(SMALL, tile("ref"), head="logits", formats=Formats.of("mxint8"))
    reference = ReferenceDecoder(run.model, run.quantized)
    for token in tokens(SMALL, 4):
        exact = reference.step(token)
        assert (np.abs(run.logits(run.step(token)) - exact.logits) < exact.bound).all()


@pytest.mark.parametrize("embedding", ["mxint8", "fp32"])
@pytest.mark.parametrize("formats", [Formats.of("mxfp4"), Formats.of("mxint8")])
def test_embeddings_and_formats(embedding, formats):
    run = Run(ODD, tile("tiny"), head="logits", embedding=embedding, formats=formats)
    reference = ReferenceDecoder(run.quantized.dequantized())
    for token in tokens(ODD, 4):
        exact = reference.step(token)
        result = run.step(token)
        assert (np.abs(run.logits(result) - exact.logits) < exact.bound).all()
        assert run.hbm_beats(result) == run.compiled.step_beats()


@pytest.mark.parametrize("preset", PRESETS)
def test_arg_max_and_top_k_tell_the_logits_order(preset):
    heads = [Run(SMALL, tile(preset), head=head) for head in ("logits", "arg_max", "top_k")]
    entries = tile(preset).config.top_k
    for token in tokens(SMALL, 3):
        logits, best, several = (run.step(token) for run in heads)
        values = heads[0].logits(logits)
        order = np.argsort(-values, kind="stable")
        assert best.tokens[0].value == order[0] == logits.tokens[0].value
        assert [t.value for t in several.tokens] == list(order[:entries])
        assert [t.rank for t in several.tokens] == list(range(entries))
        # The entries are raw: 1 / rms is a scalar register that the host can read.
        rms = several.scalars.view(np.float32)[heads[2].compiled.map.scalars.rms_attention]
        raw = np.array([t.detail for t in several.tokens], np.uint32).view(np.float32)
        assert np.array_equal(raw * rms, values[order[:entries]])


def test_a_long_context_crosses_granules():
    """70 positions: three granules; and the reference's window when `start` is not zero."""
    shape = dataclasses.replace(SMALL, layers=1)
    run = Run(shape, tile("ref"), head="logits", max_positions=70)
    reference = ReferenceDecoder(run.quantized.dequantized())
    for position, token in enumerate(tokens(shape, 70)):
        start = 0 if position < 40 else position - 37
        wants = position % 9 == 0 or position > 66
        exact = reference.step(token, start)
        result = run.step(token, wants, start)
        if wants:
            assert (np.abs(run.logits(result) - exact.logits) < exact.bound).all()


def test_positions_without_logits_change_nothing_but_the_work():
    a, b = (Run(SMALL, tile("fpga"), head="logits") for _ in range(2))
    for token in tokens(SMALL, 4):
        all_logits, none = a.step(token), b.step(token, wants=False)
        assert not none.tokens
        assert b.hbm_beats(none) == b.compiled.step_beats(wants_logits=False)
        assert a.hbm_beats(all_logits) == a.compiled.step_beats()
    assert np.array_equal(a.logits(a.step(5)), b.logits(b.step(5)))


def test_hbm_is_read_once_and_only_where_weights_and_tables_are():
    run = Run(SMALL, tile("ref"))
    hbm = run.compiled.map.hbm
    assert run.compiled.weight_beats == 2 * hbm.layer_beats + hbm.beats["head"]
    for token in tokens(SMALL, 3):
        result = run.step(token)
        seen = np.zeros(hbm.stop, int)
        for command in result.commands:
            for place in command.reads:
                if place.memory == "hbm":
                    assert command.unit in ("stream", "dma")
                    seen[place.slice] += 1
            # KV stays in its buffer: nothing writes HBM.
            assert all(place.memory != "hbm" for place in command.writes)
        assert (seen[hbm.base : hbm.embedding] == 1).all()
        assert seen[hbm.embedding : hbm.rotary].sum() == hbm.embedding_row
        assert seen[hbm.rotary :].sum() == hbm.rotary_row


def test_a_sequence_may_lie_anywhere_in_the_kv_buffer():
    a, b = (Run(SMALL, tile("ref"), head="logits") for _ in range(2))
    slot = a.compiled.map.kv.slot
    for token in tokens(SMALL, 3):
        here, there = a.step(token), b.step(token, kv_base=3 * slot)
        assert np.array_equal(a.logits(here), b.logits(there))
    assert np.array_equal(here.kv[:slot], there.kv[3 * slot : 4 * slot])
    assert not there.kv[: 3 * slot].any()
    assert not there.kv[4 * slot :].any()


NARROW = {"columns": 2, "drain_lanes": 2}


@pytest.mark.parametrize(
    ("shape", "changes", "waves", "buffers"),
    [
        (GROUPED, {}, 1, 1),
        (GROUPED, {"scalars": 16}, 3, 1),
        (GROUPED, {"vector_elements": 1 << 11}, 3, 1),
        (GROUPED, {"act_blocks": 28}, 3, 2),
        (GROUPED, {"columns": 4, "drain_lanes": 4}, 1, 1),
        (GROUPED, NARROW, 1, 1),
        (GROUPED, {**NARROW, "scalars": 16}, 6, 2),
        (GROUPED, {**NARROW, "act_blocks": 54}, 3, 2),
        (GROUPED, {**NARROW, "act_blocks": 34}, 6, 1),
        (UNEVEN, {"scalars": 16}, 3, 2),
    ],
)
def test_attention_fits_itself_to_small_memories(shape, changes, waves, buffers):
    """Passes and waves differ, the results do not."""
    plain = Run(shape, tile("ref"), max_positions=200)
    small = Run(shape, tile("ref", **{"max_k": 768, **changes}), max_positions=200)
    plan = small.compiled.map.attention
    assert (len(plan.waves), plan.buffers) == (waves, buffers)
    assert [p for wave in plan.waves for p in range(wave.first, wave.first + wave.passes)] == list(
        range(plan.passes)
    )
    for token in tokens(shape, 3):
        a, b = plain.step(token), small.step(token)
        assert [(t.value, t.detail) for t in a.tokens] == [(t.value, t.detail) for t in b.tokens]


@pytest.mark.parametrize("ahead", range(7))
def test_streams_may_be_any_number_of_matrices_ahead(ahead):
    run = Run(ODD, tile("ref"), ahead=ahead)
    other = Run(ODD, tile("ref"))
    for number, token in enumerate(tokens(ODD, 3)):
        wants = number != 1
        result = run.step(token, wants)
        assert [t.value for t in result.tokens] == [
            t.value for t in other.step(token, wants).tokens
        ]
        assert run.hbm_beats(result) == run.compiled.step_beats(wants)


def test_old_contents_of_unit_registers_do_not_matter():
    """A program may be started again without a reset."""
    clean, dirty = (Run(SMALL, tile("ref"), head="logits") for _ in range(2))
    params = tile("ref")
    dirty.machine = Machine(params, dirty.hbm, dirty.compiled.program)
    rng = np.random.default_rng(5)
    for unit, registers in dirty.machine.registers.items():
        for number in range(64):
            if register_exists(UNIT_NAMES[unit], number):
                registers.set(number, int(rng.integers(1 << 32)))
    dirty.machine.run()
    for token in tokens(SMALL, 3):
        a, b = clean.step(token), dirty.step(token)
        assert np.array_equal(clean.logits(a), dirty.logits(b))


def test_layers_run_through_the_same_instructions():
    sizes = {
        layers: len(
            compile_decoder(
                dataclasses.replace(SMALL, layers=layers), tile("ref"), Options(max_positions=32)
            ).program
        )
        for layers in (1, 2, 9)
    }
    assert len(set(sizes.values())) == 1


def test_regions_of_a_memory_do_not_meet():
    for shape in (SMALL, ODD, GROUPED):
        plan = compile_decoder(shape, tile("ref"), Options(max_positions=50, head="logits")).plan
        vector, activations = plan.map.vector.regions, plan.map.activations.regions
        # Attention, MLP and logits follow each other in time and share their place.
        stages = [
            (vector, {"values", "keys", "value scales", "scores"}, {"gate", "silu"}),
            (vector, {"values", "keys", "value scales", "scores"}, {"logits"}),
            (vector, {"gate", "silu"}, {"logits"}),
            (activations, {"queries", "probabilities", "attention"}, {"mlp"}),
        ]
        shared = {
            frozenset((id(regions), a, b))
            for regions, first, second in stages
            for a in first
            for b in second
        }
        for regions in (vector, activations):
            names = [name for name in regions if regions[name].size]
            for i, a in enumerate(names):
                for b in names[i + 1 :]:
                    if frozenset((id(regions), a, b)) not in shared:
                        assert not regions[a].meets(regions[b]), (a, b)
        hbm = plan.map.hbm
        assert hbm.base + shape.layers * hbm.layer_beats == hbm.head
        assert hbm.head + hbm.beats["head"] == hbm.embedding
        assert hbm.embedding + shape.vocab * hbm.embedding_row == hbm.rotary
        assert hbm.rotary + 50 * hbm.rotary_row == hbm.stop


def test_an_image_may_start_anywhere():
    a, b = Run(SMALL, tile("ref")), Run(SMALL, tile("ref"), hbm_base=1000)
    assert not b.hbm[:1000].any()
    assert np.array_equal(a.hbm, b.hbm[1000:])
    assert [t.value for t in a.step(9).tokens] == [t.value for t in b.step(9).tokens]


def spoiled(run, what):
    """Return the HBM image with one thing wrong."""
    hbm, m = run.hbm.copy(), run.compiled.map.hbm
    if what == "rotary row":
        hbm[m.rotary + 2 * m.rotary_row] = 0
    if what == "one scale beat":
        hbm[m.base + m.offsets["up"]] += 1
    if what == "layers swapped":
        layers = hbm[m.base : m.head].reshape(2, -1)
        layers[:] = layers[::-1].copy()
    return hbm


@pytest.mark.parametrize("what", [None, "rotary row", "one scale beat", "layers swapped"])
def test_the_bound_is_broken_by_a_fault(what):
    params = tile("ref")
    run = Run(SMALL, params, head="logits")
    run.start(params, spoiled(run, what))
    reference = ReferenceDecoder(run.quantized.dequantized())
    good = True
    for token in tokens(SMALL, 4):
        exact = reference.step(token)
        good &= bool((np.abs(run.logits(run.step(token)) - exact.logits) < exact.bound).all())
    assert good == (what is None)


@pytest.mark.parametrize(
    ("shape", "changes", "options", "message"),
    [
        (SMALL, {}, {"max_positions": 64}, "needs 576 beats, but the KV buffer has 512: 2 layers"),
        (SMALL, {}, {"max_positions": 300}, "max_positions = 300 is above 256"),
        (SMALL, {"act_blocks": 8}, {"ahead": 2}, "ahead = 2 needs 9 queue items"),
        (SMALL, {"program_words": 64}, {}, "instructions, but the program memory holds 64"),
        (SMALL, {"store_bytes": 1 << 16}, {}, "beats of HBM, which has 2048: layers "),
        (SMALL, {"scalars": 8}, {}, "registers of the scalar registers, which has 8"),
        (SMALL, {"vector_elements": 256}, {}, "elements of vector memory, which has 256"),
        (
            dataclasses.replace(SMALL, hidden=250),
            {},
            {},
            "blocks of a column of the activation buffer, which has 8: residual 4",
        ),
        (dataclasses.replace(SMALL, hidden=300), {}, {}, "matrix k has K = 320; the tile's max_k"),
        (dataclasses.replace(SMALL, vocab=257), {}, {}, "matrix head has 257 rows; index_bits = 8"),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(shape, changes, options, message):
    with pytest.raises(InputError, match=message):
        compile_decoder(shape, tile("tiny", **changes), Options(**{"max_positions": 32, **options}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_positions": 0}, "max_positions must be 1 to 65535, not 0"),
        ({"max_positions": 8, "ahead": 7}, "ahead must be 0 to 6, not 7"),
        ({"max_positions": 8, "head": "beam"}, "head 'beam' does not exist; choose one of arg_max"),
        ({"max_positions": 8, "embedding": "fp8"}, "embedding 'fp8' does not exist"),
        ({"max_positions": 8, "hbm_base": -1}, "hbm_base must not be negative"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Options(**options)


def test_models_must_be_those_of_the_program():
    compiled = compile_decoder(SMALL, tile("ref"), Options(max_positions=8, embedding="fp32"))
    with pytest.raises(InputError, match="the program is for ModelShape"):
        compiled.image(random_model(ODD, 1))
    with pytest.raises(InputError, match="matrix k is mxint8 in 1 planes, but the program is for"):
        compiled.image(quantize_model(random_model(SMALL, 1), Formats.of("mxint8")))
    with pytest.raises(InputError, match="fp32_embedding=True"):
        compiled.image(quantize_model(random_model(SMALL, 1)))
    model = random_model(SMALL, 1)
    quantized = quantize_model(model, fp32_embedding=True)
    assert np.array_equal(compiled.image(model), compiled.image(quantized))
