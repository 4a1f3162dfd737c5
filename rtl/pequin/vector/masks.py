"""Which lanes of a row lie inside its vector, and inside the vector's limits."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.fp32.types import registered
from pequin.vector.rows import limits_write
from pequin.vector.types import LENGTH_BITS, VECTORS_BITS


class RowMasks(wiring.Component):
    """Hold the limits of each vector; mask rows by them.

    *Timing*: `mask` and `live` follow the other inputs by two clocks. A write is visible to rows
    of later clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    update : In(limits_write)
        New limits of a vector.
    vector, element, left, limited : In
        A row's vector, the number of its first element, elements from there to the vector's end,
        and whether the limits count.
    mask, live : Out(lanes)
        Lanes inside the vector, and those inside the limits too.
    """

    update: Any
    vector: Any
    element: Any
    left: Any
    limited: Any
    mask: Any
    live: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        self._lanes = params.config.lanes
        super().__init__(
            {
                "update": In(limits_write()),
                "vector": In(VECTORS_BITS),
                "element": In(LENGTH_BITS),
                "left": In(LENGTH_BITS + 1),
                "limited": In(1),
                "mask": Out(self._lanes),
                "live": Out(self._lanes),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        layout = data.StructLayout({"start": 16, "end": 16})
        limits: Any
        m.submodules.limits = limits = memory.Memory(
            shape=layout, depth=self._params.config.columns, init=[]
        )
        port, write = limits.read_port(domain="comb"), limits.write_port()
        m.d.comb += [
            port.addr.eq(self.vector),
            write.en.eq(self.update.valid),
            write.addr.eq(self.update.index),
            write.data.start.eq(self.update.start),
            write.data.end.eq(self.update.end),
        ]
        start = registered(m, "start", port.data.start)
        end = registered(m, "end", port.data.end)
        element = registered(m, "element_1", self.element)
        limited = registered(m, "limited_1", self.limited)
        left = self._low(registered(m, "left_1", self.left))
        before = self._low(Mux(start > element, start - element, 0))
        until = self._low(Mux(end > element, end - element, 0))
        inside = Mux(limited, until & ~before, -1)[: self._lanes]
        m.d.sync += [self.mask.eq(left), self.live.eq(left & inside)]
        return m

    def _low(self, count: Value) -> Value:
        """Return a mask of the lowest `count` lanes, at most all."""
        lanes = self._lanes
        few = Mux(count >= lanes, lanes, count)[: lanes.bit_length()]
        return ((Const(1, 1) << few) - 1)[:lanes]
