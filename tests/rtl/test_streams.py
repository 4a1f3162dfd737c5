"""Stream helpers: shapes are checked when streams are joined; the FIFO keeps order."""

import numpy as np
import pytest
from amaranth.hdl import Module, signed, unsigned
from amaranth.lib import data, stream
from amaranth.sim import Simulator

from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.streams import StreamFifo, connect_streams
from pequin_sim.toolchain import lint


def joined(source_shape, sink_shape):
    m = Module()
    source = stream.Signature(source_shape).create()
    sink = stream.Signature(sink_shape).create()
    connect_streams(m, source, sink)
    return m, source, sink


PAIR = data.StructLayout({"low": 4, "high": 4})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (unsigned(8), signed(8)),
        (unsigned(8), unsigned(7)),
        (PAIR, data.StructLayout({"high": 4, "low": 4})),
        (PAIR, unsigned(8)),
    ],
    ids=["sign", "width", "order of fields", "structure"],
)
def test_streams_of_different_payloads_are_not_joined(given, wanted):
    with pytest.raises(ConfigError, match=r"stream payloads differ: source has .*, sink takes"):
        joined(given, wanted)


def test_equal_payloads_are_joined():
    m, source, sink = joined(PAIR, data.StructLayout({"low": 4, "high": 4}))

    async def bench(ctx):
        for payload, valid, ready in ((0x5A, 1, 0), (0xC3, 0, 1)):
            ctx.set(source.payload.as_value(), payload)
            ctx.set(source.valid, valid)
            ctx.set(sink.ready, ready)
            await ctx.delay(1e-9)
            assert ctx.get(sink.payload.as_value()) == payload
            assert ctx.get(sink.valid) == valid
            assert ctx.get(source.ready) == ready

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_fifo_of_depth_one_is_refused():
    with pytest.raises(ConfigError, match="depth must be at least 2, not 1"):
        StreamFifo(unsigned(8), depth=1)


@pytest.mark.parametrize("depth", [2, 3, 16])
def test_fifo_keeps_every_item_in_order(depth):
    rng = np.random.default_rng(depth)
    dut = StreamFifo(unsigned(16), depth=depth)
    sent, received, levels = [], [], set()

    async def bench(ctx):
        offered = 0
        offering = False
        for clock in range(1500):
            # Phases with a fast writer and with a fast reader reach both ends.
            fast, slow = (0.9, 0.3) if clock // 100 % 2 else (0.3, 0.9)
            offering = offering or rng.random() < fast
            ctx.set(dut.input.payload, offered)
            ctx.set(dut.input.valid, offering)
            ctx.set(dut.output.ready, rng.random() < slow)
            levels.add(ctx.get(dut.level))
            assert ctx.get(dut.level) == len(sent) - len(received)
            accepted = offering and ctx.get(dut.input.ready)
            if ctx.get(dut.output.valid) and ctx.get(dut.output.ready):
                received.append(ctx.get(dut.output.payload))
            if accepted:
                sent.append(offered)
                offered, offering = offered + 1, False
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert received == sent[: len(received)]
    assert len(received) > 300
    assert levels == set(range(depth + 1))


def test_fifo_converts_and_is_lint_clean():
    lint(elaborate(StreamFifo(PAIR, depth=4), "stream_fifo"))
