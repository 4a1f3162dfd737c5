"""Steps of several columns on the golden machine: the same bits as each sequence alone."""

import dataclasses

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim.compiler import Options, compile_decoder
from pequin_sim.machine import Column, Machine, Step
from pequin_sim.model import Formats, ModelShape, quantize_model, random_model

SMALL = ModelShape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=172, vocab=250)
ODD = ModelShape(
    layers=2, hidden=72, heads=4, kv_heads=2, head_dim=20, mlp=50, vocab=33, rotary="half"
)
GROUPED = ModelShape(
    layers=2, hidden=96, heads=12, kv_heads=3, head_dim=34, mlp=65, vocab=101, rope_theta=500.0
)
MIXED = Formats.of("mxfp4", head="mxint8", k="mxfp4x2", down="mxint8")


def tile(preset, **changes):
    return TileParams(TileConfig.preset(preset).replace(**changes))


class Tile:
    """A compiled decoder on a golden machine."""

    def __init__(self, shape, params, **options):
        options = {"max_positions": 40, "formats": MIXED, "head": "logits", **options}
        self.compiled = compile_decoder(shape, params, Options(**options))
        self.shape, self.options = shape, self.compiled.plan.options
        quantized = quantize_model(
            random_model(shape, 1), MIXED, fp32_embedding=options.get("embedding") == "fp32"
        )
        self.machine = Machine(params, self.compiled.image(quantized), self.compiled.program)
        self.machine.run()

    def step(self, *columns):
        """Give (slot, token, position, wants[, start]); return the result and the logits' bits."""
        slot = self.compiled.map.kv.slot
        table = [
            Column(s, token, position, *(start or [0]), flags=wants, kv_base=s * slot)
            for s, token, position, wants, *start in columns
        ]
        result = self.machine.step(Step(table))
        assert result.state == "waiting", result.events
        vector = self.compiled.map.vector
        found = []
        for number in range(sum(c[3] for c in columns)):
            at = vector.logits + number * vector.logits_stride
            found.append(result.vector[at : at + self.shape.vocab].copy())
        return result, found


class Sequences:
    """Random tokens of several sequences, and each one's logits when it is decoded alone."""

    def __init__(self, shape, count, length, **options):
        self.tokens = np.random.default_rng(3).integers(0, shape.vocab, (count, length))
        params = tile("ref", kv_beats=1 << 16)
        self.logits = []
        for sequence in self.tokens:
            alone = Tile(shape, params, **options)
            self.logits.append(
                [alone.step((0, int(t), p, 1))[1][0] for p, t in enumerate(sequence)]
            )

    def column(self, slot, position, wants=1):
        return (slot, int(self.tokens[slot][position]), position, wants)

    def check(self, batch, columns):
        """Give a step and compare its logits."""
        result, found = batch.step(*columns)
        wanted = [(slot, position) for slot, _, position, wants in columns if wants]
        for (slot, position), logits in zip(wanted, found, strict=True):
            assert np.array_equal(logits, self.logits[slot][position]), (slot, position)
        assert result.events[-1].kind.name == "DONE"
        assert result.events[-1].value == len(columns)
        return result


@pytest.fixture(scope="module")
def small():
    return Sequences(SMALL, 16, 36)


@pytest.fixture(scope="module")
def grouped():
    return Sequences(GROUPED, 3, 4)


@pytest.mark.parametrize("count", [1, 3, 8, 9, 16])
def test_sequences_of_a_batch_are_decoded_as_if_alone(small, count):
    """Paired up to 8, one column each above; positions differ after the prompts."""
    batch = Tile(SMALL, tile("ref"), batch=16)
    for position in range(2):
        small.check(batch, [small.column(s, position) for s in range(count)])
    places = [2] * count
    for turn in range(3):
        chosen = [s for s in range(count) if (s + turn) % 3 or count == 1]
        small.check(batch, [small.column(s, places[s]) for s in chosen])
        for s in chosen:
            places[s] += 1
    small.check(batch, [small.column(s, places[s]) for s in reversed(range(count))])


TINY_MODEL = dataclasses.replace(SMALL, heads=2, kv_heads=1, hidden=40, mlp=60, vocab=50)


@pytest.mark.parametrize("preset", ["tiny", "fpga", "ref", "wide"])
def test_all_presets(preset):
    params = tile(preset)
    sequences = Sequences(TINY_MODEL, 2, 4, max_positions=8)
    batch = Tile(TINY_MODEL, params, batch=params.config.columns, max_positions=8)
    for position in range(3):
        sequences.check(batch, [sequences.column(s, position) for s in range(2)])
    for slot in range(2):
        sequences.check(batch, [sequences.column(slot, 3)])


@pytest.mark.parametrize(
    ("changes", "waves", "buffers"),
    [
        ({}, 1, 2),
        ({"scalars": 32}, 3, 2),
        ({"scalars": 16}, 3, 1),
        ({"columns": 2, "drain_lanes": 2}, 1, 2),
        ({"columns": 2, "drain_lanes": 2, "scalars": 16}, 6, 2),
        ({"columns": 4, "drain_lanes": 4, "scalars": 16}, 3, 1),
    ],
)
def test_attention_fits_itself_to_small_memories(grouped, changes, waves, buffers):
    params = tile("ref", kv_beats=1 << 16, **changes)
    batch = Tile(GROUPED, params, batch=2)
    plan = batch.compiled.map.attention
    assert (len(plan.waves), plan.buffers) == (waves, buffers)
    for position in range(3):
        grouped.check(batch, [grouped.column(s, position) for s in (1, 2)])
    grouped.check(batch, [grouped.column(2, 3)])


@pytest.mark.parametrize("embedding", ["mxint8", "fp32"])
def test_odd_shapes_and_embeddings(embedding):
    sequences = Sequences(ODD, 3, 4, embedding=embedding)
    batch = Tile(ODD, tile("ref"), embedding=embedding, batch=4)
    for position in range(4):
        sequences.check(batch, [sequences.column(s, position) for s in range(3)])


def test_a_prompt_in_chunks_beside_decoding(small):
    """K and V of all columns are there before any attends; only some columns want logits."""
    batch = Tile(SMALL, tile("ref"), batch=16)
    small.check(batch, [small.column(0, p, 0) for p in range(16)])
    small.check(batch, [small.column(0, p, int(p == 30)) for p in range(16, 31)])
    mixed = [small.column(1, p, int(p in (3, 8))) for p in range(9)]
    small.check(batch, [small.column(0, 31), *mixed, small.column(2, 0)])
    small.check(batch, [small.column(1, 9), small.column(0, 32, 0), small.column(0, 33)])
    # Their order in the table does not matter.
    small.check(batch, [small.column(2, 2), small.column(0, 34), small.column(2, 1)])


@pytest.mark.parametrize("changes", [{}, {"scalars": 32}, {"columns": 4, "drain_lanes": 4}])
def test_windows_by_column(changes):
    """Each column has its own first position, and columns without one lie between."""
    length, window = 38, 5
    tokens = np.random.default_rng(5).integers(0, GROUPED.vocab, length)
    params = tile("ref", kv_beats=1 << 16)
    alone, batch = Tile(GROUPED, params), Tile(GROUPED, tile("ref", **changes), batch=4)
    whole = Tile(GROUPED, params)

    def column(slot, position, window=length):
        return (slot, int(tokens[position]), position, 1, max(0, position - window))

    differ = 0
    for position in range(length):
        masked = alone.step(column(0, position, window))[1][0]
        full = whole.step(column(0, position))[1][0]
        differ += not np.array_equal(masked, full)
        columns = [column(0, position, window), column(1, position), column(2, position, window)]
        found = batch.step(*columns)[1]
        for logits, wanted in zip(found, (masked, full, masked), strict=True):
            assert np.array_equal(logits, wanted), position
    assert differ == length - window - 1


def test_a_step_without_logits_reads_no_head(small):
    batch = Tile(SMALL, tile("ref"), batch=16)
    result = small.check(batch, [small.column(0, p, 0) for p in range(3)])
    assert not result.tokens
    hbm = batch.compiled.map.hbm
    for command in result.commands:
        assert all(p.memory != "hbm" or p.start != hbm.head for p in command.reads)


def test_the_best_entries_come_with_the_factor_that_makes_them_logits(small):
    """TOKEN events of the MAC array are raw; one of the vector unit for each column has 1 / rms."""
    batch = Tile(SMALL, tile("ref"), batch=16, head="top_k")
    for columns in (
        [small.column(s, 0) for s in range(3)],
        [small.column(s, 1, int(s != 1)) for s in range(3)],
        [small.column(3, p, int(p % 5 == 4)) for p in range(15)],
    ):
        result, _ = batch.step(*columns)
        entries = [t for t in result.tokens if t.unit == "mac"]
        factors = [t for t in result.tokens if t.unit == "vector"]
        wanted = [(slot, position) for slot, _, position, wants in columns if wants]
        assert [f.vector for f in factors] == list(range(len(wanted)))
        for vector, (slot, position) in enumerate(wanted):
            logits = small.logits[slot][position].view(np.float32)
            order = np.argsort(-logits, kind="stable")[:8]
            own = [t for t in entries if t.vector == vector]
            assert [t.value for t in own] == list(order)
            raw = np.array([t.detail for t in own], np.uint32).view(np.float32)
            factor = np.array([factors[vector].detail], np.uint32).view(np.float32)
            assert np.array_equal(raw * factor, logits[order])


@pytest.mark.parametrize("ahead", [0, 3, 6])
def test_streams_may_be_any_number_of_matrices_ahead(small, ahead):
    batch = Tile(SMALL, tile("ref"), batch=4, ahead=ahead)
    small.check(batch, [small.column(s, 0, int(s != 1)) for s in range(3)])
    small.check(batch, [small.column(s, 1) for s in range(3)])


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"batch": 17}, "batch = 17, but the tile has 16 columns"),
        ({"scalars": 16}, {"batch": 16}, "registers of the scalar registers, which has 16: const"),
        ({"vector_elements": 1024}, {"batch": 9}, "elements of vector memory, which has 1024"),
        ({"act_blocks": 8, "max_k": 256}, {"batch": 9}, "blocks of a column of the activation"),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(changes, options, message):
    with pytest.raises(InputError, match=message):
        compile_decoder(SMALL, tile("ref", **changes), Options(max_positions=32, **options))


def test_a_batch_has_at_least_one_column():
    with pytest.raises(InputError, match="batch must be at least 1, not 0"):
        Options(max_positions=8, batch=0)
