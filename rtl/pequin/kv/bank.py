"""One bank of the KV buffer: reads, and writes of single bytes."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.errors import ConfigError
from pequin.hbm.types import BEAT_BITS, CHECK_BITS
from pequin.kv.types import BANKS, address_bits, bank_write
from pequin.secded import EccRam

PATIENCE = 8
"""Clocks that a write or an access waits for the bank before it goes ahead of the reader."""


class KvBank(wiring.Component):
    """Protected memory with a read-modify-write pipeline and a shared read port.

    The reader goes first, then a write that needs the old beat, then an access; one of the two
    that has waited `PATIENCE` clocks goes ahead of the reader.

    *Timing*: read data come two clocks after the clock of `granted`. A write that needs the old
    beat is stored three clocks after it got the read port and visible in the next clock, one per
    clock; it waits while an earlier one of the same beat is on its way.

    Parameters
    ----------
    params
        The tile's parameters.
    bank
        Number of the bank; names the memory `kv.BANK`.

    Members
    -------
    write_ready : Out(1), write_en : In(1), write : In(bank_write(params))
        A write may be given in a clock with `write_ready`. A mask of all bytes needs no reading.
    pending : Out(1)
        A write is not stored yet.
    reader, reader_row : In; reader_granted : Out(1)
        What the reader wants in this clock; it is not granted only for the sake of another.
    access, access_row : In; access_granted : Out(1)
        Likewise for accesses from outside.
    data, failed : Out
        The beat read two clocks ago, and whether it has an error that cannot be corrected.
    write_failed : Out(1), write_row : Out
        A beat that was to be changed has such an error; it is left as it is.
    repaired : Out(1)
        A single-bit error was corrected.
    flip : In(288)
        As `EccRam`.

    Raises
    ------
    ConfigError
        There is no such bank.
    """

    write_ready: Any
    write_en: Any
    write: Any
    pending: Any
    reader: Any
    reader_row: Any
    reader_granted: Any
    access: Any
    access_row: Any
    access_granted: Any
    data: Any
    failed: Any
    write_failed: Any
    write_row: Any
    repaired: Any
    flip: Any

    def __init__(self, params: TileParams, *, bank: int) -> None:
        if bank not in range(BANKS):
            raise ConfigError(f"the KV buffer has banks 0 to {BANKS - 1}, not {bank}")
        self._params, self._bank = params, bank
        self._row_bits = address_bits(params) - 1
        row = self._row_bits
        super().__init__(
            {
                "write_ready": Out(1),
                "write_en": In(1),
                "write": In(bank_write(params)),
                "pending": Out(1),
                "reader": In(1),
                "reader_row": In(row),
                "reader_granted": Out(1),
                "access": In(1),
                "access_row": In(row),
                "access_granted": Out(1),
                "data": Out(BEAT_BITS),
                "failed": Out(1),
                "write_failed": Out(1),
                "write_row": Out(row),
                "repaired": Out(1),
                "flip": In(BEAT_BITS + CHECK_BITS),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def bank(self) -> int:
        """Number of the bank."""
        return self._bank

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.ram = ram = EccRam(
            depth=self._params.config.kv_beats // BANKS, name=f"kv.{self._bank}"
        )
        stages = [Signal(bank_write(self._params), name=f"stage_{i}") for i in range(3)]
        valid = Signal(4)
        wants, moves = Signal(), Signal()
        write_granted = self._arbitrate(m, ram, stages[0], wants)
        self._move(m, stages, valid, wants, moves, write_granted)
        self._store(m, ram, stages[2], valid)
        m.d.comb += [
            self.pending.eq(valid.any()),
            self.data.eq(ram.read_data),
            self.failed.eq(ram.failed),
            self.repaired.eq(ram.repaired),
            ram.flip.eq(self.flip),
        ]
        return m

    def _arbitrate(self, m: Module, ram: Any, first: Any, wants: Signal) -> Signal:
        """Give the read port to one of three; return whether it is the write."""
        waited, impatient = Signal(range(PATIENCE + 1)), Signal()
        turn, granted = Signal(), Signal(name="write_granted")
        waiting = wants | self.access
        both = wants & self.access
        m.d.comb += [
            impatient.eq(waited == PATIENCE),
            self.reader_granted.eq(self.reader & ~(impatient & waiting)),
            granted.eq(wants & ~self.reader_granted & ~(both & turn)),
            self.access_granted.eq(self.access & ~self.reader_granted & ~granted),
            ram.read_en.eq(self.reader_granted | granted | self.access_granted),
        ]
        with m.If(self.reader_granted):
            m.d.comb += ram.read_addr.eq(self.reader_row)
        with m.Elif(granted):
            m.d.comb += ram.read_addr.eq(first.row)
        with m.Else():
            m.d.comb += ram.read_addr.eq(self.access_row)
        with m.If(waiting & self.reader_granted):
            m.d.sync += waited.eq(Mux(impatient, waited, waited + 1))
        with m.Else():
            m.d.sync += waited.eq(0)
        with m.If(granted | self.access_granted):
            m.d.sync += turn.eq(granted & self.access)
        return granted

    def _move(
        self,
        m: Module,
        stages: list[Any],
        valid: Signal,
        wants: Signal,
        moves: Signal,
        granted: Signal,
    ) -> None:
        """Bring a write to the clock in which its old beat is there."""
        first = stages[0]
        whole, meets = Signal(), Signal()
        same = [stage.row == first.row for stage in stages[1:]]
        same.append(self.write_row == first.row)
        m.d.comb += [
            whole.eq(first.mask.all()),
            meets.eq((Cat(same) & valid[1:]).any()),
            wants.eq(valid[0] & ~whole & ~meets),
            moves.eq(valid[0] & (whole | granted)),
            self.write_ready.eq(~valid[0] | moves),
        ]
        m.d.sync += [
            valid[1].eq(moves),
            valid[2].eq(valid[1]),
            stages[1].eq(first),
            stages[2].eq(stages[1]),
        ]
        with m.If(self.write_ready):
            m.d.sync += [valid[0].eq(self.write_en), first.eq(self.write)]

    def _store(self, m: Module, ram: Any, ready: Any, valid: Signal) -> None:
        """Put the new bytes into the old beat; leave a beat that cannot be corrected."""
        bits = Cat(bit.replicate(8) for bit in ready.mask)
        lost = Signal()
        merged = Signal(BEAT_BITS, reset_less=True)
        m.d.comb += lost.eq(~ready.mask.all() & ram.failed)
        m.d.sync += [
            merged.eq((ready.data & bits) | (ram.read_data & ~bits)),
            self.write_row.eq(ready.row),
            valid[3].eq(valid[2] & ~lost),
            self.write_failed.eq(valid[2] & lost),
        ]
        m.d.comb += [
            ram.write_en.eq(valid[3]),
            ram.write_addr.eq(self.write_row),
            ram.write_data.eq(merged),
        ]
