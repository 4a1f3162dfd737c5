"""Long delays as a ring in a memory instead of a chain of registers."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError


class DelayLine(wiring.Component):
    """Delay a value by a fixed number of clocks.

    *Timing*: `output` is `input` of `clocks` clocks ago; undefined for as long after reset.

    Parameters
    ----------
    width
        Bits.
    clocks
        Delay; at least 2.

    Members
    -------
    input : In(width)
    output : Out(width)

    Raises
    ------
    ConfigError
        The delay is too short.
    """

    input: Any
    output: Any

    def __init__(self, *, width: int, clocks: int) -> None:
        if clocks < 2:
            raise ConfigError(f"a delay line delays by at least 2 clocks, not {clocks}")
        self._clocks = clocks
        super().__init__({"input": In(width), "output": Out(width)})

    @property
    def clocks(self) -> int:
        """The delay."""
        return self._clocks

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        # A register after the ring: a block RAM's output is slow.
        registered = self._clocks > 2
        depth = self._clocks - registered
        ring: Any = memory.Memory(shape=len(self.input), depth=depth, init=[])
        m.submodules.ring = ring
        at, following = Signal(range(depth)), Signal(range(depth))
        m.d.comb += following.eq(Mux(at == depth - 1, 0, at + 1))
        m.d.sync += at.eq(following)
        write, read = ring.write_port(), ring.read_port()
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(at),
            write.data.eq(self.input),
            read.en.eq(1),
            # The oldest word: it is overwritten in the next clock, never in this one.
            read.addr.eq(following),
        ]
        m.d["sync" if registered else "comb"] += self.output.eq(read.data)
        return m
