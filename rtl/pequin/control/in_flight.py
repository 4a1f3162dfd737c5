"""Commands that a unit has been given and has not completed."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from pequin.control.types import IN_FLIGHT
from pequin.tile.types import PC_BITS, SEMAPHORES


def command_record() -> data.StructLayout:
    """Return what is kept of a command: `pc`, and whether it signals, and which semaphore."""
    return data.StructLayout({"pc": PC_BITS, "signals": 1, "number": range(SEMAPHORES)})


class InFlight(wiring.Component):
    """Remember commands in order until each has completed.

    *Timing*: one command in and one out per clock; a command shows in the clock after `push`.

    Members
    -------
    push : In(1), record : In(command_record())
        Only while `room`.
    pop : In(1)
        The oldest command has completed; ignored when there is none.
    oldest : Out(command_record())
    any : Out(1)
        There is a command.
    room : Out(1)
    """

    push: Any
    record: Any
    pop: Any
    oldest: Any
    any: Any
    room: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "push": In(1),
                "record": In(command_record()),
                "pop": In(1),
                "oldest": Out(command_record()),
                "any": Out(1),
                "room": Out(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        ring: Any = memory.Memory(shape=command_record(), depth=IN_FLIGHT, init=[])
        m.submodules.ring = ring
        write, read = ring.write_port(), ring.read_port(domain="comb")
        level, level_next = (
            Signal(range(IN_FLIGHT + 1), name="level"),
            Signal(range(IN_FLIGHT + 1), name="level_next"),
        )
        popped = self.pop & self.any
        m.d.comb += [
            write.en.eq(self.push),
            write.data.eq(self.record),
            self.oldest.eq(read.data),
            level_next.eq(level + self.push - popped),
        ]
        m.d.sync += [
            write.addr.eq(write.addr + self.push),
            read.addr.eq(read.addr + popped),
            level.eq(level_next),
            self.any.eq(level_next != 0),
            self.room.eq(level_next != IN_FLIGHT),
        ]
        return m
