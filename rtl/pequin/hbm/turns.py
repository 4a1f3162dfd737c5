"""Whose turn it is: reads by default, writes in batches."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.config import HbmConfig

IDLE_CLOCKS = 8
"""Clocks without a read before waiting writes are sent."""


class Turns(wiring.Component):
    """Decide between reads and writes.

    Reads go first. Writes get their turn when the write queue is full, when a read waits for a
    write of its beats, or when no read was issued for eight clocks. A turn of writes lasts until
    the beats that were in the queue at its start are issued, or for as long as no read waits;
    then at least as many reads as the queue has beats may go before a full queue turns again.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    read_issued, write_issued, read_waiting, write_waiting
        Column commands of this clock; runs in the windows.
    level
        Beats in the write queue.
    urgent, full
        A read waits for a write; a write waits for room.
    frozen
        No column command can be issued; the idle clock stands still.
    writing
        It is the writes' turn.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        super().__init__(
            {
                "read_issued": In(1),
                "write_issued": In(1),
                "read_waiting": In(1),
                "write_waiting": In(1),
                "level": In(config.write_beats.bit_length()),
                "urgent": In(1),
                "full": In(1),
                "frozen": In(1),
                "writing": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the batch counters and the idle clock."""
        m = Module()
        beats = self._config.write_beats
        batch, earned = Signal(range(beats + 1)), Signal(range(beats + 1), init=beats)
        idle = Signal(range(IDLE_CLOCKS + 1))
        is_idle = idle == IDLE_CLOCKS
        with m.If(self.read_issued | self.write_issued | self.writing):
            m.d.sync += idle.eq(0)
        with m.Elif(~is_idle & ~self.frozen):
            m.d.sync += idle.eq(idle + 1)
        with m.If(self.read_issued & (earned != beats)):
            m.d.sync += earned.eq(earned + 1)
        with m.If(self.writing):
            with m.If(self.write_issued & batch.any()):
                m.d.sync += batch.eq(batch - 1)
            with m.If(~self.write_waiting | (~batch.any() & self.read_waiting & ~self.urgent)):
                m.d.sync += [self.writing.eq(0), earned.eq(0)]
        with m.Elif(self.write_waiting & (self.urgent | is_idle | (self.full & (earned == beats)))):
            m.d.sync += [self.writing.eq(1), batch.eq(self.level)]
        return m
