"""START, STOP and CLEAR between the link and the tile."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.host.types import PacketType
from pequin.tile.types import PC_BITS, ControlKind, TileControl

KINDS = {
    PacketType.START: ControlKind.START,
    PacketType.STOP: ControlKind.STOP,
    PacketType.CLEAR: ControlKind.CLEAR,
}
"""Packet types that are orders."""


class OrderQueue(wiring.Component):
    """Hand orders to the tile one after the other, and tell when each was taken.

    Parameters
    ----------
    depth
        Orders that may wait.

    Members
    -------
    type : In(8), id : In(16), pc : In(PC_BITS), accept : In(1)
        Pulse: a packet of one of `KINDS`. The caller sees to it that no more than `depth` wait.
    control : Out(stream of TileControl)
    taken : Out(stream of 24 bits)
        Type and id of an order that the tile has taken.
    waiting : Out(1)
        The tile has not taken the oldest one.

    Raises
    ------
    ConfigError
        There is no place.
    """

    type: Any
    id: Any
    pc: Any
    accept: Any
    control: Any
    taken: Any
    waiting: Any

    def __init__(self, *, depth: int) -> None:
        if depth < 1:
            raise ConfigError(f"an order queue's depth must be at least 1, not {depth}")
        self._depth = depth
        super().__init__(
            {
                "type": In(8),
                "id": In(16),
                "pc": In(PC_BITS),
                "accept": In(1),
                "control": Out(stream.Signature(TileControl)),
                "taken": Out(stream.Signature(24)),
                "waiting": Out(1),
            }
        )

    @property
    def depth(self) -> int:
        """Orders that may wait."""
        return self._depth

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFO(width=24 + PC_BITS, depth=self._depth)
        kind = queue.r_data[:8]
        m.d.comb += [
            queue.w_data.eq(Cat(self.type, self.id, self.pc)),
            queue.w_en.eq(self.accept),
            self.control.payload.pc.eq(queue.r_data[24:]),
            self.control.valid.eq(queue.r_rdy & ~self.taken.valid),
            queue.r_en.eq(self.control.valid & self.control.ready),
            self.waiting.eq(self.control.valid),
        ]
        with m.Switch(kind):
            for packet_type, order in KINDS.items():
                with m.Case(packet_type):
                    m.d.comb += self.control.payload.kind.eq(order)
        with m.If(queue.r_en):
            m.d.sync += [self.taken.valid.eq(1), self.taken.payload.eq(queue.r_data[:24])]
        with m.Elif(self.taken.ready):
            m.d.sync += self.taken.valid.eq(0)
        return m
