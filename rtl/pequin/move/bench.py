"""The weight FIFO with errors injected beat by beat, for `StreamBench`."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.hbm.types import BEAT_BITS, CHECK_BITS
from pequin.mac.types import weight_beats
from pequin.move.weight_fifo import WeightFifo
from pequin.streams import StreamFifo, connect_streams
from pequin.tile.types import UnitFault

FAULTS = 16
"""Faults that wait to be recorded."""


def flipped_beat() -> data.StructLayout:
    """Return a beat, the errors its stored word gets, and whether `output` opens after it."""
    return data.StructLayout({"beat": BEAT_BITS, "flip": BEAT_BITS + CHECK_BITS, "open": 1})


class FifoBench(wiring.Component):
    """`WeightFifo` whose output stays shut until a beat with `open` has gone in.

    Parameters
    ----------
    params
        The tile's parameters.
    single
        Give the beats of a transfer one after the other, so that their number is that of the
        beats whatever the timing.

    Members
    -------
    input : In(stream of flipped_beat())
    output : Out(stream of weight_beats())
    faults : Out(stream of UnitFault)
    latency : Out(16)
        Clocks from the first beat in to the first beat at the output.
    fullest, repairs : Out(32)
        Highest level, and beats corrected.
    broken : Out(1)
        An offer changed before it was taken, or level and room did not add up.
    """

    input: Any
    output: Any
    faults: Any
    latency: Any
    fullest: Any
    repairs: Any
    broken: Any

    def __init__(self, params: TileParams, *, single: bool = False) -> None:
        self._params, self._single = params, single
        super().__init__(
            {
                "input": In(stream.Signature(flipped_beat())),
                "output": Out(stream.Signature(weight_beats())),
                "faults": Out(stream.Signature(UnitFault)),
                "latency": Out(16),
                "fullest": Out(32),
                "repairs": Out(32),
                "broken": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.weights = inner = WeightFifo(self._params)
        m.submodules.failed = failed = StreamFifo(UnitFault, depth=FAULTS)
        connect_streams(m, failed.output, self.faults)
        is_open, first_in, first_out = Signal(), Signal(), Signal()
        m.d.comb += [
            inner.input.payload.eq(self.input.payload.beat),
            inner.input.valid.eq(self.input.valid),
            self.input.ready.eq(inner.input.ready),
            inner.flip.eq(self.input.payload.flip),
            failed.input.payload.eq(inner.fault),
            failed.input.valid.eq(inner.fault_valid),
        ]
        self._pass_on(m, inner.output, is_open)
        taken = self.input.valid & self.input.ready
        with m.If(taken & self.input.payload.open):
            m.d.sync += is_open.eq(1)
        m.d.sync += [
            first_in.eq(first_in | taken),
            first_out.eq(first_out | inner.output.valid),
            self.latency.eq(self.latency + ((taken | first_in) & ~first_out & ~inner.output.valid)),
            self.fullest.eq(Mux(inner.level > self.fullest, inner.level, self.fullest)),
            self.repairs.eq(self.repairs + inner.repaired[0] + inner.repaired[1]),
        ]
        self._watch(m, inner)
        return m

    def _pass_on(self, m: Module, given: Any, is_open: Signal) -> None:
        output, second = self.output, Signal(name="second")
        m.d.comb += [
            output.payload.eq(given.payload),
            output.valid.eq(given.valid & is_open),
            given.ready.eq(output.ready & is_open),
        ]
        if self._single:
            with m.If(second):
                m.d.comb += output.payload.beats[0].eq(given.payload.beats[1])
            m.d.comb += [
                output.payload.two.eq(0),
                given.ready.eq(output.ready & is_open & (second | ~given.payload.two)),
            ]
            with m.If(output.valid & output.ready):
                m.d.sync += second.eq(~second & given.payload.two)

    def _watch(self, m: Module, inner: Any) -> None:
        """Check that an offer stays until it is taken, and that level and room add up."""
        output = inner.output
        waited, before = Signal(), Signal.like(output.payload, name="before")
        m.d.sync += [waited.eq(output.valid & ~output.ready), before.eq(output.payload)]
        now = output.payload
        same = (now.two == before.two) & (now.beats[0] == before.beats[0])
        same &= ~now.two | (now.beats[1] == before.beats[1])
        wrong = inner.level + inner.room != self._params.config.fifo_beats
        with m.If((waited & ~(output.valid & same)) | wrong):
            m.d.sync += self.broken.eq(1)
