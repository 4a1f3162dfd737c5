"""The DMA unit: rows from HBM and scales from the KV buffer, to the vector unit."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.hbm.types import HbmPort
from pequin.move.dma_commands import DmaCommands
from pequin.move.dma_output import DmaOutput
from pequin.move.dma_types import dma_work
from pequin.move.requester import ReadRequester
from pequin.move.scale_requester import ScaleRequester
from pequin.move.types import CHUNK_BEATS, DmaCause
from pequin.streams import connect_streams
from pequin.tile.types import UnitFault, UnitId, beat_answer, unit_words
from pequin.vector.types import access_request, quantized_block

IN_FLIGHT = 4
"""Commands whose beats may be asked for before the output side has come to them."""


class DmaUnit(wiring.Component):
    """Move what docs/isa.md calls kinds 0, 1 and 2; reads run ahead across commands.

    *Timing*: an HBM request shows 5 clocks after its command was accepted, a KV request 4 clocks.
    Kind 0 makes a write per clock, kind 1 a block per clock besides the scale beats, kind 2 four
    writes per granule. `done` comes one clock after the last block was handed over, or after the
    last write was accepted and `written` was seen in a later clock; a fault comes in the order of
    the commands. After a fault the unit asks for nothing more and drops what still comes.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    command : In(stream of unit_words(UnitId.DMA))
    port : Out(HbmPort())
        Reads only.
    access : Out(stream of access_request(params))
        Writes only.
    written : In(1)
        Vector memory has carried out all writes that it accepted. `VectorUnit.access.ready` tells
        it: the memory accepts nothing before the last write is done, however long its lanes keep
        it from that.
    blocks : Out(stream of quantized_block())
    kv_request : Out(stream of 32-bit beat addresses), kv_data : In(stream of beat_answer())
    token_blocks : In(3)
        Blocks of a token, as the KV buffer is configured.
    done : Out(1)
    fault : Out(UnitFault), fault_valid : Out(1)
    cause : Out(DmaCause)
    """

    command: Any
    port: Any
    access: Any
    written: Any
    blocks: Any
    kv_request: Any
    kv_data: Any
    token_blocks: Any
    done: Any
    fault: Any
    fault_valid: Any
    cause: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "command": In(stream.Signature(unit_words(UnitId.DMA))),
                "port": Out(HbmPort()),
                "access": Out(stream.Signature(access_request(params))),
                "written": In(1),
                "blocks": Out(stream.Signature(quantized_block())),
                "kv_request": Out(stream.Signature(32)),
                "kv_data": In(stream.Signature(beat_answer())),
                "token_blocks": In(3),
                "done": Out(1),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "cause": Out(DmaCause),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        width = dma_work(self._params).size
        m.submodules.commands = commands = DmaCommands(self._params)
        m.submodules.work = work = fifo.SyncFIFO(width=width, depth=IN_FLIGHT)
        m.submodules.requester = requester = ReadRequester(chunk=CHUNK_BEATS)
        m.submodules.scales = scales = ScaleRequester()
        m.submodules.output = output = DmaOutput(self._params)
        m.d.comb += [
            work.w_data.eq(commands.work.payload.as_value()),
            work.w_en.eq(commands.work.valid),
            commands.work.ready.eq(work.w_rdy),
            Value.cast(output.work.payload).eq(work.r_data),
            output.work.valid.eq(work.r_rdy),
            work.r_en.eq(output.work.ready),
            commands.token_blocks.eq(self.token_blocks),
            requester.room.eq(CHUNK_BEATS),
            requester.stop.eq(output.stopped),
            scales.stop.eq(output.stopped),
            output.written.eq(self.written),
            self.port.write_ack.ready.eq(1),
            self.done.eq(output.done),
            self.fault.eq(output.fault),
            self.fault_valid.eq(output.fault_valid),
            self.cause.eq(output.cause),
        ]
        for source, sink in (
            (self.command, commands.command),
            (commands.hbm, requester.ranges),
            (commands.kv, scales.ranges),
            (requester.request, self.port.request),
            (scales.request, self.kv_request),
            (self.port.read_data, output.hbm_data),
            (self.kv_data, output.kv_data),
            (output.access, self.access),
            (output.blocks, self.blocks),
        ):
            connect_streams(m, source, sink)
        return m
