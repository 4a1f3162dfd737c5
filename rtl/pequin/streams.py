"""Joining and buffering Amaranth streams."""

from typing import Any

from amaranth import Module, ShapeLike, ValueCastable
from amaranth.hdl import Shape, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError


def connect_streams(m: Module, source: Any, sink: Any) -> None:
    """Join two streams after checking that their payloads have the same shape.

    Amaranth itself joins any two layouts of equal width, and signed with unsigned.

    Parameters
    ----------
    m
        Module that receives the connection.
    source, sink
        Stream interfaces, seen from the module: `source` is read, `sink` is driven.

    Raises
    ------
    ConfigError
        The payload shapes differ.
    """
    given, wanted = _shape(source.payload), _shape(sink.payload)
    if given != wanted:
        raise ConfigError(f"stream payloads differ: source has {given!r}, sink takes {wanted!r}")
    m.d.comb += [
        sink.payload.eq(source.payload),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]


def _shape(payload: Value | ValueCastable) -> Any:
    return Shape.cast(payload.shape()) if isinstance(payload, Value) else payload.shape()


class StreamFifo(wiring.Component):
    """A stream buffered by a FIFO.

    Timing: two clocks from input to output when empty; one item per clock.

    Parameters
    ----------
    shape
        Payload shape.
    depth
        Items held; at least 2.

    Members
    -------
    input : In(stream.Signature(shape))
    output : Out(stream.Signature(shape))
    level : Out(range(depth + 1))
        Items held.

    Raises
    ------
    ConfigError
        `depth` is below 2.
    """

    def __init__(self, shape: ShapeLike, *, depth: int) -> None:
        if depth < 2:
            raise ConfigError(f"a stream FIFO's depth must be at least 2, not {depth}")
        self._depth = depth
        super().__init__(
            {
                "input": In(stream.Signature(shape)),
                "output": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    @property
    def depth(self) -> int:
        """Items held."""
        return self._depth

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        width = len(Value.cast(self.input.payload))
        m.submodules.fifo = inner = fifo.SyncFIFOBuffered(width=width, depth=self._depth)
        m.d.comb += [
            inner.w_data.eq(Value.cast(self.input.payload)),
            inner.w_en.eq(self.input.valid),
            self.input.ready.eq(inner.w_rdy),
            Value.cast(self.output.payload).eq(inner.r_data),
            self.output.valid.eq(inner.r_rdy),
            inner.r_en.eq(self.output.ready),
            self.level.eq(inner.level),
        ]
        return m
