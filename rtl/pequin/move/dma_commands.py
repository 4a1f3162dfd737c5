"""Checks of the DMA unit's commands, and the requests they lead to."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.mac.types import CHUNK_BLOCKS
from pequin.move.dma_types import DmaKind, dma_work, kv_range
from pequin.move.types import read_range
from pequin.tile.types import ErrorCode, UnitId, unit_words
from pequin.vector.types import ACCESS_ELEMENTS


class DmaCommands(wiring.Component):
    """Take commands one after another; nothing follows one that is refused.

    *Timing*: a command's range and work show two clocks after it was accepted; one command every
    three clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    command : In(stream of unit_words(UnitId.DMA))
    token_blocks : In(3)
        Blocks of a token, as the KV buffer is configured; 0 when it is not.
    hbm : Out(stream of read_range()), kv : Out(stream of kv_range())
        What is to be read, for commands without an error.
    work : Out(stream of dma_work(params))
    """

    command: Any
    token_blocks: Any
    hbm: Any
    kv: Any
    work: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "command": In(stream.Signature(unit_words(UnitId.DMA))),
                "token_blocks": In(3),
                "hbm": Out(stream.Signature(read_range())),
                "kv": Out(stream.Signature(kv_range())),
                "work": Out(stream.Signature(dma_work(params))),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        words = Signal.like(self.command.payload, name="words")
        held, checked, stopped = Signal(), Signal(), Signal()
        m.d.comb += self.command.ready.eq(~held)
        with m.If(~held):
            m.d.sync += [words.eq(self.command.payload), held.eq(self.command.valid)]
        impossible, unplaced, misstepped = Signal(), Signal(), Signal()
        m.d.comb += [
            impossible.eq(self._impossible(words)),
            misstepped.eq(words[4][:3].any() & (words[3] != 1)),
            unplaced.eq((self.token_blocks == 0) | words[1][:3].any() | misstepped),
        ]
        is_kv = words[0] == DmaKind.SCALES.value
        work, hbm, kv = self.work, self.hbm, self.kv
        error = work.payload.error
        with m.If(held & ~checked):
            m.d.sync += [
                checked.eq(1),
                error.eq(ErrorCode.NONE),
                work.payload.detail.eq(words[1]),
                work.payload.kind.as_value().eq(words[0]),
                work.payload.source.eq(words[1] + Mux(is_kv, self.token_blocks, 0)),
                work.payload.step.eq(Mux(is_kv, words[4], 1)),
                work.payload.target.eq(words[2]),
                work.payload.count.eq(words[3]),
                work.valid.eq(1),
            ]
            with m.If(impossible):
                m.d.sync += [error.eq(ErrorCode.COMMAND), work.payload.detail.eq(words[0])]
            with m.Elif(is_kv & unplaced):
                m.d.sync += error.eq(ErrorCode.KV_ADDRESS)
                with m.If((self.token_blocks != 0) & ~words[1][:3].any()):
                    m.d.sync += work.payload.detail.eq(words[1] + words[4])
            with m.Elif(is_kv):
                m.d.sync += kv.valid.eq(1)
            with m.Else():
                m.d.sync += hbm.valid.eq(1)
            with m.If(impossible | (is_kv & unplaced)):
                m.d.sync += stopped.eq(1)
        for output in (work, hbm, kv):
            with m.If(output.valid & output.ready):
                m.d.sync += output.valid.eq(0)
        gone = Cat(~output.valid | output.ready for output in (work, hbm, kv)).all()
        with m.If(checked & gone & ~stopped):
            m.d.sync += [held.eq(0), checked.eq(0)]
        scale_beats = (words[3] + (CHUNK_BLOCKS - 1)) >> (CHUNK_BLOCKS.bit_length() - 1)
        is_blocks = work.payload.kind == DmaKind.BLOCKS
        m.d.comb += [
            hbm.payload.address.eq(work.payload.source),
            hbm.payload.beats.eq(work.payload.count + Mux(is_blocks, scale_beats, 0)),
            kv.payload.address.eq(work.payload.source),
            kv.payload.step.eq(work.payload.step),
            kv.payload.count.eq(work.payload.count),
        ]
        return m

    def _impossible(self, words: Any) -> Value:
        """Return whether there is nothing to move, or no place to move it to."""
        elements = self._params.config.vector_elements
        is_scales = words[0] == DmaKind.SCALES.value
        per_item = Mux(is_scales, words[3] << 5, words[3] << 3)
        misplaced = (words[2] % ACCESS_ELEMENTS != 0) | (words[2] + per_item > elements)
        return Cat(
            words[0] > DmaKind.SCALES.value,
            words[3] == 0,
            (words[0] != DmaKind.BLOCKS.value) & misplaced,
        ).any()
