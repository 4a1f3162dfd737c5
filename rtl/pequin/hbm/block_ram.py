"""Block RAM in place of an HBM channel: the same ports, and the same counters."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BEAT_BYTES
from pequin.hbm.bram import BramChannel
from pequin.hbm.counters import CAUSES, COUNTER_BITS, EVENTS, Cause
from pequin.hbm.types import BEAT_BITS, CHECK_BITS, HbmPort, RefreshMode

COUNTED_CAUSES = (Cause.DATA, Cause.RETURN, Cause.NO_REQUEST)
"""Causes that exist without banks and refresh."""

COUNTED_EVENTS = ("hbm.reads", "hbm.writes", "hbm.refused")
"""Events that exist without rows, refresh and ECC."""


class BlockRamChannel(wiring.Component):
    """`BramChannel` with the ports of `HbmChannel` that a tile uses.

    *Timing*: as `BramChannel`; a clock is counted one clock later, as in `HbmChannel`.

    *Counters*: `COUNTED_CAUSES` add up to the clocks; all other counters stay zero.

    Parameters
    ----------
    requesters
        Ports.
    store_bytes
        Size of the memory.

    Members
    -------
    port, causes, events, clear, hold
        As `HbmChannel`.
    refresh, flip
        Of no effect.

    Raises
    ------
    ConfigError
        A parameter is too small or too large.
    """

    port: Any
    causes: Any
    events: Any
    clear: Any
    hold: Any
    refresh: Any
    flip: Any

    def __init__(self, *, requesters: int, store_bytes: int) -> None:
        self._memory = BramChannel(
            requesters=requesters, beats=store_bytes // BEAT_BYTES, name="hbm"
        )
        super().__init__(
            {
                "port": In(HbmPort()).array(requesters),
                "refresh": In(RefreshMode),
                "flip": In(BEAT_BITS + CHECK_BITS),
                "causes": Out(COUNTER_BITS).array(len(CAUSES)),
                "events": Out(COUNTER_BITS).array(len(EVENTS)),
                "clear": In(1),
                "hold": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Join the memory and count."""
        m = Module()
        m.submodules.memory = memory = self._memory
        for outer, inner in zip(self.port, memory.port, strict=True):
            wiring.connect(m, wiring.flipped(outer), inner)
        running = Signal()
        cause = Signal(Cause, init=Cause.NO_REQUEST)
        event = Signal(len(COUNTED_EVENTS))
        m.d.sync += [
            cause.eq(Cause.NO_REQUEST),
            event.eq(Cat(memory.read, memory.written, memory.refused)),
        ]
        with m.If(memory.read | memory.written):
            m.d.sync += cause.eq(Cause.DATA)
        with m.Elif(memory.full):
            m.d.sync += cause.eq(Cause.RETURN)
        with m.If(self.clear):
            m.d.sync += running.eq(0)
        with m.Elif(~self.hold):
            m.d.sync += running.eq(1)
        counted = [(self.causes[c.value], cause == c) for c in COUNTED_CAUSES]
        names = list(EVENTS)
        counted += [
            (self.events[names.index(name)], event[i]) for i, name in enumerate(COUNTED_EVENTS)
        ]
        for count, grows in counted:
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Elif(running & ~self.hold & grows):
                m.d.sync += count.eq(count + 1)
        return m
