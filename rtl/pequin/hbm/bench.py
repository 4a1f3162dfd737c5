"""A bench for the HBM channel: requests come from files that a Verilog player reads."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from pequin.hbm.channel import HbmChannel
from pequin.hbm.config import HbmConfig
from pequin.hbm.counters import CAUSES, EVENTS
from pequin.hbm.types import BEAT_BITS, CHECK_BITS, ColCommand, HbmReadBeat, HbmRequest, RowCommand


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
        n = self._config.requesters
        m.submodules.channel = channel = HbmChannel(self._config)
        ports = [channel.port[q] for q in range(n)]
        request_valid, request = Signal(n), Signal(n * HbmRequest.as_shape().size)
        write_valid, write = Signal(n), Signal(n * BEAT_BITS)
        read_ready, ack_ready = Signal(n), Signal(n)
        for q, port in enumerate(ports):
            m.d.comb += [
                port.request.valid.eq(request_valid[q]),
                Value.cast(port.request.payload).eq(request.word_select(q, len(request) // n)),
                port.write_data.valid.eq(write_valid[q]),
                port.write_data.payload.eq(write.word_select(q, BEAT_BITS)),
                port.read_data.ready.eq(read_ready[q]),
                port.write_ack.ready.eq(ack_ready[q]),
            ]
        row, column = Signal(RowCommand.as_shape().size), Signal(ColCommand.as_shape().size)
        reads = Signal(n * HbmReadBeat.as_shape().size)
        flip = Signal(BEAT_BITS + CHECK_BITS)
        m.d.comb += [
            row.eq(channel.row.as_value()),
            column.eq(channel.column.as_value()),
            reads.eq(Cat(port.read_data.payload.as_value() for port in ports)),
            channel.flip.eq(flip),
        ]
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
            i_row=row,
            i_column=column,
            i_beat_valid=channel.read_valid,
            o_flip=flip,
            i_ecc_valid=channel.ecc_event_valid,
            i_ecc=channel.ecc_event.as_value(),
            i_causes=Cat(channel.causes),
            i_events=Cat(channel.events),
            i_fault=channel.fault,
            i_late=channel.refresh_late,
            o_refresh=channel.refresh.as_value(),
            o_broken=channel.broken_rule,
            o_done=self.done,
        )
        return m
