"""Players and recorders in RTL simulation: items, order, stream rules, clocks."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.harness.player import word_bits
from pequin.harness.stream_bench import SETTLE_CLOCKS, StreamBench
from pequin.streams import connect_streams
from pequin_sim.rtl.bench import BenchJob, Pauses
from pequin_sim.runner import SimulationFailed
from pequin_sim.toolchain import lint


class Passage(wiring.Component):
    """Two streams straight through, and a watcher of the stream rule on both inputs."""

    first_in: In(stream.Signature(unsigned(12)))
    second_in: In(stream.Signature(unsigned(40)))
    first_out: Out(stream.Signature(unsigned(12)))
    second_out: Out(stream.Signature(unsigned(40)))
    broken: Out(1)
    offered_early: Out(1)

    def elaborate(self, platform):
        m = Module()
        pairs = ((self.first_in, self.first_out), (self.second_in, self.second_out))
        for source, sink in pairs:
            connect_streams(m, wiring.flipped(source), wiring.flipped(sink))
            waited = registered(m, source.valid & ~source.ready)
            payload = registered(m, source.payload)
            # An item that was offered stays, unchanged, until it is taken.
            with m.If(waited & (~source.valid | (source.payload != payload))):
                m.d.sync += self.broken.eq(1)
        seen = counted(m, self.second_in)
        with m.If(self.first_in.valid & (seen != 20)):
            m.d.sync += self.offered_early.eq(1)
        return m


def registered(m, value):
    held = Signal(value.shape())
    m.d.sync += held.eq(value)
    return held


def counted(m, source):
    count = Signal(16)
    m.d.sync += count.eq(count + (source.valid & source.ready))
    return count


DEPTHS = {"first_in": 300, "second_in": 20, "first_out": 300, "second_out": 20}


@pytest.fixture(scope="module")
def design():
    return elaborate(StreamBench(Passage(), depths=DEPTHS, preload=("second_in",)), "passage")


def play(design, pauses=None, **changes):
    rng = np.random.default_rng(1)
    first = rng.integers(0, 1 << 12, 300).astype("<u2").view(np.uint8).reshape(300, 2)
    second = rng.integers(0, 256, (20, 5)).astype(np.uint8)
    job = {
        "inputs": {"first_in": first, "second_in": second},
        "outputs": {"first_out": (300, 2), "second_out": (20, 5)},
        "pauses": pauses or {},
        "monitors": ("broken", "offered_early"),
        "timeout_clocks": 20000,
    }
    run = BenchJob(**(job | changes)).run(design)
    np.testing.assert_array_equal(run.recorded["first_out"], first)
    np.testing.assert_array_equal(run.recorded["second_out"], second)
    assert run.after == {"broken": 0, "offered_early": 0}
    return run


def test_one_item_per_clock_without_pauses(design):
    # The first item shows two clocks after its start.
    assert play(design).clocks == 300 + 1


@pytest.mark.parametrize("sides", [("first_in",), ("first_out",), ("first_in", "first_out")])
def test_pauses_lose_nothing_and_keep_the_stream_rule(design, sides):
    pauses = {name: Pauses(rate=96, seed=i + 3) for i, name in enumerate(sides)}
    run = play(design, pauses)
    share = 1 - 300 / run.clocks
    expected = 96 / 256 if len(sides) == 1 else 1 - (160 / 256) ** 2
    assert share == pytest.approx(expected, abs=0.15)


def test_bursts(design):
    pauses = {"first_in": Pauses(burst_rate=1500, burst_clocks=200, seed=4)}
    clocks = play(design, pauses | {"second_in": Pauses(rate=128)}).clocks
    assert clocks > 700
    assert (clocks - 301) % 200 == 0


def test_a_run_that_hangs_says_how_far_it_came(design):
    outputs = {"first_out": (301, 2), "second_out": (20, 5)}
    with pytest.raises(SimulationFailed, match=r"after 2000 clocks: recorded first_out 300"):
        play(design, outputs=outputs, timeout_clocks=2000)


def test_words_are_whole_bytes():
    assert [word_bits(unsigned(n)) for n in (1, 8, 9, 40)] == [8, 8, 16, 40]
    assert SETTLE_CLOCKS > 2


@pytest.mark.parametrize(
    ("depths", "preload"),
    [({"first_in": 4}, ()), ({**DEPTHS, "other": 4}, ()), (DEPTHS, ("nothing",))],
)
def test_wrong_streams_are_named(depths, preload):
    with pytest.raises(ConfigError, match=r"depths must name the component's streams \['first_in'"):
        StreamBench(Passage(), depths=depths, preload=preload)


def test_converts_and_is_lint_clean(design):
    lint(design)
