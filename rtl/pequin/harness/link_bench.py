"""Anything with a host link, and the mailbox at the other end of the link."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.harness.packet_mailbox import PacketMailbox
from pequin.harness.pauses import PauseControl
from pequin.streams import connect_streams


class LinkBench(wiring.Component):
    """Join a component's `rx` and `tx` with a `PacketMailbox`.

    Its other ports, which must not be streams, become ports of the bench.

    Parameters
    ----------
    dut
        The component: `rx : In(stream of LinkWord)`, `tx : Out(stream of LinkWord)`.
    name
        Names the mailbox's plusargs.

    Members
    -------
    posted : In(32), played : Out(32), arrived : Out(32), done : Out(1)
        As `PacketMailbox`.
    rx_pauses, tx_pauses : In(PauseControl)
        Random pauses towards and from the component.

    Raises
    ------
    ConfigError
        The component has no link, or other streams, or a port of the bench's names.
    """

    posted: Any
    played: Any
    arrived: Any
    done: Any
    rx_pauses: Any
    tx_pauses: Any

    def __init__(self, dut: wiring.Component, *, name: str = "link") -> None:
        members = dut.signature.members
        streams = {n for n, member in members.items() if member.is_signature}
        if streams != {"rx", "tx"} or not all(
            isinstance(members[n].signature, stream.Signature) for n in streams
        ):
            raise ConfigError(
                f"a component with a link has the streams rx and tx, not {sorted(streams)}"
            )
        self._dut, self._name = dut, name
        ports: dict[str, Any] = {
            "posted": In(32),
            "played": Out(32),
            "arrived": Out(32),
            "done": Out(1),
            "rx_pauses": In(PauseControl),
            "tx_pauses": In(PauseControl),
        }
        self._others = {n: member for n, member in members.items() if n not in streams}
        taken = sorted(set(self._others) & set(ports))
        if taken:
            raise ConfigError(f"port {taken[0]!r} of the component has a name of the bench's own")
        super().__init__(ports | self._others)

    @property
    def dut(self) -> wiring.Component:
        """The component under test."""
        return self._dut

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.dut = dut = self._dut
        m.submodules.mailbox = mailbox = PacketMailbox(name=self._name)
        link: Any = dut
        connect_streams(m, mailbox.output, link.rx)
        connect_streams(m, link.tx, mailbox.input)
        m.d.comb += [
            mailbox.posted.eq(self.posted),
            mailbox.output_pauses.eq(self.rx_pauses),
            mailbox.input_pauses.eq(self.tx_pauses),
            self.played.eq(mailbox.played),
            self.arrived.eq(mailbox.arrived),
            self.done.eq(mailbox.done),
        ]
        for name, member in self._others.items():
            inside, outside = getattr(dut, name), getattr(self, name)
            if member.flow == wiring.In:
                m.d.comb += inside.eq(outside)
            else:
                m.d.comb += outside.eq(inside)
        return m
