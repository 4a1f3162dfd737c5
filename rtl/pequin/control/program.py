"""The program memory: instructions for the sequencer, beats for the host, protected by SECDED."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.control.types import FetchPort
from pequin.hbm.ecc import CODE_BITS, COLUMNS, WORD_BITS, check_bits
from pequin.ram import Ram
from pequin.tile.types import BEAT_BITS, ErrorCode, beat_access, beat_answer

STORED_BITS = WORD_BITS + CODE_BITS
"""Bits of a stored instruction: 64, and above them its check bits."""

WORDS = BEAT_BITS // WORD_BITS
"""Instructions in a beat."""

_KNOWN = Const(sum(1 << column for column in (*COLUMNS, *(1 << j for j in range(CODE_BITS)))), 256)
"""For each syndrome whether it is that of one wrong bit; a table is faster than comparisons."""

REPAIRS_BITS = 32
"""Width of the count of corrected words."""


class ProgramMemory(wiring.Component):
    """Give instructions to the sequencer and beats of four instructions to the host.

    The host may read and write at any time; its words take single clocks from the sequencer.
    What is fetched while it is written is undefined. An address beyond the memory is answered
    with `ErrorCode.ACCESS`, a read of a beat with an uncorrectable word with
    `ErrorCode.SRAM_ECC` and zeros; both have no other effect.

    *Timing*: an instruction per clock, two clocks after its address. A write takes 6 clocks up
    to its answer, a read 8. The content survives a reset.

    *Files*: the `Ram` called `program` holds words of 72 bits, check bits above the instruction.

    Parameters
    ----------
    params
        The tile's parameters: `program_words`.

    Members
    -------
    fetch : In(FetchPort())
        Addresses wrap around at the size of the memory.
    access : In(stream of beat_access()), answer : Out(stream of beat_answer())
    flip : In(72)
        XORed into each stored word of a write, to inject errors.
    repaired : Out(1)
        Pulse: a word that was read had a single-bit error.
    repairs : Out(32)
        Number of such words since reset.
    """

    fetch: Any
    access: Any
    answer: Any
    flip: Any
    repaired: Any
    repairs: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "fetch": In(FetchPort()),
                "access": In(stream.Signature(beat_access())),
                "answer": Out(stream.Signature(beat_answer())),
                "flip": In(STORED_BITS),
                "repaired": Out(1),
                "repairs": Out(REPAIRS_BITS),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.ram = self._ram = Ram(
            width=STORED_BITS, depth=self._params.config.program_words, name="program"
        )
        self._host_reads = Signal(name="host_reads")
        self._host_address = Signal.like(self._ram.read_addr, name="host_address")
        self._word = Signal(WORD_BITS, name="word")
        self._failed = Signal(name="failed")
        self._read(m)
        self._serve_host(m)
        return m

    def _read(self, m: Module) -> None:
        """Read a word for the host or the sequencer, and correct it."""
        ram, fetch = self._ram, self.fetch
        reads = Signal(name="reads")
        m.d.comb += [
            fetch.address.ready.eq(~self._host_reads),
            reads.eq(fetch.address.valid | self._host_reads),
            ram.read_en.eq(reads),
            ram.read_addr.eq(Mux(self._host_reads, self._host_address, fetch.address.payload)),
        ]
        # A memory's output is late: nothing but a register behind it.
        stored = Signal(STORED_BITS, reset_less=True, name="stored")
        syndrome = Signal(CODE_BITS, name="syndrome")
        came, there = Signal(name="came"), Signal(name="there")
        m.d.sync += [came.eq(reads), there.eq(came), stored.eq(ram.read_data)]
        raw = stored[:WORD_BITS]
        flips = Signal(WORD_BITS, name="flips")
        known = Signal(name="known")
        m.d.comb += [
            syndrome.eq(check_bits(raw) ^ stored[WORD_BITS:]),
            flips.eq(Cat(syndrome == column for column in COLUMNS)),
            known.eq(_KNOWN.bit_select(syndrome, 1)),
            self._failed.eq(syndrome.any() & ~known),
            self._word.eq(raw ^ flips),
            fetch.instruction.eq(self._word),
            fetch.failed.eq(self._failed),
        ]
        m.d.sync += self.repaired.eq(there & known)
        with m.If(self.repaired):
            m.d.sync += self.repairs.eq(self.repairs + 1)

    def _serve_host(self, m: Module) -> None:
        """Walk through the words of a beat."""
        ram, answer = self._ram, self.answer
        held: Any = Signal(beat_access(), name="held")
        place = Signal(range(WORDS), name="place")
        error: Any = Signal(ErrorCode, name="error")
        returned = Signal(2, name="returned")
        beats = ram.depth // WORDS
        word = held.data[:WORD_BITS]
        m.d.comb += [
            self._host_address.eq(Cat(place, held.address)),
            ram.write_addr.eq(self._host_address),
            ram.write_data.eq(Cat(word, check_bits(word)) ^ self.flip),
            answer.payload.error.eq(error),
        ]
        with m.If(error == ErrorCode.NONE):
            m.d.comb += answer.payload.data.eq(Mux(held.write, 0, held.data))
        m.d.sync += returned.eq(Cat(self._host_reads, returned))
        shifted = Signal(BEAT_BITS, name="shifted")
        m.d.comb += shifted.eq(Cat(held.data[WORD_BITS:], Mux(returned[1], self._word, 0)))
        with m.If(returned[1]):
            m.d.sync += held.data.eq(shifted)
            with m.If(self._failed):
                m.d.sync += error.eq(ErrorCode.SRAM_ECC)
        with m.FSM(name="host"):
            with m.State("IDLE"):
                m.d.comb += self.access.ready.eq(1)
                m.d.sync += [held.eq(self.access.payload), place.eq(0), error.eq(ErrorCode.NONE)]
                with m.If(self.access.valid):
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(held.address >= beats):
                    m.d.sync += error.eq(ErrorCode.ACCESS)
                    m.next = "ANSWER"
                with m.Elif(held.write):
                    m.next = "WRITE"
                with m.Else():
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.comb += ram.write_en.eq(1)
                m.d.sync += [place.eq(place + 1), held.data.eq(shifted)]
                with m.If(place == WORDS - 1):
                    m.next = "ANSWER"
            with m.State("READ"):
                m.d.comb += self._host_reads.eq(1)
                m.d.sync += place.eq(place + 1)
                with m.If(place == WORDS - 1):
                    m.next = "RETURN"
            with m.State("RETURN"), m.If(~returned[0]):
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += answer.valid.eq(1)
                with m.If(answer.ready):
                    m.next = "IDLE"
