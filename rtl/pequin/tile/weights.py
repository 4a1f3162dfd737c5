"""Which of the two weight sources feeds the MAC array."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.mac.types import weight_beats

IN_FLIGHT = 32
"""Commands whose source, or whose beats, may be known ahead."""


class WeightSelect(wiring.Component):
    """Pass the beats of one command after another, from the weight FIFO or the KV buffer.

    The FIFO's stream has no marks: the beats of a `stream` command belong to one `mac` command,
    and their count ends it. A transfer that holds the end of one command and the beginning of the
    next is taken apart.

    *Timing*: no register between a source and `output`; no clock is lost between two commands
    that are known early.

    Members
    -------
    source : In(stream of 1 bit)
        For each `mac` command: 0 FIFO, 1 KV buffer.
    beats : In(stream of 32 bits)
        For each `stream` command: its beats.
    fifo : In(stream of weight_beats())
    kv : In(stream of weight_beats())
    kv_last : In(1)
        With a transfer of `kv`: it ends its command. No transfer joins two commands.
    output : Out(stream of weight_beats())
        The second beat of a transfer of one means nothing, and may change.
    waiting : Out(1), waits_for_kv : Out(1)
        The current command has no beats to pass, and where they are to come from.
    """

    source: Any
    beats: Any
    fifo: Any
    kv: Any
    kv_last: Any
    output: Any
    waiting: Any
    waits_for_kv: Any

    def __init__(self) -> None:
        transfer = stream.Signature(weight_beats())
        super().__init__(
            {
                "source": In(stream.Signature(1)),
                "beats": In(stream.Signature(32)),
                "fifo": In(transfer),
                "kv": In(transfer),
                "kv_last": In(1),
                "output": Out(transfer),
                "waiting": Out(1),
                "waits_for_kv": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.sources = sources = fifo.SyncFIFO(width=1, depth=IN_FLIGHT)
        m.submodules.counts = counts = fifo.SyncFIFO(width=32, depth=IN_FLIGHT)
        active, from_kv, left = Signal(), Signal(), Signal(32)
        kept, kept_valid = Signal(len(self.fifo.payload.beats[0])), Signal()
        one_left = Signal()
        m.d.comb += [
            sources.w_data.eq(self.source.payload),
            sources.w_en.eq(self.source.valid),
            self.source.ready.eq(sources.w_rdy),
            counts.w_data.eq(self.beats.payload),
            counts.w_en.eq(self.beats.valid),
            self.beats.ready.eq(counts.w_rdy),
            self.waiting.eq(active & ~self.output.valid),
            self.waits_for_kv.eq(from_kv),
        ]
        output, given = self.output, self.fifo.payload
        taken, last = Signal(), Signal()
        m.d.comb += taken.eq(output.valid & output.ready)
        with m.If(from_kv):
            m.d.comb += [
                output.payload.eq(self.kv.payload),
                output.valid.eq(active & self.kv.valid),
                self.kv.ready.eq(active & output.ready),
                last.eq(self.kv_last),
            ]
        with m.Else():
            single = kept_valid | one_left | ~given.two
            m.d.comb += [
                output.payload.beats[0].eq(Mux(kept_valid, kept, given.beats[0])),
                output.payload.beats[1].eq(given.beats[1]),
                output.payload.two.eq(~single),
                output.valid.eq(active & (kept_valid | self.fifo.valid)),
                self.fifo.ready.eq(active & ~kept_valid & output.ready),
                last.eq(Mux(single, one_left, left == 2)),
            ]
            with m.If(taken):
                m.d.sync += [
                    left.eq(left - Mux(single, 1, 2)),
                    one_left.eq(left == Mux(single, 2, 3)),
                    kept_valid.eq(~kept_valid & one_left & given.two),
                    kept.eq(given.beats[1]),
                ]
        begin = Signal()
        m.d.comb += begin.eq((~active | (taken & last)) & sources.r_rdy)
        known = sources.r_data | counts.r_rdy
        m.d.comb += [
            sources.r_en.eq(begin & known),
            counts.r_en.eq(begin & known & ~sources.r_data),
        ]
        with m.If(sources.r_en):
            m.d.sync += [
                active.eq(1),
                from_kv.eq(sources.r_data),
                left.eq(counts.r_data),
                one_left.eq(counts.r_data == 1),
            ]
        with m.Elif(taken & last):
            m.d.sync += active.eq(0)
        return m
