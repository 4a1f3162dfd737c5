"""Events of all sources, stamped and buffered for the host."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.tile.types import STAMP_BITS, TileEvent


class EventMerge(wiring.Component):
    """Join event streams in the order of their coming; the lowest number first in one clock.

    *Timing*: an event is accepted in the clock in which it is offered while there is room, and
    gets the stamp of that clock.

    Parameters
    ----------
    sources
        Streams to join.
    depth
        Events that wait for the host.

    Members
    -------
    source : In(stream of TileEvent).array(sources)
        Their stamps are not read.
    stamp : In(STAMP_BITS)
        The clock.
    output : Out(stream of TileEvent)
    blocked : Out(1)
        An event waits and has no room.

    Raises
    ------
    ConfigError
        There is no source, or fewer than 2 places.
    """

    source: Any
    stamp: Any
    output: Any
    blocked: Any

    def __init__(self, *, sources: int, depth: int = 16) -> None:
        if sources < 1:
            raise ConfigError(f"an event merge needs at least one source, not {sources}")
        if depth < 2:
            raise ConfigError(f"an event merge needs at least 2 places, not {depth}")
        self._sources, self._depth = sources, depth
        super().__init__(
            {
                "source": In(stream.Signature(TileEvent)).array(sources),
                "stamp": In(STAMP_BITS),
                "output": Out(stream.Signature(TileEvent)),
                "blocked": Out(1),
            }
        )

    @property
    def sources(self) -> int:
        """Streams to join."""
        return self._sources

    @property
    def depth(self) -> int:
        """Events that wait for the host."""
        return self._depth

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.buffer = buffer = fifo.SyncFIFO(
            width=TileEvent.as_shape().size, depth=self._depth
        )
        chosen: Any = Signal(TileEvent)
        earlier = Signal(self._sources + 1)
        for i in range(self._sources):
            source = self.source[i]
            m.d.comb += [
                earlier[i + 1].eq(earlier[i] | source.valid),
                source.ready.eq(buffer.w_rdy & ~earlier[i]),
            ]
            with m.If(source.valid & ~earlier[i]):
                m.d.comb += chosen.eq(source.payload)
        stamped: Any = Signal(TileEvent)
        m.d.comb += [
            stamped.eq(chosen),
            stamped.stamp.eq(self.stamp),
            buffer.w_data.eq(Value.cast(stamped)),
            buffer.w_en.eq(earlier[self._sources]),
            Value.cast(self.output.payload).eq(buffer.r_data),
            self.output.valid.eq(buffer.r_rdy),
            buffer.r_en.eq(self.output.ready),
            self.blocked.eq(earlier[self._sources] & ~buffer.w_rdy),
        ]
        return m
