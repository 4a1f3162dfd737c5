"""The tile's counters: names, and the hardware that counts."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from pequin.control.types import QueueCause, SequencerCause
from pequin.counters import COUNTER_BITS
from pequin.hbm.counters import CAUSES, EVENTS
from pequin.host.types import HostCause
from pequin.kv.types import KvCause
from pequin.mac.types import Cause as MacCause
from pequin.move.types import DmaCause, StreamCause
from pequin.tile.types import COMMAND_WORDS
from pequin.vector.unit import LaneCause

CAUSE_GROUPS: dict[str, type[enum.Enum]] = {
    "seq": SequencerCause,
    **{f"queue.{unit.name.lower()}": QueueCause for unit in COMMAND_WORDS},
    "mac": MacCause,
    "stream": StreamCause,
    "kv": KvCause,
    "vector": LaneCause,
    "dma": DmaCause,
    "host": HostCause,
}
"""Groups of causes. In every clock one cause of each group counts: their sum is `clocks`."""

BEAT_COUNTERS = ("mac.payload_beats",)
"""Counters that may grow by more than one in a clock."""


def counter_names() -> list[str]:
    """Return the dotted names of all counters, in the order of the register memory."""
    names = ["clocks", *BEAT_COUNTERS]
    for group, causes in CAUSE_GROUPS.items():
        names += [f"{group}.{cause.name.lower()}" for cause in causes]
    return names + list(CAUSES) + list(EVENTS)


def cause_groups() -> dict[str, list[str]]:
    """Return for each group of causes the names of its counters; they sum to `clocks`."""
    groups = {
        group: [f"{group}.{cause.name.lower()}" for cause in causes]
        for group, causes in CAUSE_GROUPS.items()
    }
    return groups | {"hbm.clocks": list(CAUSES)}


class TileCounters(wiring.Component):
    """Count clocks by the causes of every unit, and beats.

    Members
    -------
    cause_GROUP : In
        The cause of this clock, for each group of `CAUSE_GROUPS`, dots as underscores.
    mac_beats : In(2)
        Payload beats that the array took in this clock.
    hbm_causes, hbm_events : In(40).array
        The channel's own counters.
    clear, hold : In(1)
        Set all to zero; let all stand still. The channel does so with its own.
    count : Out(COUNTER_BITS).array
        In the order of `counter_names`.
    """

    mac_beats: Any
    hbm_causes: Any
    hbm_events: Any
    clear: Any
    hold: Any
    count: Any

    def __init__(self) -> None:
        super().__init__(
            {
                **{f"cause_{g.replace('.', '_')}": In(c) for g, c in CAUSE_GROUPS.items()},
                "mac_beats": In(2),
                "hbm_causes": In(40).array(len(CAUSES)),
                "hbm_events": In(40).array(len(EVENTS)),
                "clear": In(1),
                "hold": In(1),
                "count": Out(COUNTER_BITS).array(len(counter_names())),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        counts = iter(self.count)
        # As in the channel's counters, the clock after reset or clear is not counted.
        running = Signal()
        with m.If(self.clear):
            m.d.sync += running.eq(0)
        with m.Elif(~self.hold):
            m.d.sync += running.eq(1)
        growths: list[Any] = [1, self.mac_beats]
        for group, causes in CAUSE_GROUPS.items():
            given = getattr(self, f"cause_{group.replace('.', '_')}")
            name = f"now_{group.replace('.', '_')}"
            # A register, so that no unit's cause is a long path.
            now = Signal(
                causes,
                name=name,
                init=causes["IDLE"] if "IDLE" in causes.__members__ else causes["EMPTY"],
            )
            m.d.sync += now.eq(given)
            growths += [now == cause for cause in causes]
        for growth in growths:
            count = next(counts)
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Elif(running & ~self.hold):
                m.d.sync += count.eq(count + growth)
        for given in (*self.hbm_causes, *self.hbm_events):
            m.d.comb += next(counts).eq(given)
        return m
