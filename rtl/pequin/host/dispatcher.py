"""What each packet does."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.host.orders import KINDS
from pequin.host.types import (
    REQUESTS,
    Answer,
    AnswerKind,
    Dropped,
    MemoryArgument,
    MemoryRequest,
    NakCode,
    Packet,
    PacketHeader,
    PacketType,
)
from pequin.tile.types import PC_BITS


class Dispatcher(wiring.Component):
    """Act on a packet in one clock, whatever it is, so that nothing behind it waits.

    A packet that is answered here, and an order, takes one of `REQUESTS` places until the answer
    has gone; one that finds none does nothing and is counted in `dropped`.

    Parameters
    ----------
    columns
        Most columns of a STEP.

    Members
    -------
    header : In(PacketHeader), begin : In(1), packet : In(Packet), packet_valid : In(1)
        As `PacketReceiver`.
    memory_room : In(1), step_room : In(1)
        There is room for another memory request, or STEP.
    memory_store : Out(1), step_store : Out(1)
        Words of the body are to be written.
    request : Out(MemoryRequest), memory_accept : Out(1)
    step_count : Out, step_accept : Out(1)
    order_type : Out(8), order_id : Out(16), order_pc : Out(PC_BITS), order_accept : Out(1)
        Pulses: what was accepted.
    orders : In(stream of 24 bits)
        Type and id of orders that were taken.
    credit : Out(32), credit_set : Out(1), credit_raise : Out(1)
        Pulses: the host grants so many bytes from now on, or so many in all.
    answers : Out(stream of Answer), dropped : Out(stream of Dropped)

    Raises
    ------
    ConfigError
        There is no column.
    """

    header: Any
    begin: Any
    packet: Any
    packet_valid: Any
    memory_room: Any
    step_room: Any
    memory_store: Any
    step_store: Any
    request: Any
    memory_accept: Any
    step_count: Any
    step_accept: Any
    order_type: Any
    order_id: Any
    order_pc: Any
    order_accept: Any
    orders: Any
    credit: Any
    credit_set: Any
    credit_raise: Any
    answers: Any
    dropped: Any

    def __init__(self, *, columns: int) -> None:
        if columns < 1:
            raise ConfigError(f"a dispatcher's columns must be at least 1, not {columns}")
        self._columns = columns
        super().__init__(
            {
                "header": In(PacketHeader),
                "begin": In(1),
                "packet": In(Packet),
                "packet_valid": In(1),
                "memory_room": In(1),
                "step_room": In(1),
                "memory_store": Out(1),
                "step_store": Out(1),
                "request": Out(MemoryRequest),
                "memory_accept": Out(1),
                "step_count": Out(range(columns + 1)),
                "step_accept": Out(1),
                "order_type": Out(8),
                "order_id": Out(16),
                "order_pc": Out(PC_BITS),
                "order_accept": Out(1),
                "orders": In(stream.Signature(24)),
                "credit": Out(32),
                "credit_set": Out(1),
                "credit_raise": Out(1),
                "answers": Out(stream.Signature(Answer)),
                "dropped": Out(stream.Signature(Dropped)),
            }
        )

    @property
    def columns(self) -> int:
        """Most columns of a STEP."""
        return self._columns

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._elaborate_room(m)
        self._elaborate_places(m)
        self._elaborate_actions(m)
        self._elaborate_answers(m)
        self._elaborate_dropped(m)
        return m

    def _elaborate_room(self, m: Module) -> None:
        """Decide at the first word of a body whether it is kept; it stays so to its end."""
        memory, step = Signal(name="memory_kept"), Signal(name="step_kept")
        with m.If(self.begin):
            m.d.sync += [memory.eq(self.memory_room), step.eq(self.step_room)]
        self._memory_kept, self._step_kept = memory, step
        keep_memory = Mux(self.begin, self.memory_room, memory)
        keep_step = Mux(self.begin, self.step_room, step)
        m.d.comb += [
            self.memory_store.eq(keep_memory & (self.header.type == PacketType.WRITE)),
            self.step_store.eq(keep_step & (self.header.type == PacketType.STEP)),
        ]

    def _elaborate_places(self, m: Module) -> None:
        self._place_free = Signal(name="place_free")
        self._take = Signal(name="take_place")
        used, gone = Signal(range(REQUESTS + 1)), Signal(name="answer_gone")
        m.d.comb += [
            self._place_free.eq(used != REQUESTS),
            gone.eq(self.answers.valid & self.answers.ready),
        ]
        m.d.sync += used.eq(used + self._take - gone)

    def _elaborate_actions(self, m: Module) -> None:
        """Do what the packet asks for, or find a reason to refuse it."""
        packet, refusal = self.packet, Signal(NakCode, name="refusal")
        argument: Any = Signal(MemoryArgument, name="memory_argument")
        self._refusal = refusal
        self._kind: Any = Signal(AnswerKind, name="answer_kind")
        self._answered, go = Signal(name="answered"), Signal(name="go")
        m.d.comb += [
            argument.eq(packet.argument),
            self.request.id.eq(packet.header.id),
            self.request.write.eq(packet.header.type == PacketType.WRITE),
            self.request.memory.eq(argument.memory),
            self.request.beats.eq(argument.beats),
            self.request.address.eq(argument.address),
            self.step_count.eq(packet.argument),
            self.order_type.eq(packet.header.type),
            self.order_id.eq(packet.header.id),
            self.order_pc.eq(packet.argument),
            self.credit.eq(packet.argument),
            go.eq(self.packet_valid & self._place_free & (refusal == NakCode.NONE)),
            refusal.eq(packet.refusal),
            self._answered.eq(1),
        ]
        with m.If(packet.refusal == NakCode.NONE), m.Switch(packet.header.type):
            with m.Case(PacketType.WRITE, PacketType.READ):
                m.d.comb += [
                    self._answered.eq(~self._memory_kept),
                    self.memory_accept.eq(self.packet_valid & self._memory_kept),
                ]
                with m.If(~self._memory_kept):
                    m.d.comb += refusal.eq(NakCode.OVERRUN)
            with m.Case(PacketType.STEP):
                m.d.comb += self.step_accept.eq(go)
                with m.If(~self._step_kept):
                    m.d.comb += refusal.eq(NakCode.BUSY)
            with m.Case(*KINDS):
                m.d.comb += self.order_accept.eq(go)
            with m.Case(PacketType.HELLO):
                m.d.comb += [self.credit_set.eq(go), self._kind.eq(AnswerKind.WELCOME)]
            with m.Default():
                m.d.comb += [self._answered.eq(0), self.credit_raise.eq(self.packet_valid)]
        m.d.comb += self._take.eq(self.packet_valid & self._place_free & self._answered)

    def _elaborate_answers(self, m: Module) -> None:
        """Queue the answers; that of an order comes when the tile has taken it."""
        m.submodules.queue = queue = fifo.SyncFIFO(width=Answer.as_shape().size, depth=REQUESTS)
        answer: Any = Signal(Answer, name="answer")
        packet, held = self.packet, Signal(name="answer_held")
        # The answer made at once waits a clock in a register; orders come when there is none.
        m.d.sync += held.eq(self._take & ~self.order_accept)
        m.d.comb += [
            queue.w_data.eq(Value.cast(answer)),
            queue.w_en.eq(held | self.orders.valid),
            self.orders.ready.eq(~held),
            Value.cast(self.answers.payload).eq(queue.r_data),
            self.answers.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.answers.ready),
        ]
        made: Any = Signal(Answer, name="made_answer")
        m.d.sync += [
            made.id.eq(packet.header.id),
            made.type.eq(packet.header.type),
            made.kind.eq(Mux(self._refusal == NakCode.NONE, self._kind, AnswerKind.NAK)),
            made.code.eq(self._refusal),
            made.detail.eq(0),
        ]
        with m.If(self._refusal == NakCode.LENGTH):
            m.d.sync += made.detail.eq(packet.bytes)
        with m.Elif(self._refusal == NakCode.OVERRUN):
            m.d.sync += made.detail.eq(1)
        with m.If(held):
            m.d.comb += answer.eq(made)
        with m.Else():
            m.d.comb += [
                answer.type.eq(self.orders.payload[:8]),
                answer.id.eq(self.orders.payload[8:]),
                answer.kind.eq(AnswerKind.ACK),
            ]

    def _elaborate_dropped(self, m: Module) -> None:
        """Count packets that find no place, up to 65,535."""
        lost, record = Signal(name="lost"), self.dropped.payload
        m.d.comb += lost.eq(self.packet_valid & self._answered & ~self._place_free)
        with m.If(lost & (~self.dropped.valid | self.dropped.ready)):
            m.d.sync += [
                self.dropped.valid.eq(1),
                record.id.eq(self.packet.header.id),
                record.count.eq(1),
            ]
        with m.Elif(lost):
            m.d.sync += record.count.eq(Mux(record.count.all(), record.count, record.count + 1))
        with m.Elif(self.dropped.ready):
            m.d.sync += self.dropped.valid.eq(0)
