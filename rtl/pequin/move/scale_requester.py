"""Asks the KV buffer for one beat of each granule."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.move.dma_types import kv_range


class ScaleRequester(wiring.Component):
    """Walk ranges of evenly spaced beats.

    *Timing*: an address shows one clock after its range was accepted; one address per clock.

    Members
    -------
    ranges : In(stream of kv_range())
    request : Out(stream of 32-bit beat addresses)
    stop : In(1)
        Begin no further range.
    """

    ranges: Any
    request: Any
    stop: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "ranges": In(stream.Signature(kv_range())),
                "request": Out(stream.Signature(32)),
                "stop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        step, left = Signal(32), Signal(32)
        request = self.request
        m.d.comb += self.ranges.ready.eq(~request.valid & ~self.stop)
        with m.If(request.valid & request.ready):
            m.d.sync += [
                request.payload.eq(request.payload + step),
                left.eq(left - 1),
                request.valid.eq((left != 1) & ~self.stop),
            ]
        with m.If(self.ranges.valid & self.ranges.ready):
            m.d.sync += [
                request.payload.eq(self.ranges.payload.address),
                step.eq(self.ranges.payload.step),
                left.eq(self.ranges.payload.count),
                request.valid.eq(1),
            ]
        return m
