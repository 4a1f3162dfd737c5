"""From link words to whole packets with a verdict."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.host.crc import Crc32c
from pequin.host.types import (
    COLUMN_BYTES,
    CRC_BYTES,
    HEADER_BYTES,
    MAGIC,
    MAX_BEATS,
    VERSION,
    WORD_BYTES,
    LinkWord,
    MemoryArgument,
    NakCode,
    Packet,
    PacketHeader,
    PacketType,
)
from pequin.tile.types import Memory

assert COLUMN_BYTES == 16 + 8, "lengths of STEPs are made by shifts"

BEAT_SHIFT = 5
"""A beat has 2**BEAT_SHIFT bytes."""

HEADER_WORDS = HEADER_BYTES // WORD_BYTES


class PacketReceiver(wiring.Component):
    """Take packets apart and check them; it never holds up the link.

    The words of a body are told as they come, before the checksum is known: what they are written
    to counts only with a `packet` without refusal. Everything up to the end of a bad packet is
    dropped; the next word begins a new one.

    *Timing*: `packet` comes three clocks after its last word.

    Parameters
    ----------
    columns
        Most columns of a STEP.

    Members
    -------
    input : In(stream of LinkWord)
        Always ready.
    header : Out(PacketHeader)
        Of the packet that is coming; valid with `begin` and `body_valid`.
    begin : Out(1)
        The third word is here: there must be room for the body now.
    body : Out(64), body_index : Out, body_valid : Out(1)
        A word of the body and its number.
    packet : Out(Packet), packet_valid : Out(1)
        Pulse: a packet has ended.

    Raises
    ------
    ConfigError
        There is no column, or there are more than 255.
    """

    input: Any
    header: Any
    begin: Any
    body: Any
    body_index: Any
    body_valid: Any
    packet: Any
    packet_valid: Any

    def __init__(self, *, columns: int) -> None:
        if not 1 <= columns <= 255:
            raise ConfigError(f"a STEP's columns must be 1 to 255, not {columns}")
        self._columns = columns
        super().__init__(
            {
                "input": In(stream.Signature(LinkWord)),
                "header": Out(PacketHeader),
                "begin": Out(1),
                "body": Out(64),
                "body_index": Out(range(self.body_words)),
                "body_valid": Out(1),
                "packet": Out(Packet),
                "packet_valid": Out(1),
            }
        )

    @property
    def columns(self) -> int:
        """Most columns of a STEP."""
        return self._columns

    @property
    def body_words(self) -> int:
        """Words of the longest body."""
        return max(MAX_BEATS << BEAT_SHIFT, self._columns * COLUMN_BYTES) // WORD_BYTES

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.checksum = crc = Crc32c()
        word = self.input.payload
        # The number of the word in its packet; far beyond the longest packet it stands still.
        limit = self.body_words + HEADER_WORDS + 2
        index = Signal(range(limit + 1))
        came, first = Signal(), Signal()
        count = Signal(4)
        m.d.comb += [
            self.input.ready.eq(1),
            came.eq(self.input.valid),
            first.eq(index == 0),
            count.eq(Mux(word.last, word.count, WORD_BYTES)),
            crc.enable.eq(came),
            crc.first.eq(first),
            crc.data.eq(word.data),
            crc.count.eq(count),
        ]
        # A clock later, so that the packet before has been dealt with.
        m.d.sync += [
            self.begin.eq(came & (index == HEADER_WORDS)),
            self.body.eq(word.data),
            self.body_index.eq(index - HEADER_WORDS),
            self.body_valid.eq(
                came
                & ~word.last
                & (index >= HEADER_WORDS)
                & (index < HEADER_WORDS + self.body_words)
            ),
        ]
        argument, ended, size = Signal(64), Signal(), Signal(16)
        m.d.sync += ended.eq(came & word.last)
        with m.If(came):
            m.d.sync += index.eq(Mux(word.last, 0, Mux(index == limit, index, index + 1)))
            m.d.sync += size.eq(index * WORD_BYTES + count)
            with m.If(first):
                # What a single short word lacks is not taken for an id.
                short = word.last & (count < WORD_BYTES)
                m.d.sync += self.header.eq(Mux(short, 0, word.data))
            with m.If(index == 1):
                m.d.sync += argument.eq(word.data)
        self._elaborate_verdict(m, argument, ended, size, crc.good)
        return m

    def _elaborate_verdict(
        self, m: Module, argument: Signal, ended: Signal, size: Signal, good: Value
    ) -> None:
        """Judge in two steps: the frame, then what the type asks for."""
        header = self.header
        first: Any = Signal(Packet, name="framed")
        framed = Signal(name="framed_valid")
        m.d.sync += [
            framed.eq(ended),
            first.header.eq(header),
            first.argument.eq(argument),
            first.bytes.eq(size),
            first.refusal.eq(self._frame_refusal(m, size, good)),
        ]
        m.d.sync += [
            self.packet_valid.eq(framed),
            self.packet.eq(first),
            self.packet.refusal.eq(
                Mux(first.refusal == NakCode.NONE, self._field_refusal(m, first), first.refusal)
            ),
        ]

    def _frame_refusal(self, m: Module, size: Signal, good: Value) -> Signal:
        header = self.header
        refusal: Any = Signal(NakCode, name="frame_refusal")
        expected = Signal(17, name="expected_bytes")
        m.d.comb += expected.eq(header.length + HEADER_BYTES + CRC_BYTES)
        wrong_size = (size != expected) | header.length[: WORD_BYTES.bit_length() - 1].any()
        with m.If(header.magic != MAGIC):
            m.d.comb += refusal.eq(NakCode.SYNC)
        with m.Elif(header.version != VERSION):
            m.d.comb += refusal.eq(NakCode.VERSION)
        with m.Elif(wrong_size):
            m.d.comb += refusal.eq(NakCode.LENGTH)
        with m.Elif(~good):
            m.d.comb += refusal.eq(NakCode.CRC)
        return refusal

    def _field_refusal(self, m: Module, packet: Any) -> Signal:
        """Check length and argument against the type."""
        refusal: Any = Signal(NakCode, name="field_refusal")
        argument = packet.argument
        length, bad_field = Signal(16, name="wanted_length"), Signal(name="bad_field")
        known, no_memory = Signal(name="known_type"), Signal(name="no_memory")
        memory: Any = Signal(MemoryArgument, name="memory_argument")
        m.d.comb += [memory.eq(argument), known.eq(1)]
        unknown = memory.memory > max(each.value for each in Memory)
        bad_beats = (memory.beats == 0) | (memory.beats > MAX_BEATS) | memory.zero.any()
        columns = argument[:8]
        with m.Switch(packet.header.type):
            with m.Case(PacketType.WRITE):
                m.d.comb += [
                    length.eq(memory.beats << BEAT_SHIFT),
                    bad_field.eq(bad_beats),
                    no_memory.eq(unknown),
                ]
            with m.Case(PacketType.READ):
                m.d.comb += [bad_field.eq(bad_beats), no_memory.eq(unknown)]
            with m.Case(PacketType.START):
                m.d.comb += bad_field.eq(argument[16:].any())
            with m.Case(PacketType.STEP):
                bad_columns = (columns == 0) | (columns > self._columns)
                m.d.comb += [
                    length.eq((columns << 4) + (columns << 3)),
                    bad_field.eq(bad_columns | argument[8:].any()),
                ]
            with m.Case(PacketType.STOP, PacketType.CLEAR):
                m.d.comb += bad_field.eq(argument.any())
            with m.Case(PacketType.HELLO, PacketType.CREDIT):
                m.d.comb += bad_field.eq(argument[32:].any())
            with m.Default():
                m.d.comb += known.eq(0)
        with m.If(~known):
            m.d.comb += refusal.eq(NakCode.TYPE)
        with m.Elif(bad_field):
            m.d.comb += refusal.eq(NakCode.FIELD)
        with m.Elif(packet.header.length != length):
            m.d.comb += refusal.eq(NakCode.LENGTH)
        with m.Elif(no_memory):
            m.d.comb += refusal.eq(NakCode.MEMORY)
        return refusal
