"""Packets between files and a link, without Python in between."""

from __future__ import annotations

import re
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.harness.pauses import PauseControl, Pauser
from pequin.host.types import LinkWord


class PacketMailbox(wiring.Component):
    """Play packets from a file and record those that come back (Verilog `packet_mailbox`).

    Plusargs: `+NAME.load=FILE` and `+NAME.dump=FILE`; `pequin_sim.protocol.files` reads and writes
    such files. With `+NAME.live=1` the file may grow while it is played: whoever appends packets
    to it raises `posted` afterwards. When `arrived` changes, the packet is in the recorded file.

    *Timing*: a word per clock in both directions, also from packet to packet.

    Parameters
    ----------
    name
        Names the plusargs: letters, digits, `_` and `.`.

    Members
    -------
    posted : In(32)
        Packets in a file that grows.
    played : Out(32), arrived : Out(32)
        Packets that have gone out and have come in.
    done : Out(1)
        A file that does not grow has been played, and its last record's packets have come.
    output_pauses : In(PauseControl), input_pauses : In(PauseControl)
        Random pauses; their seeds are taken in the first clock after reset.
    output : Out(stream of LinkWord), input : In(stream of LinkWord)

    Raises
    ------
    ConfigError
        The name has other characters.
    """

    posted: Any
    played: Any
    arrived: Any
    done: Any
    output_pauses: Any
    input_pauses: Any
    output: Any
    input: Any

    def __init__(self, *, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.]+", name):
            raise ConfigError(
                f"a mailbox's name may hold letters, digits, '_' and '.', not {name!r}"
            )
        self._name = name
        super().__init__(
            {
                "posted": In(32),
                "played": Out(32),
                "arrived": Out(32),
                "done": Out(1),
                "output_pauses": In(PauseControl),
                "input_pauses": In(PauseControl),
                "output": Out(stream.Signature(LinkWord)),
                "input": In(stream.Signature(LinkWord)),
            }
        )

    @property
    def name(self) -> str:
        """What the plusargs call it."""
        return self._name

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.output_pauser = output_pauser = Pauser()
        m.submodules.input_pauser = input_pauser = Pauser()
        started, fetch = Signal(), Signal()
        m.d.sync += started.eq(1)
        m.d.comb += [
            output_pauser.control.eq(self.output_pauses),
            output_pauser.start.eq(~started),
            output_pauser.draw.eq(fetch),
            input_pauser.control.eq(self.input_pauses),
            input_pauser.start.eq(~started),
            input_pauser.draw.eq(1),
        ]
        m.submodules.files = Instance(
            "packet_mailbox",
            p_NAME=self._name,
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_posted=self.posted,
            o_played=self.played,
            o_arrived=self.arrived,
            o_done=self.done,
            o_fetch=fetch,
            i_out_pause=output_pauser.pause,
            o_out_valid=self.output.valid,
            i_out_ready=self.output.ready,
            o_out_payload=Value.cast(self.output.payload),
            i_in_pause=input_pauser.pause,
            i_in_valid=self.input.valid,
            o_in_ready=self.input.ready,
            i_in_payload=Value.cast(self.input.payload),
        )
        return m
