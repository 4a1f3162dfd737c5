"""Accesses to the KV buffer from the host and from the DMA unit."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BEAT_BYTES, TileParams
from pequin.hbm.types import BEAT_BITS
from pequin.kv.types import BANKS, address_bits, bank_of, bank_write, row_of
from pequin.secded import READ_CLOCKS
from pequin.tile.types import ErrorCode, beat_access, beat_answer

PATIENCE = 16
"""Clocks that an access waits before the vector unit's writes are held back."""


class KvAccess(wiring.Component):
    """One access at a time; DMA and host take turns when both want one.

    A read sees every write that was accepted before it.

    *Timing*: an answer to a read comes 5 clocks after the access was accepted when nothing is in
    its way, to a write 2 clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    access : In(stream of beat_access()), answer : Out(stream of beat_answer())
        The host's. Outside the buffer: `ErrorCode.ACCESS`; a beat that cannot be corrected:
        `ErrorCode.SRAM_ECC`.
    dma_request : In(stream of 32-bit beat addresses), dma_data : Out(stream of beat_answer())
        Reads of the DMA unit. Outside the buffer: `ErrorCode.KV_ADDRESS`.
    quiet : In(1), hold : Out(1)
        Nothing accepted is still to be written; accept nothing more until it is.
    want : Out(2), row : Out; granted : In(2); data, failed : In
        Reads, to the banks.
    give : Out(2), write : Out(bank_write(params)); taken : In(2)
        Writes, to the banks.
    """

    access: Any
    answer: Any
    dma_request: Any
    dma_data: Any
    quiet: Any
    hold: Any
    want: Any
    row: Any
    granted: Any
    data: Any
    failed: Any
    give: Any
    write: Any
    taken: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "access": In(stream.Signature(beat_access())),
                "answer": Out(stream.Signature(beat_answer())),
                "dma_request": In(stream.Signature(32)),
                "dma_data": Out(stream.Signature(beat_answer())),
                "quiet": In(1),
                "hold": Out(1),
                "want": Out(BANKS),
                "row": Out(address_bits(params) - 1),
                "granted": In(BANKS),
                "data": In(BEAT_BITS).array(BANKS),
                "failed": In(BANKS),
                "give": Out(BANKS),
                "write": Out(bank_write(params)),
                "taken": In(BANKS),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        held: Any = Signal(beat_access())
        from_dma, dma_last, outside = Signal(), Signal(), Signal()
        bank = Signal()
        result: Any = Signal(beat_answer())
        reading, writing = Signal(), Signal()
        done = Signal()
        m.d.comb += [
            bank.eq(bank_of(held.address)),
            outside.eq(held.address >= self._params.config.kv_beats),
            self.row.eq(row_of(held.address)),
            self.write.row.eq(row_of(held.address)),
            self.write.mask.eq((1 << BEAT_BYTES) - 1),
            self.write.data.eq(held.data),
            self.want.eq(Mux(reading & self.quiet, 1 << bank, 0)),
            self.give.eq(Mux(writing, 1 << bank, 0)),
            done.eq((self.granted & self.want).any() | (self.taken & self.give).any()),
            self.answer.payload.eq(result),
            self.dma_data.payload.eq(result),
        ]
        self._wait(m, reading | writing, done)
        clocks = Signal(range(READ_CLOCKS))
        with m.FSM(name="kv_access"):
            with m.State("IDLE"):
                self._choose(m, held, from_dma, dma_last)
                with m.If(self.access.valid | self.dma_request.valid):
                    m.next = "SERVE"
            with m.State("SERVE"):
                m.d.comb += [
                    reading.eq(~outside & ~held.write),
                    writing.eq(~outside & held.write),
                ]
                error = Mux(from_dma, ErrorCode.KV_ADDRESS, ErrorCode.ACCESS)
                m.d.sync += [
                    clocks.eq(0),
                    result.data.eq(0),
                    result.error.eq(Mux(outside, error, ErrorCode.NONE)),
                ]
                with m.If(outside | (done & held.write)):
                    m.next = "ANSWER"
                with m.Elif(done):
                    m.next = "CATCH"
            with m.State("CATCH"):
                lost = Array(self.failed)[bank]
                m.d.sync += [
                    clocks.eq(clocks + 1),
                    result.data.eq(Mux(lost, 0, Array(self.data)[bank])),
                    result.error.eq(Mux(lost, ErrorCode.SRAM_ECC, ErrorCode.NONE)),
                ]
                with m.If(clocks == READ_CLOCKS - 1):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [self.answer.valid.eq(~from_dma), self.dma_data.valid.eq(from_dma)]
                with m.If(Mux(from_dma, self.dma_data.ready, self.answer.ready)):
                    m.next = "IDLE"
        return m

    def _choose(self, m: Module, held: Any, from_dma: Signal, dma_last: Signal) -> None:
        access, dma = self.access, self.dma_request
        with m.If(dma.valid & ~(access.valid & dma_last)):
            m.d.comb += dma.ready.eq(1)
            m.d.sync += [
                held.address.eq(dma.payload),
                held.write.eq(0),
                from_dma.eq(1),
                dma_last.eq(1),
            ]
        with m.Elif(access.valid):
            m.d.comb += access.ready.eq(1)
            m.d.sync += [held.eq(access.payload), from_dma.eq(0), dma_last.eq(0)]

    def _wait(self, m: Module, busy: Any, done: Signal) -> None:
        """Hold back other writes when an access has waited long; it never starves."""
        waited = Signal(range(PATIENCE + 1))
        m.d.comb += self.hold.eq(waited == PATIENCE)
        with m.If(~busy | done):
            m.d.sync += waited.eq(0)
        with m.Elif(~self.hold):
            m.d.sync += waited.eq(waited + 1)
