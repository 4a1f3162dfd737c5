"""Clock counters by cause."""

from amaranth import Module, Signal, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

COUNTER_BITS = 48
"""Width of a counter: 62 hours of a 1.25 GHz clock."""


def cause_counts(causes: type[enum.Enum]) -> data.StructLayout:
    """Return one counter per member of `causes`, named in lower case."""
    return data.StructLayout({cause.name.lower(): unsigned(COUNTER_BITS) for cause in causes})


class CauseCounters(wiring.Component):
    """Count clocks by cause; the counts sum to the clocks since reset.

    Parameters
    ----------
    causes
        The enumeration of causes.

    Members
    -------
    cause : In(causes)
        The cause of this clock.
    counts : Out(cause_counts(causes))
    """

    def __init__(self, causes: type[enum.Enum]) -> None:
        self._causes = causes
        super().__init__({"cause": In(causes), "counts": Out(cause_counts(causes))})

    @property
    def causes(self) -> type[enum.Enum]:
        """The enumeration of causes."""
        return self._causes

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        for cause in self._causes:
            hit = Signal(name=f"is_{cause.name.lower()}")
            count = self.counts[cause.name.lower()]
            m.d.comb += hit.eq(self.cause == cause)
            m.d.sync += count.eq(count + hit)
        return m
