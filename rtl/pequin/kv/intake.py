"""Takes the vector unit's writes and turns them into writes of the banks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BEAT_BYTES, BLOCK, TileParams
from pequin.hbm.types import BEAT_BITS
from pequin.kv.types import (
    BANKS,
    GRANULE_ALIGN,
    MAX_ROWS,
    TOKENS,
    address_bits,
    bank_of,
    bank_write,
    row_of,
)
from pequin.tile.types import ErrorCode, UnitFault
from pequin.vector.types import KV_ADDRESS_BITS, kv_write


def _item(params: TileParams) -> data.StructLayout:
    """Return an item with its places: `address` and `mask` of its payload, byte of its scale."""
    address = address_bits(params)
    return data.StructLayout(
        {
            "address": address,
            "mask": BEAT_BYTES,
            "data": BEAT_BITS,
            "scaled": 1,
            "scale_address": address,
            "place": range(TOKENS),
            "scale": 8,
            "last": 1,
        }
    )


def _scales(params: TileParams) -> data.StructLayout:
    """Return bytes of a scale beat that wait to be written; at once if `leave`."""
    return data.StructLayout(
        {"address": address_bits(params), "mask": BEAT_BYTES, "data": BEAT_BITS, "leave": 1}
    )


class KvIntake(wiring.Component):
    """Place items of K and V; gather scales of one beat before they are written.

    A block of K is a write of a whole beat, an element of V of one byte. Scales go into a held
    beat, which is written when another scale beat is met, or after the last block of a vector.

    *Timing*: an item's write is offered to its bank one clock after the item was accepted. One
    item per clock, unless a held scale beat must be written to the bank of the payload.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    writes : In(stream of kv_write())
    token_blocks : In(3)
        Blocks of a token; 0 refuses all items.
    bank_ready : In(2), bank_en : Out(2), bank_write : Out(bank_write(params)).array(2)
        To `KvBank`.
    hold : In(1)
        Accept no item, and write all that is held.
    pending : Out(1)
        Something accepted has not been given to the banks.
    fault : Out(UnitFault), fault_valid : Out(1)
        An item has no place. It and all later ones are dropped.
    """

    writes: Any
    token_blocks: Any
    bank_ready: Any
    bank_en: Any
    bank_write: Any
    hold: Any
    pending: Any
    fault: Any
    fault_valid: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "writes": In(stream.Signature(kv_write())),
                "token_blocks": In(3),
                "bank_ready": In(BANKS),
                "bank_en": Out(BANKS),
                "bank_write": Out(bank_write(params)).array(BANKS),
                "hold": In(1),
                "pending": Out(1),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._valid, self._item = Signal(name="valid"), Signal(_item(self._params), name="item")
        self._held: Any = Signal(_scales(self._params), name="held")
        self._holds = Signal(name="holds")
        self._go, self._held_go = Signal(name="go"), Signal(name="held_go")
        self._bank, self._held_bank = Signal(name="bank"), Signal(name="held_bank")
        self._accept(m)
        self._schedule(m)
        self._gather(m)
        self._offer(m)
        m.d.comb += self.pending.eq(self._valid | self._holds)
        return m

    def _accept(self, m: Module) -> None:
        """Work out an item's places and register them."""
        writes = self.writes
        accept, misplaced, stopped = Signal(), Signal(), Signal()
        m.d.comb += [
            writes.ready.eq(stopped | (~self.hold & (~self._valid | self._go))),
            accept.eq(writes.valid & writes.ready & ~stopped),
            misplaced.eq(self._place(m, accept)),
        ]
        with m.If(self._go):
            m.d.sync += self._valid.eq(0)
        with m.If(accept):
            m.d.sync += [self._valid.eq(~misplaced), stopped.eq(misplaced)]
        m.d.sync += [
            self.fault_valid.eq(accept & misplaced),
            self.fault.code.eq(ErrorCode.KV_ADDRESS),
            self.fault.detail.eq(writes.payload.address),
        ]

    def _place(self, m: Module, accept: Signal) -> Value:
        """Register the places of the item that is offered; return whether it has none."""
        given, blocks = self.writes.payload, self.token_blocks
        row, granule = Signal(range(MAX_ROWS + 1)), Signal(KV_ADDRESS_BITS)
        number, block = Signal(8), given.address[:3]
        key_granule = Cat(Const(0, 3), given.address[3:])
        value_granule = Mux(row == 0, given.address, granule)
        address, misplaced = Signal(KV_ADDRESS_BITS + 1), Signal()
        m.d.comb += number.eq(given.lane * blocks + block)
        with m.If(given.values):
            m.d.comb += [
                address.eq(given.address + GRANULE_ALIGN + BLOCK * blocks),
                misplaced.eq(((row == 0) & block.any()) | (row[5:] >= blocks)),
            ]
        with m.Else():
            m.d.comb += [
                address.eq(key_granule + GRANULE_ALIGN + number),
                misplaced.eq(block >= blocks),
            ]
        item = self._item
        with m.If(accept):
            m.d.sync += [
                item.address.eq(address),
                item.mask.eq(Mux(given.values, 1 << given.lane, (1 << BEAT_BYTES) - 1)),
                item.data.eq(given.elements),
                item.scaled.eq(~given.values | (row == 0)),
                item.scale_address.eq(
                    Mux(given.values, value_granule + blocks, key_granule + number[5:])
                ),
                item.place.eq(Mux(given.values, given.lane, number[:5])),
                item.scale.eq(given.scale),
                item.last.eq(given.last | given.values),
            ]
            with m.If(given.values):
                m.d.sync += [row.eq(Mux(given.last, 0, row + 1)), granule.eq(value_granule)]
        outside = address >= self._params.config.kv_beats
        return misplaced | outside

    def _schedule(self, m: Module) -> None:
        """Decide which of the item and the held scales leave in this clock."""
        item, held = self._item, self._held
        ready = Array(self.bank_ready)
        other, must, wants, collide = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self._bank.eq(bank_of(item.address)),
            self._held_bank.eq(bank_of(held.address)),
            other.eq(held.address != item.scale_address),
            must.eq(self._holds & self._valid & item.scaled & other),
            wants.eq(self._holds & (must | held.leave | (self.hold & ~self._valid))),
            collide.eq(self._valid & wants & (self._bank == self._held_bank)),
            self._held_go.eq(wants & (must | ~collide) & ready[self._held_bank]),
            self._go.eq(
                self._valid & ready[self._bank] & (~collide | ~must) & (~must | self._held_go)
            ),
        ]

    def _gather(self, m: Module) -> None:
        """Put an item's scale into the held beat, or begin a new one."""
        item, held = self._item, self._held
        place = Signal(BEAT_BYTES, name="place_mask")
        m.d.comb += place.eq(1 << item.place)
        kept = Mux(self._holds & ~self._held_go, held.mask, 0)
        with m.If(self._held_go):
            m.d.sync += self._holds.eq(0)
        with m.If(self._go & item.scaled):
            m.d.sync += [
                self._holds.eq(1),
                held.address.eq(item.scale_address),
                held.mask.eq(kept | place),
                held.leave.eq(item.last),
            ]
            for byte in range(BEAT_BYTES):
                with m.If(place[byte]):
                    m.d.sync += held.data[8 * byte : 8 * byte + 8].eq(item.scale)

    def _offer(self, m: Module) -> None:
        item, held = self._item, self._held
        for bank, write in enumerate(self.bank_write):
            for_item = self._go & (self._bank == bank)
            for_held = self._held_go & (self._held_bank == bank)
            m.d.comb += [
                self.bank_en[bank].eq(for_item | for_held),
                write.row.eq(Mux(for_held, row_of(held.address), row_of(item.address))),
                write.mask.eq(Mux(for_held, held.mask, item.mask)),
                write.data.eq(Mux(for_held, held.data, item.data)),
            ]
