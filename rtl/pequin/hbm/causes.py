"""Attribution of every clock to a cause, and the event counters."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.banks import FLAGS, flags_layout
from pequin.hbm.config import HbmConfig
from pequin.hbm.counters import CAUSES, COUNTER_BITS, EVENTS, Cause
from pequin.hbm.window import run_layout


class CauseCounters(wiring.Component):
    """Count clocks by cause, from the state of the oldest run of the current direction.

    *Timing*: a clock is counted one clock later.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    writing, run, run_valid, flags, room, other_valid, column_ok
        The direction, its oldest run, what that run's banks allow, whether the return buffer has
        room for it, whether the other direction has a run, and whether the turnaround is over.
    busy
        An all-bank refresh is under way.
    event
        Events of this clock, in the order of `EVENTS`.
    clocks, counts
        The counters.
    """

    def __init__(self, config: HbmConfig) -> None:
        super().__init__(
            {
                "writing": In(1),
                "run": In(run_layout(config)),
                "run_valid": In(1),
                "flags": In(flags_layout(2)),
                "room": In(1),
                "other_valid": In(1),
                "column_ok": In(1),
                "busy": In(1),
                "event": In(len(EVENTS)),
                "clocks": Out(COUNTER_BITS).array(len(CAUSES)),
                "counts": Out(COUNTER_BITS).array(len(EVENTS)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the decision and the counters."""
        m = Module()
        g = self.run.beat[0]
        flags: Any = Signal(flags_layout(1))
        hit = Signal()
        opened = Signal()
        m.d.comb += [
            *(flags[field].eq(self.flags[field].bit_select(g, 1)) for field in FLAGS),
            hit.eq(self.run.hit.bit_select(g, 1)),
            opened.eq(flags.opened | (self.writing & flags.can_write)),
        ]
        cause = Signal(Cause)
        with m.If(self.event[0] | self.event[1]):
            m.d.comb += cause.eq(Cause.DATA)
        with m.Elif(~self.run_valid & ~self.other_valid):
            m.d.comb += cause.eq(Mux(self.busy, Cause.REFRESH, Cause.NO_REQUEST))
        with m.Elif(~self.run_valid):
            m.d.comb += cause.eq(Cause.TURNAROUND)
        with m.Elif(self.busy | (flags.refreshing & ~hit)):
            m.d.comb += cause.eq(Cause.REFRESH)
        with m.Elif(hit & ~self.column_ok):
            m.d.comb += cause.eq(Cause.TURNAROUND)
        with m.Elif(hit & ~self.room):
            m.d.comb += cause.eq(Cause.RETURN)
        with m.Elif(hit & opened):
            m.d.comb += cause.eq(Cause.BANK_GROUP)
        with m.Elif(hit | flags.can_act):
            m.d.comb += cause.eq(Cause.ACTIVATE)
        with m.Else():
            m.d.comb += cause.eq(Cause.PRECHARGE)
        event = Signal(len(EVENTS))
        counted = Signal(Cause, init=Cause.NO_REQUEST)
        running = Signal()
        m.d.sync += [counted.eq(cause), event.eq(self.event), running.eq(1)]
        for index in range(len(CAUSES)):
            with m.If(running & (counted == Cause(index))):
                m.d.sync += self.clocks[index].eq(self.clocks[index] + 1)
        for index in range(len(EVENTS)):
            with m.If(event[index]):
                m.d.sync += self.counts[index].eq(self.counts[index] + 1)
        return m
