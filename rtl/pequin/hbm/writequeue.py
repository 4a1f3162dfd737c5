"""The write queue's data: filled in order of acceptance, read in order of issue."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from pequin.hbm.config import HbmConfig
from pequin.hbm.ecc import encode_beat
from pequin.hbm.types import BEAT_BITS, CHECK_BITS


class WriteQueue(wiring.Component):
    """Hold write data until the device wants it.

    *Timing*: the beat issued in one clock is on `data` tCWL + 1 clocks later, that is tCWL after
    its command is on the bus. A slot is free again once its beat was read.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    push, push_data, slot
        Append a beat; `slot` is the number it gets.
    issue, issue_slot
        The slot whose command is issued in this clock.
    oldest, oldest_valid
        The oldest slot that was not issued yet.
    room, level
        Whether another beat fits; beats not yet issued, counted from the oldest.
    data, check
        Write data for the device with its check bits.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        bits = config.write_beats.bit_length()
        super().__init__(
            {
                "push": In(1),
                "push_data": In(BEAT_BITS),
                "slot": Out(bits),
                "issue": In(1),
                "issue_slot": In(bits),
                "oldest": In(bits),
                "oldest_valid": In(1),
                "room": Out(1),
                "level": Out(bits),
                "data": Out(BEAT_BITS),
                "check": Out(CHECK_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the memory, the delay to the data bus, and the occupancy."""
        m = Module()
        config = self._config
        depth = config.write_beats
        place = range((depth - 1).bit_length()).stop
        memory: Memory = Memory(shape=BEAT_BITS, depth=depth, init=[])
        m.submodules.memory = memory
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.addr.eq(self.slot[:place]),
            write.data.eq(self.push_data),
            write.en.eq(self.push),
        ]
        with m.If(self.push):
            m.d.sync += self.slot.eq(self.slot + 1)

        delay = config.timing.clocks("cwl") - 1
        slots = [Signal(place, name=f"issued{i}") for i in range(delay)]
        valid = Signal(delay, name="issued_valid")
        m.d.sync += valid.eq(Cat(self.issue, valid))
        for i, slot in enumerate(slots):
            m.d.sync += slot.eq(slots[i - 1] if i else self.issue_slot[:place])
        m.d.comb += [read.addr.eq(slots[-1]), read.en.eq(valid[-1])]
        m.d.sync += [self.data.eq(read.data), self.check.eq(encode_beat(read.data))]

        pending = Signal(len(self.slot))
        m.d.comb += [
            pending.eq(self.oldest),
            self.level.eq(self.slot - self.oldest),
        ]
        with m.If(~self.oldest_valid):
            m.d.comb += [pending.eq(self.slot), self.level.eq(0)]
        freed: Signal = pending
        for i in range(delay + 1):
            later = Signal(len(self.slot), name=f"freed{i}")
            m.d.sync += later.eq(freed)
            freed = later
        used = Signal(len(self.slot))
        m.d.comb += [used.eq(self.slot - freed), self.room.eq(used < depth)]
        return m
