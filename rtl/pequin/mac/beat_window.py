"""The first beats of the weight stream, at any alignment."""

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.mac.types import BEAT_BITS, weight_beats

_HELD = 8
"""Two beats to show, one that an odd start leaves over, the next two; a power of two."""


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
        # A ring: `take`, which comes late, moves a pointer and no beats.
        held = [Signal(BEAT_BITS, name=f"held_{i}", reset_less=True) for i in range(_HELD)]
        first = Signal(range(_HELD))
        count = Signal(range(_HELD + 1))
        accept = Signal()
        m.d.comb += [
            self.level.eq(Mux(count >= 2, 2, count)),
            self.weights.ready.eq(count <= _HELD - 2),
            accept.eq(self.weights.ready & self.weights.valid),
        ]
        m.d.sync += [
            first.eq(first + self.take),
            count.eq(count + Mux(accept, 1 + self.weights.p.two, 0) - self.take),
        ]
        self._write(m, held, first, count, accept)
        self._show(m, held, first)
        return m

    def _write(
        self, m: Module, held: list[Signal], first: Signal, count: Signal, accept: Signal
    ) -> None:
        """Put a transfer's beats behind the held ones."""
        free, after = Signal(range(_HELD)), Signal(range(_HELD))
        m.d.comb += [free.eq(first + count), after.eq(free + 1)]
        for place in range(_HELD):
            with m.If(accept & (free == place)):
                m.d.sync += held[place].eq(self.weights.p.beats[0])
            # Behind a single beat this writes what does not count yet.
            with m.Elif(accept & (after == place)):
                m.d.sync += held[place].eq(self.weights.p.beats[1])

    def _show(self, m: Module, held: list[Signal], first: Signal) -> None:
        """Choose the oldest two: one is in an even place, the other in an odd one."""
        even, odd = Signal(range(_HELD // 2)), Signal(range(_HELD // 2))
        m.d.comb += [odd.eq(first >> 1), even.eq((first + 1)[: len(first)] >> 1)]
        from_even, from_odd = Array(held[::2])[even], Array(held[1::2])[odd]
        m.d.comb += [
            self.head[0].eq(Mux(first[0], from_odd, from_even)),
            self.head[1].eq(Mux(first[0], from_even, from_odd)),
        ]
