"""Reads keys and values from the banks and hands them to the MAC array."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.hbm.types import BEAT_BITS
from pequin.kv.types import BANKS, KvCause, address_bits, bank_of, kv_read, row_of
from pequin.mac.types import weight_beats
from pequin.move.types import MEMORY_SHIFT
from pequin.secded import READ_CLOCKS
from pequin.tile.types import ErrorCode, Memory, UnitFault

TRANSFERS = 8
"""Transfers that are read ahead of the MAC array."""


def _flight() -> data.StructLayout:
    """Return what is known of a reading whose data are on their way."""
    return data.StructLayout({"valid": 1, "read": kv_read()})


class KvReader(wiring.Component):
    """Carry out readings as long as the output has places for them.

    *Timing*: a transfer is at `output` 3 clocks after its reading, one per clock. `done` and a
    fault come 3 clocks after the command's last reading. After a fault nothing more is read.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    reads : In(stream of kv_read())
    active, waits : In(1)
        As `KvWalker`.
    want : Out(2), row : Out.array(2); granted : In(2); data, failed : In
        To the banks.
    output : Out(stream of weight_beats()), output_last : Out(1)
        `output_last` marks a command's last transfer.
    done : Out(1), fault : Out(UnitFault), fault_valid : Out(1)
    cause : Out(KvCause)
    beats : Out(2)
        Payload beats read in this clock.
    """

    reads: Any
    active: Any
    waits: Any
    want: Any
    row: Any
    granted: Any
    data: Any
    failed: Any
    output: Any
    output_last: Any
    done: Any
    fault: Any
    fault_valid: Any
    cause: Any
    beats: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "reads": In(stream.Signature(kv_read())),
                "active": In(1),
                "waits": In(1),
                "want": Out(BANKS),
                "row": Out(address_bits(params) - 1).array(BANKS),
                "granted": In(BANKS),
                "data": In(BEAT_BITS).array(BANKS),
                "failed": In(BANKS),
                "output": Out(stream.Signature(weight_beats())),
                "output_last": Out(1),
                "done": Out(1),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "cause": Out(KvCause),
                "beats": Out(2),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        width = weight_beats().size + 1
        m.submodules.transfers = queue = fifo.SyncFIFO(width=width, depth=TRANSFERS)
        self._go, self._credit = Signal(name="go"), Signal(name="credit")
        self._reading, self._stopped = Signal(name="reading"), Signal(name="stopped")
        flights = self._issue(m)
        push = self._collect(m, flights[-1], queue)
        self._count(m, queue)
        m.d.comb += [
            queue.w_en.eq(push),
            Cat(self.output.payload.as_value(), self.output_last).eq(queue.r_data),
            self.output.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.output.ready),
        ]
        self._explain(m)
        return m

    def _issue(self, m: Module) -> list[Any]:
        """Read one or two beats; return what follows them, clock by clock."""
        read: Any = Signal(kv_read(), name="read")
        given = self.reads.payload
        outside = [given.addresses[i] >= self._params.config.kv_beats for i in range(BANKS)]
        beyond = ~given.none & (outside[0] | (given.two & outside[1]))
        m.d.comb += read.eq(given)
        with m.If(beyond):
            m.d.comb += [
                read.error.eq(ErrorCode.KV_ADDRESS),
                read.detail.eq(Mux(outside[0], given.addresses[0], given.addresses[1])),
                read.none.eq(1),
            ]
        first = bank_of(given.addresses[0])
        m.d.comb += self._reading.eq(self.reads.valid & ~read.none & ~self._stopped)
        for bank in range(BANKS):
            takes_first = first == bank
            at = row_of(Mux(takes_first, given.addresses[0], given.addresses[1]))
            wanted = self._reading & self._credit & (takes_first | given.two)
            m.d.comb += [self.want[bank].eq(wanted), self.row[bank].eq(at)]
        served = (self.granted | ~self.want).all()
        m.d.comb += [
            self._go.eq(
                self.reads.valid & ~self._stopped & (~self._reading | (self._credit & served))
            ),
            self.reads.ready.eq(self._go),
        ]
        flights = [Signal(_flight(), name=f"flight_{i}") for i in range(READ_CLOCKS)]
        m.d.sync += [flights[0].valid.eq(self._go), flights[0].read.eq(read)]
        m.d.sync += [after.eq(before) for before, after in pairwise(flights)]
        return flights

    def _collect(self, m: Module, flight: Any, queue: Any) -> Value:
        """Put beats into the order of reading; end the command or tell what is wrong."""
        read = flight.read
        first = bank_of(read.addresses[0])
        beats = [Mux(first, self.data[1 - i], self.data[i]) for i in range(BANKS)]
        failed = Array(self.failed)
        m.d.comb += queue.w_data.eq(Cat(*beats, read.two, read.last))
        lost = [failed[first], read.two & failed[~first]]
        arrives, bad, refused = Signal(), Signal(), Signal()
        m.d.comb += [
            arrives.eq(flight.valid & ~self._stopped),
            refused.eq(arrives & (read.error != ErrorCode.NONE)),
            bad.eq(arrives & ~read.none & Cat(lost).any()),
        ]
        place = Mux(lost[0], read.addresses[0], read.addresses[1])
        m.d.sync += [
            self.done.eq(arrives & read.last & ~bad & ~refused),
            self.fault_valid.eq(bad | refused),
        ]
        with m.If(bad | refused):
            m.d.sync += self._stopped.eq(1)
        with m.If(bad):
            m.d.sync += [
                self.fault.code.eq(ErrorCode.SRAM_ECC),
                self.fault.detail.eq(sram_detail(place)),
            ]
        with m.Else():
            m.d.sync += [self.fault.code.eq(read.error), self.fault.detail.eq(read.detail)]
        return arrives & ~read.none & ~bad

    def _count(self, m: Module, queue: Any) -> None:
        """Let no more be on its way than the output has places for."""
        places = Signal(range(TRANSFERS + 1), init=TRANSFERS)
        popped = queue.r_rdy & queue.r_en
        m.d.comb += self._credit.eq(places != 0)
        m.d.sync += places.eq(places - (self._go & self._reading) + popped)

    def _explain(self, m: Module) -> None:
        given, cause = self.reads.payload, self.cause
        with m.If(self._stopped):
            m.d.comb += cause.eq(KvCause.IDLE)
        with m.Elif(self._go & self._reading):
            m.d.comb += [
                cause.eq(Mux(given.scale, KvCause.SCALE, KvCause.BUSY)),
                self.beats.eq(Mux(given.scale, 0, 1 + given.two)),
            ]
        with m.Elif(self._reading):
            m.d.comb += cause.eq(Mux(self._credit, KvCause.BANK, KvCause.OUTPUT))
        with m.Elif(self.waits & ~self.reads.valid):
            m.d.comb += cause.eq(KvCause.WRITES)
        with m.Elif(self.active | self.reads.valid):
            m.d.comb += cause.eq(KvCause.SETUP)
        with m.Else():
            m.d.comb += cause.eq(KvCause.IDLE)


def sram_detail(address: Value) -> Value:
    """Return the detail of a fault of the buffer's memory."""
    return Const(Memory.KV.value << MEMORY_SHIFT, 32) | address[:MEMORY_SHIFT]
