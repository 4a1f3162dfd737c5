"""Benches for memories with HBM ports: requests come from files that a Verilog player reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from pequin.hbm.bram import BramChannel
from pequin.hbm.channel import HbmChannel
from pequin.hbm.config import HbmConfig
from pequin.hbm.counters import CAUSES, COUNTER_BITS, EVENTS
from pequin.hbm.types import BEAT_BITS, CHECK_BITS, ColCommand, HbmReadBeat, HbmRequest, RowCommand

WATCHED = {
    "row": RowCommand.as_shape().size,
    "column": ColCommand.as_shape().size,
    "beat_valid": 1,
    "ecc_valid": 1,
    "ecc": 33,
    "causes": COUNTER_BITS * len(CAUSES),
    "events": COUNTER_BITS * len(EVENTS),
    "fault": 1,
    "late": 1,
}
"""What the player watches beside the ports (bits)."""


def attach_player(
    m: Module,
    ports: Sequence[Any],
    *,
    watched: Mapping[str, Value],
    driven: Mapping[str, Signal],
    done: Signal,
) -> None:
    """Add the player `hbm_player` and connect it.

    Parameters
    ----------
    m
        The bench.
    ports
        `HbmPort` interfaces of the memory.
    watched
        Some of `WATCHED`; the others are zero.
    driven
        Signals that get the player's `flip`, `refresh` and `broken`.
    done
        Gets the player's sign that the run is over.
    """
    n = len(ports)
    request_valid, request = Signal(n), Signal(n * HbmRequest.as_shape().size)
    write_valid, write = Signal(n), Signal(n * BEAT_BITS)
    read_ready, ack_ready = Signal(n), Signal(n)
    reads = Signal(n * HbmReadBeat.as_shape().size)
    for q, port in enumerate(ports):
        m.d.comb += [
            port.request.valid.eq(request_valid[q]),
            Value.cast(port.request.payload).eq(request.word_select(q, len(request) // n)),
            port.write_data.valid.eq(write_valid[q]),
            port.write_data.payload.eq(write.word_select(q, BEAT_BITS)),
            port.read_data.ready.eq(read_ready[q]),
            port.write_ack.ready.eq(ack_ready[q]),
        ]
    m.d.comb += reads.eq(Cat(port.read_data.payload.as_value() for port in ports))
    m.submodules.player = Instance(
        "hbm_player",
        p_PORTS=n,
        p_CAUSES=len(CAUSES),
        p_EVENTS=len(EVENTS),
        i_clk=ClockSignal(),
        i_rst=ResetSignal(),
        o_request_valid=request_valid,
        i_request_ready=Cat(port.request.ready for port in ports),
        o_request_payload=request,
        o_write_valid=write_valid,
        i_write_ready=Cat(port.write_data.ready for port in ports),
        o_write_payload=write,
        i_read_valid=Cat(port.read_data.valid for port in ports),
        o_read_ready=read_ready,
        i_read_payload=reads,
        i_ack_valid=Cat(port.write_ack.valid for port in ports),
        o_ack_ready=ack_ready,
        i_ack_payload=Cat(port.write_ack.payload.as_value() for port in ports),
        o_done=done,
        **{f"i_{name}": watched.get(name, Const(0, bits)) for name, bits in WATCHED.items()},
        **{f"o_{name}": signal for name, signal in driven.items()},
    )


class HbmBench(wiring.Component):
    """`HbmChannel` driven by the simulation-only module `hbm_player`.

    Plusargs say what to play and where to write the results; they are listed in
    `verilog/hbm_player.v`.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    done
        The run is over and its files are written.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        super().__init__({"done": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Wire the player to every port of the channel."""
        m = Module()
        m.submodules.channel = channel = HbmChannel(self._config)
        flip, refresh, broken = Signal(BEAT_BITS + CHECK_BITS), Signal(2), Signal(5)
        m.d.comb += [
            channel.flip.eq(flip),
            channel.refresh.eq(refresh),
            channel.broken_rule.eq(broken),
        ]
        attach_player(
            m,
            [channel.port[q] for q in range(self._config.requesters)],
            watched={
                "row": channel.row.as_value(),
                "column": channel.column.as_value(),
                "beat_valid": channel.read_valid,
                "ecc_valid": channel.ecc_event_valid,
                "ecc": channel.ecc_event.as_value(),
                "causes": Cat(channel.causes),
                "events": Cat(channel.events),
                "fault": channel.fault,
                "late": channel.refresh_late,
            },
            driven={"flip": flip, "refresh": refresh, "broken": broken},
            done=self.done,
        )
        return m


class BramBench(wiring.Component):
    """`BramChannel` driven by the same player.

    Parameters
    ----------
    requesters, beats
        As `BramChannel`.

    Members
    -------
    done
        The run is over and its files are written.
    """

    def __init__(self, *, requesters: int, beats: int) -> None:
        self._channel = BramChannel(requesters=requesters, beats=beats)
        super().__init__({"done": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Wire the player to every port of the memory."""
        m = Module()
        m.submodules.channel = channel = self._channel
        ports = [channel.port[q] for q in range(channel.requesters)]
        attach_player(m, ports, watched={}, driven={}, done=self.done)
        return m
