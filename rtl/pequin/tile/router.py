"""The host's accesses, each to the memory it names."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.hbm.types import HbmError, HbmPort
from pequin.tile.types import (
    ErrorCode,
    Memory,
    TileAccess,
    TileAnswer,
    beat_access,
    beat_answer,
)
from pequin.vector.types import ACCESS_ELEMENTS, access_request

HBM_OUTSTANDING = 64
"""HBM accesses of one direction that may be on their way."""

BEAT_PORTS = {
    Memory.KV: "kv",
    Memory.PROGRAM: "program",
    Memory.ACTIVATIONS: "activations",
    Memory.SCALARS: "scalars",
    Memory.REGISTERS: "registers",
}
"""Memories behind a pair of streams of `beat_access` and `beat_answer`."""


LASTING = (Memory.PROGRAM, Memory.REGISTERS)
"""Beat memories that are not cleared with the units."""


class _Mode(enum.Enum, shape=1):
    READ = 0
    WRITE = 1


class HostRouter(wiring.Component):
    """Carry accesses out in order; answer each.

    HBM accesses of one direction overlap; all others, and a change of direction, wait for the
    answers before. An access that a clearing of the units cut off is carried out again: nothing
    is lost, and nothing hangs.

    *Timing*: an access reaches its memory one clock after it was accepted. A write to vector
    memory is answered after a read of the same place, which tells that it is written.

    Parameters
    ----------
    params
        The tile's parameters.
    registers
        Beats of the register memory.

    Members
    -------
    accesses : In(stream of TileAccess), answers : Out(stream of TileAnswer)
    hbm : Out(HbmPort())
    vector : Out(stream of access_request(params)), vector_data : In(stream of 256 bits)
    NAME_access : Out(stream of beat_access()), NAME_answer : In(stream of beat_answer())
        For kv, program, activations, scalars and registers.
    clear : In(1)
        The units are being cleared; nothing is passed to them. Program memory, registers and HBM
        are not cleared.
    """

    accesses: Any
    answers: Any
    hbm: Any
    vector: Any
    vector_data: Any
    clear: Any

    def __init__(self, params: TileParams, *, registers: int) -> None:
        self._params = params
        c = params.config
        self._sizes = {
            Memory.VECTOR: c.vector_elements // ACCESS_ELEMENTS,
            Memory.KV: c.kv_beats,
            Memory.PROGRAM: c.program_words // 4,
            Memory.ACTIVATIONS: 2 * c.columns * c.act_blocks,
            Memory.SCALARS: -(-c.scalars // ACCESS_ELEMENTS),
            Memory.REGISTERS: registers,
        }
        ports: dict[str, Any] = {}
        for name in BEAT_PORTS.values():
            ports[f"{name}_access"] = Out(stream.Signature(beat_access()))
            ports[f"{name}_answer"] = In(stream.Signature(beat_answer()))
        super().__init__(
            {
                "accesses": In(stream.Signature(TileAccess)),
                "answers": Out(stream.Signature(TileAnswer)),
                "hbm": Out(HbmPort()),
                "vector": Out(stream.Signature(access_request(params))),
                "vector_data": In(stream.Signature(32 * ACCESS_ELEMENTS)),
                **ports,
                "clear": In(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._held, self._current = Signal(name="held"), Signal(TileAccess, name="current")
        self._outside = Signal(name="outside")
        self._mode, self._count = Signal(_Mode, name="mode"), Signal(range(HBM_OUTSTANDING + 1))
        self._sent = Signal(name="sent")
        self._finished = Signal(name="finished")
        m.submodules.output = self._output = fifo.SyncFIFO(
            width=TileAnswer.as_shape().size, depth=4
        )
        m.d.comb += [
            Value.cast(self.answers.payload).eq(self._output.r_data),
            self.answers.valid.eq(self._output.r_rdy),
            self._output.r_en.eq(self.answers.ready),
        ]
        self._answer: Any = Signal(TileAnswer, name="answer")
        m.d.comb += self._output.w_data.eq(Value.cast(self._answer))
        self._accept(m)
        self._send_hbm(m)
        self._send_others(m)
        return m

    def _accept(self, m: Module) -> None:
        accesses = self.accesses
        m.d.comb += accesses.ready.eq(~self._held | self._finished)
        with m.If(accesses.ready):
            m.d.sync += [
                self._held.eq(accesses.valid),
                self._current.eq(accesses.payload),
                self._sent.eq(0),
                self._outside.eq(self._is_outside(m, accesses.payload)),
            ]

    def _is_outside(self, m: Module, access: Any) -> Value:
        outside = Signal(name="given_outside")
        with m.Switch(access.memory):
            with m.Case(Memory.HBM):
                m.d.comb += outside.eq(0)
            for memory, size in self._sizes.items():
                with m.Case(memory):
                    m.d.comb += outside.eq(access.address >= size)
            with m.Default():
                m.d.comb += outside.eq(1)
        return outside

    def _send_hbm(self, m: Module) -> None:
        """Send to HBM; turn what comes back into answers while such accesses are on their way."""
        hbm, current = self.hbm, self._current
        data_sent = Signal()
        mine = self._held & (current.memory == Memory.HBM)
        wanted = Mux(current.write, _Mode.WRITE, _Mode.READ)
        fits = (self._count == 0) | (
            (self._mode.as_value() == wanted) & (self._count != HBM_OUTSTANDING)
        )
        request_sent = self._sent
        data_done = ~current.write | data_sent | hbm.write_data.ready
        request_done = request_sent | (hbm.request.ready & hbm.request.valid)
        go = Signal(name="go_hbm")
        started = Signal(name="started")
        m.d.comb += [
            go.eq(mine & (fits | started)),
            hbm.request.payload.address.eq(current.address),
            hbm.request.payload.length.eq(1),
            hbm.request.payload.write.eq(current.write),
            hbm.request.valid.eq(go & ~request_sent),
            hbm.write_data.payload.eq(current.data),
            hbm.write_data.valid.eq(go & current.write & ~data_sent),
        ]
        hbm_finished = Signal(name="hbm_finished")
        m.d.comb += hbm_finished.eq(go & request_done & data_done)
        with m.If(go):
            m.d.sync += [
                started.eq(~hbm_finished),
                self._mode.as_value().eq(wanted),
                request_sent.eq(request_done & ~hbm_finished),
                data_sent.eq(current.write & data_done & ~hbm_finished),
            ]
        came = Signal(name="came")
        self._hbm_finished, self._came = hbm_finished, came
        m.d.sync += self._count.eq(self._count + (go & ~started) - came)
        reading = (self._mode == _Mode.READ) & (self._count != 0)
        writing = (self._mode == _Mode.WRITE) & (self._count != 0)
        m.d.comb += [
            hbm.read_data.ready.eq(reading & self._output.w_rdy),
            hbm.write_ack.ready.eq(writing & self._output.w_rdy),
            came.eq(
                (hbm.read_data.valid & hbm.read_data.ready)
                | (hbm.write_ack.valid & hbm.write_ack.ready)
            ),
        ]

    def _send_others(self, m: Module) -> None:
        """Carry out one access to another memory; all answers are made here."""
        current = self._current
        quiet = Signal(name="quiet")
        lasting = (current.memory == Memory.HBM) | Cat(current.memory == x for x in LASTING).any()
        m.d.comb += quiet.eq(self._held & (self._count == 0) & (lasting | ~self.clear))
        ended = Signal(name="ended")
        sent_now, written = Signal(name="sent_now"), Signal(name="written")
        answer = self._answer
        with m.If(self._came):
            m.d.comb += self._hbm_answer(answer)
        with m.Elif(quiet & self._outside):
            m.d.comb += [answer.error.eq(ErrorCode.ACCESS), ended.eq(self._output.w_rdy)]
        with m.Elif(quiet & (current.memory == Memory.VECTOR)):
            self._vector(m, answer, ended, sent_now, written)
        for memory, name in BEAT_PORTS.items():
            with m.Elif(quiet & (current.memory == memory)):
                access, given = getattr(self, f"{name}_access"), getattr(self, f"{name}_answer")
                m.d.comb += [
                    access.payload.write.eq(current.write),
                    access.payload.address.eq(current.address),
                    access.payload.data.eq(current.data),
                    access.valid.eq(~self._sent),
                    sent_now.eq(access.valid & access.ready),
                    given.ready.eq(self._sent & self._output.w_rdy),
                    answer.error.eq(given.payload.error),
                    answer.data.eq(Mux(current.write, 0, given.payload.data)),
                    ended.eq(given.valid & given.ready),
                ]
        with m.If(sent_now):
            m.d.sync += self._sent.eq(1)
        with m.If(ended):
            m.d.sync += self._sent.eq(0)
        with m.If(self.clear & ~lasting):
            m.d.sync += [self._sent.eq(0), written.eq(0)]
        m.d.comb += [
            self._output.w_en.eq(self._came | ended),
            self._finished.eq(self._hbm_finished | ended),
        ]

    def _hbm_answer(self, answer: Any) -> list[Any]:
        reading = self._mode == _Mode.READ
        error = Mux(reading, self.hbm.read_data.payload.error, self.hbm.write_ack.payload.error)
        return [
            answer.data.eq(Mux(reading, self.hbm.read_data.payload.data, 0)),
            answer.error.eq(
                Mux(
                    error == HbmError.ADDRESS,
                    ErrorCode.HBM_ADDRESS,
                    Mux(error == HbmError.ECC, ErrorCode.HBM_ECC, ErrorCode.NONE),
                )
            ),
        ]

    def _vector(
        self, m: Module, answer: Any, ended: Signal, sent_now: Signal, written: Signal
    ) -> None:
        """Access vector memory. It does not answer a write, so that a read of the same follows."""
        current, request, data = self._current, self.vector, self.vector_data
        shift = ACCESS_ELEMENTS.bit_length() - 1
        m.d.comb += [
            request.payload.write.eq(current.write & ~written),
            request.payload.address.eq(current.address << shift),
            request.payload.data.eq(current.data),
            request.valid.eq(~self._sent),
            sent_now.eq(request.valid & request.ready & ~request.payload.write),
            data.ready.eq(self._sent & self._output.w_rdy),
            answer.data.eq(Mux(current.write, 0, data.payload)),
            ended.eq(data.valid & data.ready),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += written.eq(current.write)
        with m.If(ended):
            m.d.sync += written.eq(0)
