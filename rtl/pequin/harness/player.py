"""Play a stream from a RAM image."""

from __future__ import annotations

from amaranth import Module, ShapeLike, Signal
from amaranth.hdl import Shape, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.harness.pauses import PauseControl, Pauser
from pequin.ram import Ram


def word_bits(shape: ShapeLike) -> int:
    """Return the width of a RAM word that holds a payload: whole bytes (bits)."""
    width = Shape.cast(shape).width
    return -(-width // 8) * 8


class StreamPlayer(wiring.Component):
    """Send the first `count` words of a RAM as a stream's payloads.

    Timing: the first item shows two clocks after `start`; one item per clock without pauses.

    Parameters
    ----------
    shape
        Payload shape; the word's low bits.
    depth
        Words of the RAM.
    name
        Names the RAM's image: plusarg `+NAME.load=FILE`.

    Members
    -------
    start : In(1)
        Begin (again) at word 0.
    count : In(32)
        Items to send.
    pauses : In(PauseControl)
    output : Out(stream.Signature(shape))
    done : Out(1)
        All items were taken; high before the first start.
    """

    def __init__(self, shape: ShapeLike, *, depth: int, name: str) -> None:
        self._shape, self._depth, self._name = shape, depth, name
        super().__init__(
            {
                "start": In(1),
                "count": In(32),
                "pauses": In(PauseControl),
                "output": Out(stream.Signature(shape)),
                "done": Out(1),
            }
        )

    @property
    def depth(self) -> int:
        """Words of the RAM."""
        return self._depth

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.ram = ram = Ram(
            width=word_bits(self._shape), depth=self._depth, name=self._name
        )
        m.submodules.pauser = pauser = Pauser()
        index, active, loaded = Signal(32), Signal(), Signal()
        fetch, taken = Signal(), Signal()
        m.d.comb += [
            taken.eq(self.output.valid & self.output.ready),
            self.output.valid.eq(loaded & ~pauser.pause),
            fetch.eq(active & (index != self.count) & (~loaded | taken)),
            ram.read_en.eq(fetch),
            ram.read_addr.eq(index),
            Value.cast(self.output.payload).eq(ram.read_data),
            self.done.eq(~self.start & ~loaded & ((index == self.count) | ~active)),
            pauser.control.eq(self.pauses),
            pauser.start.eq(self.start),
            pauser.draw.eq(fetch),
        ]
        with m.If(self.start):
            m.d.sync += [index.eq(0), active.eq(1), loaded.eq(0)]
        with m.Else():
            m.d.sync += loaded.eq(fetch | (loaded & ~taken))
            with m.If(fetch):
                m.d.sync += index.eq(index + 1)
        return m
