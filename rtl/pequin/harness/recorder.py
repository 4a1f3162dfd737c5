"""Record a stream into a RAM image."""

from __future__ import annotations

from amaranth import Module, ShapeLike, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.harness.pauses import PauseControl, Pauser
from pequin.harness.player import word_bits
from pequin.ram import Ram


class StreamRecorder(wiring.Component):
    """Write every payload of a stream to the next word of a RAM.

    Items beyond the RAM's depth are counted but not stored.

    Timing: takes one item per clock without pauses.

    Parameters
    ----------
    shape
        Payload shape; it fills the word's low bits, the rest is zero.
    depth
        Words of the RAM.
    name
        Names the RAM's image: plusarg `+NAME.dump=FILE`.

    Members
    -------
    start : In(1)
        Begin (again) at word 0.
    pauses : In(PauseControl)
    input : In(stream.Signature(shape))
    count : Out(32)
        Items taken since start.
    """

    def __init__(self, shape: ShapeLike, *, depth: int, name: str) -> None:
        self._shape, self._depth, self._name = shape, depth, name
        super().__init__(
            {
                "start": In(1),
                "pauses": In(PauseControl),
                "input": In(stream.Signature(shape)),
                "count": Out(32),
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
        taken = Signal()
        m.d.comb += [
            self.input.ready.eq(~pauser.pause & ~self.start),
            taken.eq(self.input.ready & self.input.valid),
            ram.write_en.eq(taken & (self.count < self._depth)),
            ram.write_addr.eq(self.count),
            ram.write_data.eq(Value.cast(self.input.payload)),
            pauser.control.eq(self.pauses),
            pauser.start.eq(self.start),
            pauser.draw.eq(1),
        ]
        with m.If(self.start):
            m.d.sync += self.count.eq(0)
        with m.Elif(taken):
            m.d.sync += self.count.eq(self.count + 1)
        return m
