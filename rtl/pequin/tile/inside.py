"""The host's way to the buffers inside the MAC array and the vector unit."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.mac.types import BEAT_BITS, activation_write
from pequin.tile.types import ErrorCode, beat_access, beat_answer
from pequin.vector.types import ACCESS_ELEMENTS, scalar_bits


class ActivationAccess(wiring.Component):
    """Read and write the activation buffer; pass the vector unit's writes.

    Beat 2 n is the elements of block n = column * act_blocks + address, beat 2 n + 1 has its
    scale in byte 0. A write of the scale stores the block, with the elements of the last write to
    an even beat. A read while the MAC array has work is refused with `ErrorCode.BUSY`.

    *Timing*: an answer comes five clocks after its access. The vector unit's writes go first.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    access : In(stream of beat_access()), answer : Out(stream of beat_answer())
    vector : In(stream of activation_write(params))
    output : Out(stream of activation_write(params))
    busy : In(1)
        The MAC array has work; it begins to read the buffer four clocks after this at the
        earliest.
    peek, peek_address, peek_column : Out; peeked : In(264)
        As `MacArray`.
    """

    access: Any
    answer: Any
    vector: Any
    output: Any
    busy: Any
    peek: Any
    peek_address: Any
    peek_column: Any
    peeked: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        c = params.config
        write = stream.Signature(activation_write(params))
        super().__init__(
            {
                "access": In(stream.Signature(beat_access())),
                "answer": Out(stream.Signature(beat_answer())),
                "vector": In(write),
                "output": Out(write),
                "busy": In(1),
                "peek": Out(1),
                "peek_address": Out(range(c.act_blocks)),
                "peek_column": Out(range(c.columns)),
                "peeked": In(BEAT_BITS + 8),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        depth = self._params.config.act_blocks
        held: Any = Signal(beat_access())
        elements, refused = Signal(BEAT_BITS), Signal()
        block = held.address[1 : 1 + (depth * self._params.config.columns - 1).bit_length()]
        # What was offered stays until it is taken.
        writing, own, locked = Signal(), Signal(), Signal()
        m.d.comb += own.eq(writing & (locked | ~self.vector.valid))
        m.d.sync += locked.eq(own & ~self.output.ready)
        m.d.comb += self.output.payload.eq(self.vector.payload)
        with m.If(own):
            m.d.comb += [
                self.output.payload.elements.eq(elements),
                self.output.payload.scale.eq(held.data[:8]),
                self.output.payload.column.eq(self.peek_column),
                self.output.payload.address.eq(self.peek_address),
            ]
        data = Signal(BEAT_BITS)
        with m.If(held.address[0]):
            m.d.comb += data.eq(self.peeked[BEAT_BITS:])
        with m.Else():
            m.d.comb += data.eq(self.peeked[:BEAT_BITS])
        beat = Signal(BEAT_BITS)
        m.d.comb += [
            self.vector.ready.eq(self.output.ready & ~own),
            self.output.valid.eq(self.vector.valid | own),
            self.answer.payload.data.eq(beat),
        ]
        with m.If(refused):
            m.d.comb += [
                self.answer.payload.error.eq(ErrorCode.BUSY),
                self.answer.payload.data.eq(0),
            ]
        with m.FSM(name="activation_access"):
            with m.State("IDLE"):
                m.d.comb += self.access.ready.eq(1)
                m.d.sync += [held.eq(self.access.payload), refused.eq(0)]
                with m.If(self.access.valid):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [
                    self.peek_address.eq(block % depth),
                    self.peek_column.eq(block // depth),
                    self.peek.eq(~held.write & ~self.busy),
                    refused.eq(~held.write & self.busy),
                ]
                with m.If(held.write & ~held.address[0]):
                    m.d.sync += elements.eq(held.data)
                with m.If(held.write & held.address[0]):
                    m.next = "WRITE"
                with m.Else():
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.comb += writing.eq(1)
                with m.If(own & self.output.ready):
                    m.next = "ANSWER"
            with m.State("READ"):
                m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "HOLD"
            with m.State("HOLD"):
                m.d.sync += [beat.eq(data), self.peek.eq(0)]
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.answer.valid.eq(1)
                with m.If(self.answer.ready):
                    m.next = "IDLE"
        return m


class ScalarAccess(wiring.Component):
    """Read the vector unit's scalar registers, 8 to a beat; refuse writes with `ErrorCode.ACCESS`.

    *Timing*: an answer comes nine clocks after its access.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    access : In(stream of beat_access()), answer : Out(stream of beat_answer())
    peek_index : Out, peeked : In(32)
        As `VectorUnit`.
    """

    access: Any
    answer: Any
    peek_index: Any
    peeked: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "access": In(stream.Signature(beat_access())),
                "answer": Out(stream.Signature(beat_answer())),
                "peek_index": Out(scalar_bits(params)),
                "peeked": In(32),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        write, beat = Signal(), Signal(BEAT_BITS)
        place = Signal(range(ACCESS_ELEMENTS))
        base = Signal(len(self.peek_index))
        m.d.comb += [self.peek_index.eq(base + place), self.answer.payload.data.eq(beat)]
        with m.If(write):
            m.d.comb += self.answer.payload.error.eq(ErrorCode.ACCESS)
        with m.FSM(name="scalar_access"):
            with m.State("IDLE"):
                m.d.comb += self.access.ready.eq(1)
                m.d.sync += [
                    write.eq(self.access.payload.write),
                    base.eq(self.access.payload.address * ACCESS_ELEMENTS),
                    place.eq(0),
                ]
                with m.If(self.access.valid):
                    m.next = "READ"
            with m.State("READ"):
                m.d.sync += [place.eq(place + 1), beat.eq(Cat(beat[32:], self.peeked))]
                with m.If(place == ACCESS_ELEMENTS - 1):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.answer.valid.eq(1)
                with m.If(self.answer.ready):
                    m.next = "IDLE"
        return m
