"""Lets a unit be cleared while its HBM reads are on their way."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.types import HbmPort

COUNT_BITS = 16
"""Bits of the count of requests on their way."""


class ReadGuard(wiring.Component):
    """Pass a unit's read requests and their beats; on request, close and drop what still comes.

    Writes are not passed: no unit behind a guard writes.

    *Timing*: no register in the path.

    Members
    -------
    unit : In(HbmPort())
        The unit's side.
    port : Out(HbmPort())
        The channel's side.
    close : In(1)
        Pass no more requests, and drop the beats of those that were passed.
    idle : Out(1)
        No request is on its way.
    """

    unit: Any
    port: Any
    close: Any
    idle: Any

    def __init__(self) -> None:
        super().__init__(
            {"unit": In(HbmPort()), "port": Out(HbmPort()), "close": In(1), "idle": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        unit, port = self.unit, self.port
        # A request that the channel has refused to take yet must not be withdrawn.
        offered = Signal()
        pass_on = offered | ~self.close
        m.d.comb += [
            port.request.payload.eq(unit.request.payload),
            port.request.valid.eq(unit.request.valid & pass_on),
            unit.request.ready.eq(port.request.ready & pass_on),
            unit.read_data.payload.eq(port.read_data.payload),
            unit.read_data.valid.eq(port.read_data.valid & ~self.close),
            port.read_data.ready.eq(unit.read_data.ready | self.close),
            port.write_ack.ready.eq(1),
        ]
        m.d.sync += offered.eq(port.request.valid & ~port.request.ready)
        requests = Signal(COUNT_BITS)
        sent = port.request.valid & port.request.ready
        ended = port.read_data.valid & port.read_data.ready & port.read_data.payload.last
        m.d.comb += self.idle.eq((requests == 0) & ~offered)
        m.d.sync += requests.eq(requests + sent - ended)
        return m
