"""The KV buffer: two banks of protected memory, and who writes and reads them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.hbm.types import BEAT_BITS, CHECK_BITS
from pequin.kv.access import KvAccess
from pequin.kv.bank import KvBank
from pequin.kv.intake import KvIntake
from pequin.kv.reader import KvReader, sram_detail
from pequin.kv.types import BANKS, KvCause
from pequin.kv.walker import KvWalker
from pequin.mac.types import weight_beats
from pequin.streams import connect_streams
from pequin.tile.types import (
    ErrorCode,
    UnitFault,
    UnitId,
    beat_access,
    beat_answer,
    unit_words,
)
from pequin.vector.types import kv_write


class KvBuffer(wiring.Component):
    """Granules of docs/isa.md: written token by token, read as weight streams.

    A beat lies in bank (bit 0 xor bit 3 of its address), so that two consecutive beats of keys
    and two neighbouring granules' beats of values are read in one clock. A scale beat of keys is
    a transfer of its own, as the MAC array takes it; a chunk of 32 blocks comes in 17 clocks.
    Scales that a last chunk does not need are what the buffer holds.

    *Timing*: a transfer is at `output` 5 clocks after its command was accepted, at the earliest;
    then one per clock, also across commands. Commands and accesses see every write that was
    accepted before them. An item of the vector unit is stored 3 clocks (a block of K) to 6 clocks
    (an element of V) after it was accepted, one per clock, when the banks are free. `done` comes
    3 clocks after a command's last reading.

    *Files*: bank k is the `EccRam` called `kv.k`.

    Parameters
    ----------
    params
        The tile's parameters; `kv_beats` is the size.

    Members
    -------
    command : In(stream of unit_words(UnitId.KV))
    writes : In(stream of kv_write())
        From the vector unit.
    output : Out(stream of weight_beats()), output_last : Out(1)
        Keys and values; `output_last` marks a command's last transfer.
    dma_request : In(stream of 32-bit beat addresses), dma_data : Out(stream of beat_answer())
    access : In(stream of beat_access()), answer : Out(stream of beat_answer())
        The host's.
    token_blocks : Out(3)
        Blocks of a token, as configured; 0 before.
    done : Out(1)
    fault : Out(UnitFault), fault_valid : Out(1)
        After a fault of a command nothing more is read; after one of a write, writes are dropped.
    cause : Out(KvCause)
    beats : Out(2)
        Payload beats read in this clock.
    repaired : Out(2)
        A single-bit error was corrected, for each bank.
    flip : In(288)
        As `EccRam`.
    """

    command: Any
    writes: Any
    output: Any
    output_last: Any
    dma_request: Any
    dma_data: Any
    access: Any
    answer: Any
    token_blocks: Any
    done: Any
    fault: Any
    fault_valid: Any
    cause: Any
    beats: Any
    repaired: Any
    flip: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "command": In(stream.Signature(unit_words(UnitId.KV))),
                "writes": In(stream.Signature(kv_write())),
                "output": Out(stream.Signature(weight_beats())),
                "output_last": Out(1),
                "dma_request": In(stream.Signature(32)),
                "dma_data": Out(stream.Signature(beat_answer())),
                "access": In(stream.Signature(beat_access())),
                "answer": Out(stream.Signature(beat_answer())),
                "token_blocks": Out(3),
                "done": Out(1),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "cause": Out(KvCause),
                "beats": Out(2),
                "repaired": Out(BANKS),
                "flip": In(BEAT_BITS + CHECK_BITS),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.walker = walker = KvWalker()
        m.submodules.reader = reader = KvReader(self._params)
        m.submodules.intake = intake = KvIntake(self._params)
        m.submodules.accesses = outside = KvAccess(self._params)
        banks = [KvBank(self._params, bank=bank) for bank in range(BANKS)]
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = bank
            self._join(m, number, bank, reader, intake, outside)
        quiet = Signal()
        m.d.comb += [
            quiet.eq(~intake.pending & ~Cat(bank.pending for bank in banks).any()),
            walker.quiet.eq(quiet),
            outside.quiet.eq(quiet),
            intake.hold.eq(walker.hold | outside.hold),
            intake.token_blocks.eq(walker.token_blocks),
            reader.active.eq(walker.active),
            reader.waits.eq(walker.waits),
            self.token_blocks.eq(walker.token_blocks),
            self.output_last.eq(reader.output_last),
            self.done.eq(reader.done),
            self.cause.eq(reader.cause),
            self.beats.eq(reader.beats),
            self.repaired.eq(Cat(bank.repaired for bank in banks)),
        ]
        self._report(m, reader, intake, banks)
        for source, sink in (
            (self.command, walker.command),
            (walker.reads, reader.reads),
            (reader.output, self.output),
            (self.writes, intake.writes),
            (self.access, outside.access),
            (outside.answer, self.answer),
            (self.dma_request, outside.dma_request),
            (outside.dma_data, self.dma_data),
        ):
            connect_streams(m, source, sink)
        return m

    def _join(
        self, m: Module, number: int, bank: Any, reader: Any, intake: Any, outside: Any
    ) -> None:
        """Connect a bank; the vector unit's writes go before those of the host."""
        mine = intake.bank_en[number]
        m.d.comb += [
            bank.flip.eq(self.flip),
            bank.reader.eq(reader.want[number]),
            bank.reader_row.eq(reader.row[number]),
            bank.access.eq(outside.want[number]),
            bank.access_row.eq(outside.row),
            bank.write_en.eq(mine | outside.taken[number]),
            bank.write.eq(Mux(mine, intake.bank_write[number], outside.write)),
            reader.granted[number].eq(bank.reader_granted),
            reader.data[number].eq(bank.data),
            reader.failed[number].eq(bank.failed),
            intake.bank_ready[number].eq(bank.write_ready),
            outside.granted[number].eq(bank.access_granted),
            outside.data[number].eq(bank.data),
            outside.failed[number].eq(bank.failed),
            outside.taken[number].eq(outside.give[number] & bank.write_ready & ~mine),
        ]

    def _report(self, m: Module, reader: Any, intake: Any, banks: list[Any]) -> None:
        """Pass on a fault; of several in one clock one is enough to stop the tile."""
        fault = self.fault
        m.d.comb += self.fault_valid.eq(
            reader.fault_valid | intake.fault_valid | Cat(b.write_failed for b in banks).any()
        )
        with m.If(reader.fault_valid):
            m.d.comb += fault.eq(reader.fault)
        with m.Elif(intake.fault_valid):
            m.d.comb += fault.eq(intake.fault)
        with m.Else():
            m.d.comb += fault.code.eq(ErrorCode.SRAM_ECC)
            for number, bank in enumerate(banks):
                # Bank = bit 0 xor bit 3, and the row begins with bit 1.
                row = bank.write_row
                with m.If(bank.write_failed):
                    m.d.comb += fault.detail.eq(sram_detail(Cat(row[2] ^ number, row)))
