"""The device: open rows, data latency, and the backing store."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from pequin.hbm.address import AddressMap
from pequin.hbm.config import HbmConfig
from pequin.hbm.controller import DeviceBus
from pequin.hbm.types import BEAT_BITS, CHECK_BITS, ColKind, RowKind
from pequin.ram import Ram


class HbmDevice(wiring.Component):
    """One HBM pseudo-channel as its command bus sees it.

    It keeps the open row of every bank, moves data at the latencies of `HbmTiming`, and sets
    `fault` when a command does not fit the state of its bank. It does not check spacings: that is
    an outside monitor's work.

    *Timing*: read data is on the bus tCL plus the path latency after the command, write data is
    taken tCWL after it.

    The store holds beats in the order of beat addresses, and their check bits beside it; in
    simulation `+hbm.load`, `+hbm.dump`, `+hbm.ecc.load` and `+hbm.ecc.dump` name their files.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    bus
        The controller.
    flip
        Bits to invert in the beat on the read bus: data, then check bits.
    fault
        A column command to a closed bank, an activate of an open one, or a refresh of an open one;
        stays set.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        super().__init__(
            {
                "bus": In(DeviceBus()),
                "flip": In(BEAT_BITS + CHECK_BITS),
                "fault": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the row table, the latencies and the store."""
        m = Module()
        beats = self._config.geometry.store_beats
        m.submodules.store = store = Ram(width=BEAT_BITS, depth=beats, name="hbm")
        m.submodules.checks = checks = Ram(width=CHECK_BITS, depth=beats, name="hbm.ecc")
        address = self._elaborate_rows(m)
        timing, column = self._config.timing, self.bus.column
        read_delay = timing.clocks("cl") + self._config.path_clocks - 1
        read, read_address = self._delay(m, "read", column.kind == ColKind.RD, address, read_delay)
        write, write_address = self._delay(
            m, "write", column.kind == ColKind.WR, address, timing.clocks("cwl")
        )
        m.d.sync += self.bus.read_valid.eq(read)
        for ram in (store, checks):
            m.d.comb += [
                ram.read_en.eq(read),
                ram.read_addr.eq(read_address),
                ram.write_en.eq(write),
                ram.write_addr.eq(write_address),
            ]
        m.d.comb += [
            store.write_data.eq(self.bus.write_data),
            checks.write_data.eq(self.bus.write_check),
            self.bus.read_data.eq(store.read_data ^ self.flip[:BEAT_BITS]),
            self.bus.read_check.eq(checks.read_data ^ self.flip[BEAT_BITS:]),
        ]
        return m

    def _delay(
        self, m: Module, name: str, valid: Signal, address: Signal, clocks: int
    ) -> tuple[Signal, Signal]:
        """Return a command's valid bit and address some clocks later."""
        for index in range(clocks):
            later = Signal(name=f"{name}{index}")
            later_address = Signal.like(address, name=f"{name}_address{index}")
            m.d.sync += [later.eq(valid), later_address.eq(address)]
            valid, address = later, later_address
        return valid, address

    def _elaborate_rows(self, m: Module) -> Signal:
        """Keep the open rows; return the beat address of this clock's column command."""
        config = self._config
        banks, row, column = config.geometry.banks, self.bus.row, self.bus.column
        rows: Memory = Memory(shape=config.row_bits, depth=banks, init=[])
        m.submodules.rows = rows
        write, read = rows.write_port(), rows.read_port(domain="comb")
        is_open = Signal(banks)
        row_bank, column_bank = Cat(row.bank, row.group), Cat(column.bank, column.group)
        act = row.kind == RowKind.ACT
        m.d.comb += [
            write.addr.eq(row_bank),
            write.data.eq(row.row),
            write.en.eq(act),
            read.addr.eq(column_bank),
        ]
        with m.If(act):
            m.d.sync += is_open.bit_select(row_bank, 1).eq(1)
        with m.If(row.kind == RowKind.PRE):
            m.d.sync += is_open.bit_select(row_bank, 1).eq(0)
        with m.If(row.kind == RowKind.PRE_ALL):
            m.d.sync += is_open.eq(0)
        row_open = is_open.bit_select(row_bank, 1)
        column_closed = (column.kind != ColKind.NOP) & ~is_open.bit_select(column_bank, 1)
        refresh_open = ((row.kind == RowKind.REF_BANK) & row_open) | (
            (row.kind == RowKind.REF_ALL) & is_open.any()
        )
        with m.If((act & row_open) | column_closed | refresh_open):
            m.d.sync += self.fault.eq(1)
        address = Signal(range(config.geometry.store_beats))
        chunk = AddressMap(config).chunk(column.group[1:], column.bank, read.data)
        beat = Cat(column.group[0], column.column)[: config.beat_bits]
        m.d.comb += address.eq(Cat(beat, chunk))
        return address
