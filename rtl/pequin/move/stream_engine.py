"""The stream unit: HBM beats into the weight FIFO."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.hbm.types import BEAT_BITS, HbmError, HbmPort
from pequin.move.requester import ReadRequester
from pequin.move.types import StreamCause, chunk_beats
from pequin.tile.types import ErrorCode, UnitFault, UnitId, unit_words

IN_FLIGHT = 16
"""Commands accepted and not completed."""


class StreamEngine(wiring.Component):
    """Read ahead as far as the FIFO has room, across commands.

    Never more beats are asked for than the FIFO has free places, so a beat from HBM is taken at
    once and no return buffer fills. A request of up to `chunk` beats waits until it fits as a
    whole.

    *Timing*: a request shows two clocks after its command was accepted; a beat is at `output` one
    clock after `port.read_data`. One beat per clock, without a gap between commands. `done` comes
    one clock after the FIFO has taken a command's last beat, a fault likewise and in the order of
    the commands. After a fault the engine asks for nothing and drops what still comes.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    command : In(stream of unit_words(UnitId.STREAM))
    port : Out(HbmPort())
        Reads only.
    output : Out(stream of 256 bits)
        To a FIFO that is ready while it has room.
    room : In(range(fifo_beats + 1))
        Free places of the FIFO; a beat that it takes counts from the next clock on.
    done : Out(1)
    fault : Out(UnitFault), fault_valid : Out(1)
    cause : Out(StreamCause)
    """

    command: Any
    port: Any
    output: Any
    room: Any
    done: Any
    fault: Any
    fault_valid: Any
    cause: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "command": In(stream.Signature(unit_words(UnitId.STREAM))),
                "port": Out(HbmPort()),
                "output": Out(stream.Signature(BEAT_BITS)),
                "room": In(range(params.config.fifo_beats + 1)),
                "done": Out(1),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "cause": Out(StreamCause),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        chunk = chunk_beats(self._params)
        m.submodules.requester = requester = ReadRequester(chunk=chunk)
        m.submodules.commands = commands = fifo.SyncFIFO(width=64, depth=IN_FLIGHT)
        stopped = Signal()
        self._accept(m, requester, commands, stopped)
        on_the_way = self._credit(m, requester, chunk)
        self._receive(m, commands, stopped)
        output = self.output
        with m.If(output.valid & output.ready):
            m.d.comb += self.cause.eq(StreamCause.BUSY)
        with m.Elif(stopped):
            m.d.comb += self.cause.eq(StreamCause.IDLE)
        with m.Elif((on_the_way != 0) | (requester.asked != 0) | self.port.request.valid):
            m.d.comb += self.cause.eq(StreamCause.HBM)
        with m.Elif(requester.active):
            m.d.comb += self.cause.eq(StreamCause.ROOM)
        with m.Else():
            m.d.comb += self.cause.eq(StreamCause.IDLE)
        return m

    def _accept(self, m: Module, requester: Any, commands: Any, stopped: Signal) -> None:
        """Note each command for the receiver; a command without beats is the last one noted."""
        command, port = self.command, self.port
        empty, refused = Signal(), Signal()
        take = Signal()
        m.d.comb += [
            empty.eq(command.payload[1] == 0),
            requester.ranges.payload.address.eq(command.payload[0]),
            requester.ranges.payload.beats.eq(command.payload[1]),
            requester.ranges.valid.eq(command.valid & commands.w_rdy & ~empty & ~refused),
            command.ready.eq(commands.w_rdy & requester.ranges.ready & ~refused),
            take.eq(command.valid & command.ready),
            commands.w_en.eq(take),
            commands.w_data.eq(command.payload.as_value()),
            requester.stop.eq(stopped),
            port.request.payload.eq(requester.request.payload),
            port.request.valid.eq(requester.request.valid),
            requester.request.ready.eq(port.request.ready),
            port.write_ack.ready.eq(1),
        ]
        with m.If(take & empty):
            m.d.sync += refused.eq(1)

    def _credit(self, m: Module, requester: Any, chunk: int) -> Signal:
        """Count the beats asked for that are not in the FIFO; return that count."""
        on_the_way = Signal(range(self._params.config.fifo_beats + 1))
        free = Signal(range(self._params.config.fifo_beats + 1))
        arrives = self.output.valid & self.output.ready
        m.d.sync += on_the_way.eq(on_the_way + requester.asked - arrives)
        m.d.comb += [
            free.eq(self.room - on_the_way),
            requester.room.eq(Mux(free > chunk, chunk, free)),
        ]
        return on_the_way

    def _receive(self, m: Module, commands: Any, stopped: Signal) -> None:
        """Pass beats on and count them off; tell the command that ends, or why it cannot."""
        read, output = self.port.read_data, self.output
        came = Signal(32)
        address, beats = commands.r_data[:32], commands.r_data[32:]
        take, good, last, empty, lost = Signal(), Signal(), Signal(), Signal(), Signal()
        final = Signal()
        m.d.comb += [
            read.ready.eq(~output.valid | output.ready | stopped),
            take.eq(read.valid & read.ready & ~stopped),
            good.eq(read.payload.error == HbmError.OK),
            last.eq(came + 1 == beats),
            empty.eq(commands.r_rdy & (beats == 0) & ~stopped & ~output.valid),
            lost.eq(take & ~good),
            commands.r_en.eq(take & good & last),
        ]
        with m.If(output.ready):
            m.d.sync += output.valid.eq(0)
        with m.If(take & good):
            m.d.sync += [
                output.valid.eq(1),
                output.payload.eq(read.payload.data),
                final.eq(last),
                came.eq(Mux(last, 0, came + 1)),
            ]
        with m.If(lost | empty):
            m.d.sync += stopped.eq(1)
        outside = read.payload.error == HbmError.ADDRESS
        m.d.sync += [
            self.done.eq(output.valid & output.ready & final),
            self.fault_valid.eq(lost | empty),
            self.fault.detail.eq(address + Mux(outside, 0, came)),
        ]
        with m.If(empty):
            m.d.sync += self.fault.code.eq(ErrorCode.COMMAND)
        with m.Elif(outside):
            m.d.sync += self.fault.code.eq(ErrorCode.HBM_ADDRESS)
        with m.Else():
            m.d.sync += self.fault.code.eq(ErrorCode.HBM_ECC)
