"""Packets from the tile: answers, data and events, each sent only when the host has room."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.host.crc import Crc32c
from pequin.host.memory import BEAT_WORDS, SLOT_WORDS
from pequin.host.rate import link_rate
from pequin.host.types import (
    CRC_BYTES,
    HEADER_BYTES,
    MAGIC,
    MAX_BEATS,
    MEMORY_REQUESTS,
    REQUESTS,
    VERSION,
    WORD_BYTES,
    Answer,
    AnswerKind,
    Dropped,
    LinkWord,
    MemoryResult,
    NakArgument,
    NakCode,
    PacketType,
)
from pequin.tile.types import ErrorCode, TileEvent

FRAME_BYTES = HEADER_BYTES + CRC_BYTES
"""Bytes of a packet without a body."""

EVENT_WORDS = 2
"""Words of an EVENT's body: value and detail, stamp."""

ROOM_BITS = 13
"""The balance of credit is looked at up to 2**ROOM_BITS - 1 bytes, more than any packet has."""

ANSWERS, DROPPED, RESULTS, EVENTS = range(4)
"""Sources of packets, in the order of their turns."""


def welcome_words(params: TileParams) -> list[int]:
    """Return the body of WELCOME as link words of 64 bits: the tile's sizes."""
    c = params.config
    rate = link_rate(c.host_bytes_per_clock)
    words = [
        c.columns,
        c.act_blocks,
        c.lanes,
        c.scalars,
        c.vector_elements,
        c.kv_beats,
        c.program_words,
        c.fifo_beats,
        c.store_bytes,
        rate.numerator | rate.denominator << 16,
    ]
    return [low | high << 32 for low, high in zip(words[::2], words[1::2], strict=True)]


class PacketSender(wiring.Component):
    """Form packets and send them, one source after the other.

    A packet starts only when the host's credit covers all of it; a source whose packet does not
    fit does not hold up the others.

    *Timing*: a word per clock, and one clock between packets.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    answers : In(stream of Answer), dropped : In(stream of Dropped)
    results : In(stream of MemoryResult), events : In(stream of TileEvent)
    free : Out(1)
        Pulse: the data of the last result have been sent.
    read_en : Out(1), read_addr : Out, read_data : In(64)
        As `MemoryRequests`.
    credit : In(32), credit_set : In(1), credit_raise : In(1)
        As `Dispatcher`.
    output : Out(stream of LinkWord)
    starved : Out(1)
        A packet waits for credit.
    """

    answers: Any
    dropped: Any
    results: Any
    events: Any
    free: Any
    read_en: Any
    read_addr: Any
    read_data: Any
    credit: Any
    credit_set: Any
    credit_raise: Any
    output: Any
    starved: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "answers": In(stream.Signature(Answer)),
                "dropped": In(stream.Signature(Dropped)),
                "results": In(stream.Signature(MemoryResult)),
                "events": In(stream.Signature(TileEvent)),
                "free": Out(1),
                "read_en": Out(1),
                "read_addr": Out(range(MEMORY_REQUESTS * SLOT_WORDS)),
                "read_data": In(64),
                "credit": In(32),
                "credit_set": In(1),
                "credit_raise": In(1),
                "output": Out(stream.Signature(LinkWord)),
                "starved": Out(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._form = Signal(name="form")
        self._sent, self._size = Signal(32, name="sent"), Signal(ROOM_BITS, name="size")
        self._left = Signal(range(SLOT_WORDS + 1), name="left")
        self._elaborate_credit(m)
        self._elaborate_choice(m)
        self._elaborate_forming(m)
        self._elaborate_sending(m)
        self._elaborate_output(m)
        return m

    def _elaborate_credit(self, m: Module) -> None:
        """Keep the bytes granted and sent, both modulo 2**32; their difference has a sign."""
        limit, balance = Signal(32, name="limit"), Signal(signed(32), name="balance")
        raised = Signal(signed(32), name="raised")
        self._room = Signal(ROOM_BITS, name="room")
        m.d.comb += raised.eq(self.credit - limit)
        with m.If(self.credit_set):
            m.d.sync += limit.eq(self._sent + self.credit)
        with m.Elif(self.credit_raise & (raised > 0)):
            m.d.sync += limit.eq(self.credit)
        # Two clocks late; a packet takes at least three.
        m.d.sync += balance.eq(limit - self._sent)
        with m.If(balance < 0):
            m.d.sync += self._room.eq(0)
        with m.Elif(balance[ROOM_BITS:].any()):
            m.d.sync += self._room.eq((1 << ROOM_BITS) - 1)
        with m.Else():
            m.d.sync += self._room.eq(balance)

    def _elaborate_choice(self, m: Module) -> None:
        """Choose the next source after the last one that has a packet and credit for it.

        The choice is a register: it is made anew in every clock, and is good for a packet when
        the one before has begun at least four clocks ago.
        """
        answer, result = self.answers.payload, self.results.payload
        sources = (self.answers, self.dropped, self.results, self.events)
        words = [Signal(range(SLOT_WORDS + 1), name=f"words_{i}") for i in range(len(sources))]
        m.d.comb += words[EVENTS].eq(EVENT_WORDS)
        with m.If(answer.kind == AnswerKind.WELCOME):
            m.d.comb += words[ANSWERS].eq(len(welcome_words(self._params)))
        with m.If(~result.write & (result.error == 0)):
            m.d.comb += words[RESULTS].eq(result.beats * BEAT_WORDS)
        fits, last = Signal(len(sources), name="fits"), Signal(range(len(sources)))
        best, chosen = Signal(range(len(sources)), name="best"), Signal(range(len(sources)))
        waiting, covered, go = Signal(name="waiting"), Signal(name="covered"), Signal(name="go")
        for number, source in enumerate(sources):
            size = words[number] * WORD_BYTES + FRAME_BYTES
            m.d.comb += [
                fits[number].eq(source.valid & (size <= self._room)),
                source.ready.eq(go & (chosen == number)),
            ]
        with m.Switch(last):
            for before in range(len(sources)):
                with m.Case(before):
                    for step in range(len(sources), 0, -1):
                        number = (before + step) % len(sources)
                        with m.If(fits[number]):
                            m.d.comb += best.eq(number)
        m.d.sync += [
            chosen.eq(best),
            covered.eq(fits.any()),
            waiting.eq(Cat(source.valid for source in sources).any()),
            self._size.eq(Array(words)[best] * WORD_BYTES + FRAME_BYTES),
        ]
        m.d.comb += [
            self.starved.eq(self._form & waiting & ~covered),
            go.eq(self._form & covered & Array(source.valid for source in sources)[chosen]),
        ]
        with m.If(go):
            m.d.sync += [
                last.eq(chosen),
                self._left.eq((self._size - FRAME_BYTES) >> (WORD_BYTES.bit_length() - 1)),
                self._sent.eq(self._sent + self._size),
            ]
        self._chosen, self._go = chosen, go

    def _elaborate_forming(self, m: Module) -> None:
        """Take the chosen source's payload into the registers of header, argument and body."""
        kind, number = Signal(8, name="packet_type"), Signal(16, name="packet_id")
        argument = Signal(64, name="argument")
        event_id = Signal(16, name="event_id")
        event, body = self.events.payload, Signal(128, name="event_body")
        with m.Switch(self._chosen):
            with m.Case(ANSWERS):
                self._form_answer(m, kind, number, argument)
            with m.Case(DROPPED):
                dropped = self.dropped.payload
                m.d.comb += [kind.eq(PacketType.NAK), number.eq(dropped.id)]
                m.d.comb += argument.eq(_nak(m, "drop", NakCode.OVERRUN, detail=dropped.count))
            with m.Case(RESULTS):
                self._form_result(m, kind, number, argument)
            with m.Case(EVENTS):
                m.d.comb += [
                    kind.eq(PacketType.EVENT),
                    number.eq(event_id),
                    argument.eq(Cat(_byte(event.kind), _byte(event.unit), event.code, event.pc)),
                ]
        self._header, self._argument = (
            Signal(64, name="header_word"),
            Signal(64, name="argument_word"),
        )
        self._body, self._source = body, Signal(range(4), name="source")
        start, length = Const(MAGIC | VERSION << 16, 24), Signal(16, name="packet_length")
        m.d.comb += length.eq(self._size - FRAME_BYTES)
        with m.If(self._form):
            m.d.sync += [
                self._header.eq(Cat(start, kind, number, length)),
                self._argument.eq(argument),
                self._source.eq(self._chosen),
                body.eq(Cat(event.value, event.detail, event.stamp)),
            ]
        with m.If(self.events.ready & self.events.valid):
            m.d.sync += event_id.eq(event_id + 1)

    def _form_answer(self, m: Module, kind: Signal, number: Signal, argument: Signal) -> None:
        answer = self.answers.payload
        m.d.comb += number.eq(answer.id)
        error = Mux(answer.code == NakCode.MEMORY, ErrorCode.ACCESS.value, 0)
        nak = _nak(m, "answer", answer.code, error=error, detail=answer.detail)
        with m.Switch(answer.kind):
            with m.Case(AnswerKind.ACK):
                m.d.comb += [kind.eq(PacketType.ACK), argument.eq(answer.type)]
            with m.Case(AnswerKind.NAK):
                m.d.comb += [kind.eq(PacketType.NAK), argument.eq(nak)]
            with m.Case(AnswerKind.WELCOME):
                limits = (Const(MEMORY_REQUESTS, 8), Const(REQUESTS, 8), Const(MAX_BEATS, 16))
                m.d.comb += [
                    kind.eq(PacketType.WELCOME),
                    argument.eq(Cat(*limits, self._sent)),
                ]

    def _form_result(self, m: Module, kind: Signal, number: Signal, argument: Signal) -> None:
        result = self.results.payload
        place = (Cat(result.memory, Const(0, 12)), Cat(result.beats, Const(0, 9)), result.address)
        m.d.comb += number.eq(result.id)
        nak = _nak(m, "result", NakCode.MEMORY, error=result.error, beat=result.beat)
        with m.If(result.error != 0):
            m.d.comb += [kind.eq(PacketType.NAK), argument.eq(nak)]
        with m.Elif(result.write):
            m.d.comb += [kind.eq(PacketType.ACK), argument.eq(PacketType.WRITE.value)]
        with m.Else():
            m.d.comb += [kind.eq(PacketType.DATA), argument.eq(Cat(*place))]

    def _elaborate_sending(self, m: Module) -> None:
        """Go through the words of a packet; each is loaded into the output's register."""
        # The word to fetch is one ahead of the word to send.
        number, slot = Signal(range(SLOT_WORDS), name="number"), Signal(range(MEMORY_REQUESTS))
        self._load, self._given = Signal(name="load"), Signal(name="given")
        self._formed, self._is_crc = Signal(64, name="formed"), Signal(name="is_crc")
        self._is_header = Signal(name="is_header")
        table = welcome_words(self._params)
        line = Signal(range(len(table)), name="welcome_line")
        m.d.comb += [line.eq(number - 1), self.read_addr.eq(Cat(number, slot))]
        with m.FSM(name="sender"):
            with m.State("FORM"):
                m.d.comb += self._form.eq(1)
                m.d.sync += number.eq(0)
                with m.If(self._go):
                    m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += [
                    self._given.eq(1),
                    self._is_header.eq(1),
                    self._formed.eq(self._header),
                ]
                with m.If(self._load):
                    m.next = "ARGUMENT"
            with m.State("ARGUMENT"):
                m.d.comb += [
                    self._given.eq(1),
                    self._formed.eq(self._argument),
                    self.read_en.eq(self._load),
                ]
                with m.If(self._load):
                    m.next = "BODY"
                    with m.If(self._left == 0):
                        m.next = "CRC"
            with m.State("BODY"):
                m.d.comb += [self._given.eq(1), self.read_en.eq(self._load)]
                with m.Switch(self._source):
                    with m.Case(RESULTS):
                        m.d.comb += self._formed.eq(self.read_data)
                    with m.Case(EVENTS):
                        m.d.comb += self._formed.eq(self._body[:64])
                    with m.Default():
                        lines = Array(Const(value, 64) for value in table)
                        m.d.comb += self._formed.eq(lines[line])
                with m.If(self._load):
                    m.d.sync += [self._left.eq(self._left - 1), self._body.eq(self._body[64:])]
                    with m.If(self._left == 1):
                        m.next = "CRC"
            with m.State("CRC"):
                m.d.comb += [
                    self._given.eq(1),
                    self._is_crc.eq(1),
                    self.free.eq(self._load & (self._source == RESULTS)),
                ]
                with m.If(self._load):
                    m.d.sync += slot.eq(slot + self.free)
                    m.next = "FORM"
        with m.If(self.read_en):
            m.d.sync += number.eq(number + 1)

    def _elaborate_output(self, m: Module) -> None:
        """Hold the word to send; the checksum takes it when it leaves."""
        m.submodules.checksum = crc = Crc32c()
        held, held_first = Signal(64, name="held"), Signal(name="held_first")
        word, taken = self.output.payload, Signal(name="word_taken")
        m.d.comb += [
            taken.eq(self.output.valid & self.output.ready),
            self._load.eq(~self.output.valid | self.output.ready),
            word.data.eq(Mux(word.last, crc.crc, held)),
            word.count.eq(Mux(word.last, CRC_BYTES, WORD_BYTES)),
            crc.data.eq(held),
            crc.count.eq(WORD_BYTES),
            crc.first.eq(held_first),
            crc.enable.eq(taken & ~word.last),
        ]
        with m.If(self._load):
            m.d.sync += [
                self.output.valid.eq(self._given),
                held.eq(self._formed),
                held_first.eq(self._is_header),
                word.last.eq(self._is_crc),
            ]


def _byte(value: Any) -> Value:
    """Return a value of four bits as a byte."""
    return Cat(Value.cast(value), Const(0, 4))


def _nak(
    m: Module, name: str, code: Any, *, error: Any = 0, beat: Any = 0, detail: Any = 0
) -> Value:
    """Return the argument of a NAK."""
    nak: Any = Signal(NakArgument, name=f"{name}_nak")
    m.d.comb += [
        nak.code.eq(code),
        nak.error.eq(error),
        nak.beat.eq(beat),
        nak.detail.eq(detail),
    ]
    return Value.cast(nak)
