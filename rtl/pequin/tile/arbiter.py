"""Two users of the vector unit's outside port."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.vector.types import access_request


class AccessArbiter(wiring.Component):
    """Join the accesses of the DMA unit and of the host; the one that did not go last goes first.

    Only the host reads, so the answers need no arbitration.

    *Timing*: no register in the path.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    dma, host : In(stream of access_request(params))
    output : Out(stream of access_request(params))
    """

    dma: Any
    host: Any
    output: Any

    def __init__(self, params: TileParams) -> None:
        request = stream.Signature(access_request(params))
        super().__init__({"dma": In(request), "host": In(request), "output": Out(request)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        host_last, locked, use_host = Signal(), Signal(), Signal()
        held = Signal()
        with m.If(locked):
            m.d.comb += use_host.eq(held)
        with m.Else():
            m.d.comb += use_host.eq(self.host.valid & ~(self.dma.valid & host_last))
        output = self.output
        m.d.comb += [
            output.payload.eq(Mux(use_host, self.host.payload, self.dma.payload)),
            output.valid.eq(Mux(use_host, self.host.valid, self.dma.valid)),
            self.host.ready.eq(output.ready & use_host),
            self.dma.ready.eq(output.ready & ~use_host),
        ]
        # What was offered stays until it is taken.
        m.d.sync += [locked.eq(output.valid & ~output.ready), held.eq(use_host)]
        with m.If(output.valid & output.ready):
            m.d.sync += host_last.eq(use_host)
        return m
