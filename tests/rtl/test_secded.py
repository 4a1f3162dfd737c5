"""EccRam in RTL: every single-bit error of a word is corrected, double ones are told."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.harness.stream_bench import StreamBench
from pequin.secded import READ_CLOCKS, EccRam
from pequin.streams import StreamFifo, connect_streams
from pequin_sim.rtl.bench import BenchJob, Pauses
from pequin_sim.rtl.payloads import pack, unpack, word_bytes
from pequin_sim.toolchain import lint

DEPTH = 512
WRITE = data.StructLayout({"address": range(DEPTH), "beat": 256, "flip": 288})
ANSWER = data.StructLayout({"beat": 256, "address": range(DEPTH), "repaired": 1, "failed": 1})
IMAGES = {"writes": 1024, "reads": 2048, "answers": 2048}


class RamBench(wiring.Component):
    """Writes and reads of an `EccRam` as streams; `late` tells a read that took other clocks."""

    writes: In(stream.Signature(WRITE))
    reads: In(stream.Signature(range(DEPTH)))
    answers: Out(stream.Signature(ANSWER))
    repairs: Out(32)
    late: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.protected = ram = EccRam(depth=DEPTH, name="protected")
        m.submodules.queue = queue = StreamFifo(ANSWER, depth=16)
        connect_streams(m, queue.output, wiring.flipped(self.answers))
        asked = Signal(READ_CLOCKS)
        m.d.comb += [
            self.writes.ready.eq(1),
            ram.write_en.eq(self.writes.valid),
            ram.write_addr.eq(self.writes.payload.address),
            ram.write_data.eq(self.writes.payload.beat),
            ram.flip.eq(self.writes.payload.flip),
            self.reads.ready.eq(queue.level < 8),
            ram.read_en.eq(self.reads.valid & self.reads.ready),
            ram.read_addr.eq(self.reads.payload),
            queue.input.valid.eq(ram.read_valid),
            queue.input.payload.beat.eq(ram.read_data),
            queue.input.payload.address.eq(ram.read_from),
            queue.input.payload.repaired.eq(ram.repaired),
            queue.input.payload.failed.eq(ram.failed),
            self.repairs.eq(ram.repairs),
        ]
        m.d.sync += asked.eq((asked << 1) | ram.read_en)
        with m.If(asked[-1] != ram.read_valid):
            m.d.sync += self.late.eq(1)
        return m


@pytest.fixture(scope="module")
def design():
    bench = StreamBench(RamBench(), depths=IMAGES, preload=("writes",))
    return elaborate(bench, "ecc_ram_bench")


def play(design, beats, flips, places=None, reads=None, pauses=None):
    """Write beats, then read; return the answers' beats and fields, and the run."""
    places = np.arange(len(beats)) if places is None else places
    reads = np.arange(len(beats)) if reads is None else reads
    stored = np.stack([np.frombuffer(f.to_bytes(36, "little"), np.uint8) for f in flips])
    fields = {"address": places, "beat": beats, "flip": stored}
    job = BenchJob(
        inputs={
            "writes": pack(WRITE, fields, len(beats)),
            "reads": reads.astype("<u2").view(np.uint8).reshape(-1, 2),
        },
        outputs={"answers": (len(reads), word_bytes(ANSWER))},
        pauses=pauses or {},
        monitors=("repairs", "late"),
        timeout_clocks=20000,
    )
    run = job.run(design)
    assert run.after["late"] == 0
    answers = unpack(ANSWER, run.recorded["answers"])
    assert answers["address"].tolist() == reads.tolist()
    return run.recorded["answers"][:, :32], answers, run


def random_beats(seed, count=DEPTH):
    return np.random.default_rng(seed).integers(0, 256, (count, 32)).astype(np.uint8)


def place_of(word, bit):
    """Return a bit of a word's code in the stored word: data bits, then check bits."""
    return 64 * word + bit if bit < 64 else 256 + 8 * word + bit - 64


def test_beats_come_back_two_clocks_later_one_per_clock(design):
    beats = random_beats(0)
    got, answers, run = play(design, beats, [0] * DEPTH)
    np.testing.assert_array_equal(got, beats)
    assert not answers["repaired"].any()
    assert not answers["failed"].any()
    assert run.after["repairs"] == 0
    assert run.clocks <= DEPTH + 12


def test_each_single_error_is_corrected(design):
    beats = random_beats(1, 288)
    flips = [1 << bit for bit in range(288)]
    got, answers, run = play(design, beats, flips)
    np.testing.assert_array_equal(got, beats)
    assert answers["repaired"].all()
    assert not answers["failed"].any()
    assert run.after["repairs"] == 288


def test_an_error_in_each_word_is_corrected(design):
    rng = np.random.default_rng(2)
    beats = random_beats(2)
    flips = [sum(1 << place_of(w, int(rng.integers(72))) for w in range(4)) for _ in beats]
    got, answers, run = play(design, beats, flips)
    np.testing.assert_array_equal(got, beats)
    assert run.after["repairs"] == DEPTH
    assert answers["repaired"].all()


@pytest.mark.parametrize("also", [False, True])
def test_double_errors_are_told_and_give_zeros(design, also):
    # `also`: another word of the beat has a single error.
    rng = np.random.default_rng(3)
    beats, flips = random_beats(3), []
    for _ in beats:
        word = int(rng.integers(4))
        first, second = rng.choice(72, 2, replace=False).tolist()
        flip = 1 << place_of(word, first) | 1 << place_of(word, second)
        flips.append(flip | (1 << place_of((word + 1) % 4, first) if also else 0))
    got, answers, run = play(design, beats, flips)
    assert answers["failed"].all()
    assert not answers["repaired"].any()
    assert not got.any()
    assert run.after["repairs"] == 0


def test_a_mix_in_any_order_with_pauses(design):
    rng = np.random.default_rng(4)
    count = 900
    places = rng.integers(0, DEPTH, count)
    beats = random_beats(4, count)
    kinds = rng.integers(0, 3, count)
    flips = []
    for kind in kinds:
        first, second = rng.choice(72, 2, replace=False).tolist()
        double = 1 << place_of(1, first) | 1 << place_of(1, second)
        flips.append((0, 1 << place_of(2, first), double)[kind])
    state = np.zeros((DEPTH, 32), np.uint8)
    state_kind = np.zeros(DEPTH, np.int64)
    for i in range(count):
        state[places[i]], state_kind[places[i]] = beats[i], kinds[i]
    reads = rng.integers(0, DEPTH, 2000)
    pauses = {name: Pauses(rate=80, seed=i + 1) for i, name in enumerate(IMAGES)}
    got, answers, run = play(design, beats, flips, places, reads, pauses)
    wanted = np.where((state_kind == 2)[reads, None], 0, state[reads])
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(answers["repaired"], state_kind[reads] == 1)
    np.testing.assert_array_equal(answers["failed"], state_kind[reads] == 2)
    assert run.after["repairs"] == (state_kind[reads] == 1).sum()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 1, "name": "x"}, "depth must be at least 2 beats, not 1"),
        ({"depth": 4, "name": "a b"}, "a RAM's name may hold letters"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        EccRam(**arguments)


@pytest.mark.parametrize("depth", [2, 3, 1000])
def test_converts_and_is_lint_clean(depth):
    ram = EccRam(depth=depth, name="protected")
    assert (ram.depth, ram.name) == (depth, "protected")
    lint(elaborate(ram, "ecc_ram"))
