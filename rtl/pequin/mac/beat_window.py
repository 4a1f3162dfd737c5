"""The first beats of the weight stream, at any alignment."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.mac.types import BEAT_BITS, weight_beats

_HELD = 5
"""Two beats to show, one that an odd start leaves over, and room for the next two."""


class BeatWindow(wiring.Component):
    """Show the two oldest beats of a stream that brings one or two at a time.

    The array takes one beat (a scale beat, or unpaired) or two (paired) whatever grouping the
    producer chose.

    Timing: a beat shows one clock after it was accepted. Sustains two beats per clock, also when
    a single beat has put them out of step with the transfers. `ready` depends on registers
    only: it is high while at least two places are free.

    Members
    -------
    weights : In(stream of weight_beats())
    head : Out(256).array(2)
        The oldest beat and its successor; meaningful up to `level`.
    level : Out(2)
        Beats to see in `head`: 0, 1 or 2.
    take : In(2)
        Beats to drop at the end of this clock: 0 to `level`.
    """

    weights: In(stream.Signature(weight_beats()))
    head: Out(BEAT_BITS).array(2)
    level: Out(2)
    take: In(2)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        held = [Signal(BEAT_BITS, name=f"held_{i}", reset_less=True) for i in range(_HELD)]
        count = Signal(range(_HELD + 1))
        left = Signal(range(_HELD + 1))
        accept = Signal()
        m.d.comb += [
            self.head[0].eq(held[0]),
            self.head[1].eq(held[1]),
            self.level.eq(Mux(count >= 2, 2, count)),
            self.weights.ready.eq(count <= _HELD - 2),
            accept.eq(self.weights.ready & self.weights.valid),
            left.eq(count - self.take),
        ]
        m.d.sync += count.eq(left + Mux(accept, 1 + self.weights.p.two, 0))
        for place in range(_HELD):
            # A place is written when older beats move up or a new one lands in it.
            next_beat, after_next = (held[min(place + step, _HELD - 1)] for step in (1, 2))
            with m.If(accept & (left == place)):
                m.d.sync += held[place].eq(self.weights.p.beats[0])
            with m.Elif(accept & (left + 1 == place)):
                m.d.sync += held[place].eq(self.weights.p.beats[1])
            with m.Elif(self.take != 0):
                m.d.sync += held[place].eq(Mux(self.take == 1, next_beat, after_next))
        return m
