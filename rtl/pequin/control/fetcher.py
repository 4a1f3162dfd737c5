"""Reads instructions ahead of the sequencer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from pequin.control.types import FETCH_CLOCKS, FetchPort
from pequin.tile.types import PC_BITS

_HELD = 4
"""Instructions read ahead: as many as keep one per clock coming."""


def fetched() -> data.StructLayout:
    """Return what is known of an instruction: its `word`; or that reading it has `failed`."""
    return data.StructLayout({"word": unsigned(64), "failed": unsigned(1)})


class Fetcher(wiring.Component):
    """Fetch instructions in order from the address of the last redirection on.

    *Timing*: an instruction shows three clocks after a redirection that the memory accepts at
    once, then one per clock. The address of a redirection goes out in its own clock.

    Members
    -------
    port : Out(FetchPort())
    run : In(1)
        Fetch.
    redirect : In(1), target : In(PC_BITS)
        Drop everything and go on at `target`.
    valid : Out(1), instruction : Out(fetched())
        The oldest instruction.
    take : In(1)
        It is not needed any longer; only while `valid`.
    """

    port: Any
    run: Any
    redirect: Any
    target: Any
    valid: Any
    instruction: Any
    take: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "port": Out(FetchPort()),
                "run": In(1),
                "redirect": In(1),
                "target": In(PC_BITS),
                "valid": Out(1),
                "instruction": Out(fetched()),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        port = self.port
        last, ahead = Signal(PC_BITS, name="last"), Signal(PC_BITS, name="ahead")
        went = Signal()
        # Instructions on their way or held; those before a redirection do not count.
        promised = Signal(range(_HELD + 1))
        wanted = Signal(FETCH_CLOCKS)
        may, accepted, room = Signal(name="may"), Signal(name="accepted"), Signal(name="room")
        m.d.comb += [
            ahead.eq(last + went),
            room.eq(promised != _HELD),
            may.eq(self.run & port.address.ready),
            port.address.payload.eq(Mux(self.redirect, self.target, ahead)),
            port.address.valid.eq(self.run & (self.redirect | room)),
            accepted.eq(may & (self.redirect | room)),
        ]
        # A redirection comes late: it only chooses.
        m.d.sync += [last.eq(port.address.payload), went.eq(accepted)]
        with m.If(self.redirect):
            m.d.sync += [promised.eq(may), wanted.eq(may)]
        with m.Else():
            m.d.sync += [
                promised.eq(promised + (may & room) - self.take),
                wanted.eq(Cat(may & room, wanted)),
            ]
        self._hold(m, wanted[-1])
        return m

    def _hold(self, m: Module, arrives: Any) -> None:
        """Keep instructions in order; the oldest is always in the same place."""
        held = [Signal(fetched(), name=f"held_{i}", reset_less=True) for i in range(_HELD)]
        level, kept = Signal(range(_HELD + 1), name="level"), Signal(range(_HELD + 1), name="kept")
        arrived: Any = Signal(fetched())
        m.d.comb += [
            arrived.word.eq(self.port.instruction),
            arrived.failed.eq(self.port.failed),
            kept.eq(level - self.take),
            self.valid.eq(level != 0),
            self.instruction.eq(held[0]),
        ]
        m.d.sync += level.eq(Mux(self.redirect, 0, kept + arrives))
        for i, place in enumerate(held):
            with m.If(arrives & (kept == i)):
                m.d.sync += place.eq(arrived)
            if i + 1 < _HELD:
                with m.Elif(self.take):
                    m.d.sync += place.eq(held[i + 1])
