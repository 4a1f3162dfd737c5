"""The output side of the DMA unit: beats become writes and blocks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.fp32.types import CANONICAL_NAN
from pequin.hbm.types import BEAT_BITS, HbmError, HbmReadBeat
from pequin.mac.types import CHUNK_BLOCKS
from pequin.move.dma_types import DmaKind, dma_work
from pequin.move.types import MEMORY_SHIFT, DmaCause
from pequin.tile.types import ErrorCode, Memory, UnitFault, beat_answer
from pequin.vector.types import ACCESS_ELEMENTS, access_request, quantized_block

PARTS = BEAT_BITS // 8 // ACCESS_ELEMENTS
"""Writes that a beat of scales leads to."""


class DmaOutput(wiring.Component):
    """Carry out one command after the other as its beats come.

    *Timing*: a beat leads to a write or a block one clock after it was taken; one per clock. Two
    clocks between commands. `done` and a fault come in the order of the commands. After a fault
    everything that comes is dropped.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    work : In(stream of dma_work(params))
    hbm_data : In(stream of HbmReadBeat), kv_data : In(stream of beat_answer())
    access : Out(stream of access_request(params)), written : In(1)
        See `DmaUnit`.
    blocks : Out(stream of quantized_block())
    done : Out(1), fault : Out(UnitFault), fault_valid : Out(1)
    stopped : Out(1)
        There was a fault.
    cause : Out(DmaCause)
    """

    work: Any
    hbm_data: Any
    kv_data: Any
    access: Any
    written: Any
    blocks: Any
    done: Any
    fault: Any
    fault_valid: Any
    stopped: Any
    cause: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "work": In(stream.Signature(dma_work(params))),
                "hbm_data": In(stream.Signature(HbmReadBeat)),
                "kv_data": In(stream.Signature(beat_answer())),
                "access": Out(stream.Signature(access_request(params))),
                "written": In(1),
                "blocks": Out(stream.Signature(quantized_block())),
                "done": Out(1),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "stopped": Out(1),
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
        self._declare()
        self._choose(m)
        self._convert(m)
        self._advance(m)
        self._finish(m)
        self._explain(m)
        return m

    def _declare(self) -> None:
        self._active = Signal(name="active")
        self._now: Any = Signal(dma_work(self._params), name="now")
        self._left = Signal(32, name="left")
        self._from_kv, self._is_blocks = Signal(name="from_kv"), Signal(name="is_blocks")
        # A chunk's scales, or those of a granule, which are shifted out.
        self._scales = Signal(BEAT_BITS, name="scales")
        self._chunk_left = Signal(range(CHUNK_BLOCKS + 1), name="chunk_left")
        self._parts = Signal(range(PARTS + 1), name="parts")
        self._come, self._good = Signal(name="come"), Signal(name="good")
        self._beat = Signal(BEAT_BITS, name="beat")
        self._free = Signal(name="free")
        self._wanted = Signal(name="wanted")
        self._take, self._move = Signal(name="take"), Signal(name="move")
        self._take_scales = Signal(name="take_scales")

    def _choose(self, m: Module) -> None:
        """Decide whether a beat is taken and whether something goes out."""
        hbm, kv = self.hbm_data, self.kv_data
        access_free = ~self.access.valid | self.access.ready
        block_free = ~self.blocks.valid | self.blocks.ready
        last_part = (self._parts == 0) | ((self._parts == 1) & access_free)
        needs_scales = self._is_blocks & (self._chunk_left == 0)
        m.d.comb += [
            self._from_kv.eq(self._now.kind == DmaKind.SCALES),
            self._is_blocks.eq(self._now.kind == DmaKind.BLOCKS),
            self._free.eq(Mux(self._is_blocks, block_free, access_free)),
            self._come.eq(Mux(self._from_kv, kv.valid, hbm.valid)),
            self._beat.eq(Mux(self._from_kv, kv.payload.data, hbm.payload.data)),
            self._good.eq(
                Mux(
                    self._from_kv,
                    kv.payload.error == ErrorCode.NONE,
                    hbm.payload.error == HbmError.OK,
                )
            ),
            self._wanted.eq(
                self._active
                & (self._left != 0)
                & Mux(self._from_kv, last_part, needs_scales | self._free)
            ),
            kv.ready.eq(self.stopped | (self._wanted & self._from_kv)),
            hbm.ready.eq(self.stopped | (self._wanted & ~self._from_kv)),
            self._take.eq(self._wanted & self._come & self._good),
            self._take_scales.eq(self._take & needs_scales),
            self._move.eq(
                Mux(
                    self._from_kv,
                    self._active & (self._parts != 0) & self._free,
                    self._take & ~needs_scales,
                )
            ),
        ]

    def _convert(self, m: Module) -> None:
        """Hold what goes out until it is taken."""
        access, blocks, now = self.access, self.blocks, self._now
        powers = Cat(power_of_two(self._scales[8 * i : 8 * i + 8]) for i in range(ACCESS_ELEMENTS))
        for output in (access, blocks):
            with m.If(output.ready):
                m.d.sync += output.valid.eq(0)
        m.d.comb += access.payload.write.eq(1)
        with m.If(self._move & ~self._is_blocks):
            m.d.sync += [
                access.valid.eq(1),
                access.payload.address.eq(now.target),
                access.payload.data.eq(Mux(self._from_kv, powers, self._beat)),
                now.target.eq(now.target + ACCESS_ELEMENTS),
            ]
        with m.If(self._move & self._is_blocks):
            m.d.sync += [
                blocks.valid.eq(1),
                blocks.payload.elements.eq(self._beat),
                blocks.payload.scale.eq(self._scales[:8]),
            ]

    def _advance(self, m: Module) -> None:
        """Count beats, chunks and the parts of a granule's scales."""
        now = self._now
        with m.If(self._move & self._from_kv):
            m.d.sync += [
                self._scales.eq(self._scales >> 8 * ACCESS_ELEMENTS),
                self._parts.eq(self._parts - 1),
            ]
        with m.If(self._move & self._is_blocks):
            m.d.sync += [
                self._scales.eq(self._scales >> 8),
                self._chunk_left.eq(self._chunk_left - 1),
            ]
        with m.If(self._take):
            m.d.sync += now.source.eq(now.source + now.step)
            with m.If(~self._take_scales):
                m.d.sync += self._left.eq(self._left - 1)
            with m.If(self._take_scales):
                m.d.sync += [self._scales.eq(self._beat), self._chunk_left.eq(CHUNK_BLOCKS)]
            with m.If(self._from_kv):
                m.d.sync += [self._scales.eq(self._beat), self._parts.eq(PARTS)]

    def _finish(self, m: Module) -> None:
        """End a command when all it writes is written, or tell why it cannot go on."""
        now, work = self._now, self.work
        settled, refused, lost = Signal(), Signal(), Signal()
        m.d.comb += [
            settled.eq(
                (self._left == 0)
                & (self._parts == 0)
                & Mux(self._is_blocks, ~self.blocks.valid, ~self.access.valid & self.written)
            ),
            refused.eq(self._active & (now.error != ErrorCode.NONE)),
            lost.eq(self._wanted & self._come & ~self._good),
            work.ready.eq(~self._active & ~self.stopped),
        ]
        m.d.sync += [
            self.done.eq(self._active & settled & ~refused),
            self.fault_valid.eq(refused | lost),
        ]
        with m.If(work.ready):
            m.d.sync += [
                self._active.eq(work.valid),
                now.eq(work.payload),
                self._left.eq(Mux(work.payload.error == ErrorCode.NONE, work.payload.count, 0)),
                self._chunk_left.eq(0),
                self.fault.detail.eq(work.payload.detail),
            ]
        with m.Elif(refused | lost):
            m.d.sync += [self._active.eq(0), self.stopped.eq(1), self._parts.eq(0)]
            self._tell(m, lost)
        with m.Elif(settled):
            m.d.sync += self._active.eq(0)

    def _tell(self, m: Module, lost: Signal) -> None:
        """Name the fault; `fault.detail` has the command's own until then."""
        code, detail = self.fault.code, self.fault.detail
        source = self._now.source
        with m.If(~lost):
            m.d.sync += code.eq(self._now.error)
        with m.Elif(self._from_kv):
            sram = self.kv_data.payload.error == ErrorCode.SRAM_ECC
            place = Const(Memory.KV.value << MEMORY_SHIFT, 32) | source[:MEMORY_SHIFT]
            m.d.sync += [
                code.eq(self.kv_data.payload.error),
                detail.eq(Mux(sram, place, source)),
            ]
        with m.Elif(self.hbm_data.payload.error == HbmError.ADDRESS):
            m.d.sync += code.eq(ErrorCode.HBM_ADDRESS)
        with m.Else():
            m.d.sync += [code.eq(ErrorCode.HBM_ECC), detail.eq(source)]

    def _explain(self, m: Module) -> None:
        cause = self.cause
        with m.If(~self._active):
            m.d.comb += cause.eq(DmaCause.IDLE)
        with m.Elif(self._move):
            m.d.comb += cause.eq(DmaCause.BUSY)
        with m.Elif(self._take_scales | (self._take & self._from_kv)):
            m.d.comb += cause.eq(DmaCause.SCALE)
        with m.Elif(self._wanted):
            m.d.comb += cause.eq(Mux(self._from_kv, DmaCause.KV, DmaCause.HBM))
        with m.Else():
            m.d.comb += cause.eq(DmaCause.OUTPUT)


def power_of_two(scale: Value) -> Value:
    """Return the fp32 bits of an E8M0 scale: 0xFF is NaN, and 0x00, below 2**-126, zero."""
    return Mux(scale == 0xFF, Const(CANONICAL_NAN, 32), Cat(Const(0, 23), scale, Const(0, 1)))
