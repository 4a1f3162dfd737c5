"""Random pauses for streams under test."""

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

LCG_MULTIPLIER, LCG_INCREMENT = 1664525, 1013904223
"""A full-period 32-bit linear congruential generator (Numerical Recipes, ranqd1)."""


class PauseControl(data.Struct):
    """How often and how long a stream pauses; all zero means never.

    After an item, a pause of one clock follows with probability `rate` / 256, else one of
    `burst_clocks` with probability `burst_rate` / 65536. Single pauses chain, so `rate` is also
    the share of clocks paused.
    """

    rate: 8
    burst_rate: 16
    burst_clocks: 16
    seed: 32


class Pauser(wiring.Component):
    """Decide clock by clock whether a stream endpoint pauses.

    Timing: `pause` is registered. A new pause is drawn only in clocks with `draw` or at the end
    of a pause.

    Members
    -------
    control : In(PauseControl)
    start : In(1)
        Load the seed.
    draw : In(1)
        An item has passed or a pause may begin.
    pause : Out(1)
    """

    control: In(PauseControl)
    start: In(1)
    draw: In(1)
    pause: Out(1)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        state = Signal(32, init=0)
        left = Signal(16)
        single, burst = Signal(), Signal()
        m.d.comb += [
            self.pause.eq(left != 0),
            # The high bits of such a generator are the random ones.
            single.eq(state[24:32] < self.control.rate),
            burst.eq(state[12:28] < self.control.burst_rate),
        ]
        with m.If(self.start):
            m.d.sync += [state.eq(self.control.seed), left.eq(0)]
        with m.Else():
            m.d.sync += state.eq(state * LCG_MULTIPLIER + LCG_INCREMENT)
            with m.If(left > 1):
                m.d.sync += left.eq(left - 1)
            with m.Elif(self.draw | self.pause):
                with m.If(burst):
                    m.d.sync += left.eq(self.control.burst_clocks)
                with m.Elif(single):
                    m.d.sync += left.eq(1)
                with m.Else():
                    m.d.sync += left.eq(0)
        return m
