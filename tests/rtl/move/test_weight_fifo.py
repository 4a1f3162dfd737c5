"""WeightFifo in RTL: order, two beats per clock, errors of its memory."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.harness.stream_bench import StreamBench
from pequin.mac.types import weight_beats
from pequin.move.bench import FifoBench, flipped_beat
from pequin.tile.types import ErrorCode, UnitFault
from pequin_sim.rtl.bench import BenchJob, Pauses
from pequin_sim.rtl.payloads import pack, unpack, word_bytes

DEPTHS = {"input": 4096, "output": 4096, "faults": 16}
CAPACITY = 32


def stream_bench(**options):
    params = TileParams(TileConfig.preset("tiny"))
    assert params.config.fifo_beats == CAPACITY
    return elaborate(StreamBench(FifoBench(params, **options), depths=DEPTHS), "fifo_stream_bench")


@pytest.fixture(scope="module")
def design():
    return stream_bench()


@pytest.fixture(scope="module")
def single():
    """Return the bench that gives one beat at a time."""
    return stream_bench(single=True)


def play(design, count, *, transfers=None, opens=0, flips=None, pauses=None, faults=0):
    """Send beats and record transfers, as many as beats by default; return beats and run."""
    rng = np.random.default_rng(count)
    beats = rng.integers(0, 256, (count, 32)).astype(np.uint8)
    flip = np.zeros((count, 36), np.uint8)
    for place, bits in (flips or {}).items():
        flip[place] = np.frombuffer(bits.to_bytes(36, "little"), np.uint8)
    fields = {"beat": beats, "flip": flip, "open": np.arange(count) == opens}
    job = BenchJob(
        inputs={"input": pack(flipped_beat(), fields, count)},
        outputs={
            "output": (transfers or count, word_bytes(weight_beats())),
            "faults": (faults, word_bytes(UnitFault.as_shape())),
        },
        pauses=pauses or {},
        monitors=("latency", "fullest", "repairs", "broken"),
        timeout_clocks=60 * count + 1000,
    )
    run = job.run(design)
    assert run.after["broken"] == 0
    return beats, run


def received(run):
    words = run.recorded["output"]
    bits = np.unpackbits(words, axis=1, bitorder="little")
    two = bits[:, 512].astype(bool)
    beats = words[:, :64].reshape(-1, 2, 32)
    return np.concatenate([b[: 1 + t] for b, t in zip(beats, two, strict=True)]), two


def test_a_lone_beat_comes_after_four_clocks(design):
    beats, run = play(design, 1, transfers=1)
    got, two = received(run)
    np.testing.assert_array_equal(got, beats)
    assert run.after["latency"] == 4
    assert not two.any()


@pytest.mark.parametrize("count", [CAPACITY, CAPACITY - 1])
def test_a_full_fifo_gives_two_beats_per_clock(design, count):
    # The first beat was offered before its successor came, and stays alone.
    transfers = 1 + count // 2
    beats, run = play(design, count, transfers=transfers, opens=count - 1)
    got, two = received(run)
    np.testing.assert_array_equal(got, beats)
    assert two.sum() == (count - 1) // 2
    assert run.after["fullest"] == count
    # One beat per clock in, two out, and the clocks of the player and of the recorder.
    assert run.clocks <= count + transfers + 8


def test_beats_pass_at_one_per_clock(design):
    # The recorder is always ready: each beat is a transfer of its own.
    beats, run = play(design, 1000, transfers=1000)
    got, two = received(run)
    np.testing.assert_array_equal(got, beats)
    assert not two.any()
    assert run.clocks <= 1000 + 12
    assert run.after["fullest"] <= 6


def random_pauses(seed):
    long = {"burst_rate": 900, "burst_clocks": 90}
    return {
        "input": Pauses(rate=40, seed=seed, **long),
        "output": Pauses(rate=20, seed=seed + 1, **long),
    }


@pytest.mark.parametrize("seed", range(3))
def test_random_pauses(single, seed):
    beats, run = play(single, 3000, opens=int(seed * 10), pauses=random_pauses(seed))
    got, _ = received(run)
    np.testing.assert_array_equal(got, beats)
    assert run.after["fullest"] == CAPACITY


def test_single_errors_are_corrected(single):
    rng = np.random.default_rng(0)
    # In each of a beat's words one bit of data or of the check bits.
    flips = {}
    for place in range(0, 600, 2):
        bits = rng.integers(0, 72, 4)
        flips[place] = sum(
            1 << (64 * word + bit if bit < 64 else 256 + 8 * word + bit - 64)
            for word, bit in enumerate(bits.tolist())
        )
    beats, run = play(single, 600, flips=flips, pauses=random_pauses(7))
    np.testing.assert_array_equal(received(run)[0], beats)
    assert run.after["repairs"] == 300


@pytest.mark.parametrize("place", [0, 1, 37])
def test_a_double_error_is_a_fault(single, place):
    beats, run = play(single, 64, flips={place: 0b11 << 70, place + 5: 1}, faults=1)
    beats[place] = 0
    np.testing.assert_array_equal(received(run)[0], beats)
    fault = unpack(UnitFault.as_shape(), run.recorded["faults"])
    assert fault["code"].tolist() == [ErrorCode.SRAM_ECC.value]
    assert fault["detail"].tolist() == [15 << 28 | place % CAPACITY]
    assert run.after["repairs"] == 1


def test_wrong_sizes_are_refused():
    with pytest.raises(ConfigError, match="fifo_beats must be a power of two from 16"):
        TileParams(TileConfig.preset("tiny").replace(fifo_beats=24))
