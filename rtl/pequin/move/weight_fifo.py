"""The weight FIFO: beats one by one in, up to two per clock out."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.hbm.types import BEAT_BITS, CHECK_BITS
from pequin.mac.types import weight_beats
from pequin.move.types import FIFO_MEMORY, MEMORY_SHIFT
from pequin.secded import EccRam
from pequin.tile.types import ErrorCode, UnitFault

BANKS = 2

AHEAD = 8
"""Beats of a bank that are read ahead."""


class WeightFifo(wiring.Component):
    """Even and odd beats lie in two banks of protected memory, which are read ahead.

    *Timing*: a beat is at `output` 4 clocks after it was accepted, at the earliest. One beat in
    and up to two beats out per clock. A transfer has two beats whenever two were there when it
    was first offered.

    Parameters
    ----------
    params
        The tile's parameters; `fifo_beats` is the capacity.

    Members
    -------
    input : In(stream of 256 bits)
    output : Out(stream of weight_beats())
    level, room : Out(range(fifo_beats + 1))
        Beats held, and free places.
    fault : Out(UnitFault), fault_valid : Out(1)
        A beat had an error that cannot be corrected; it goes on as zeros. The detail has the
        place in the bank above the number of the bank.
    repaired : Out(2)
        A single-bit error was corrected, for each bank.
    flip : In(288)
        As `EccRam`.
    """

    input: Any
    output: Any
    level: Any
    room: Any
    fault: Any
    fault_valid: Any
    repaired: Any
    flip: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        count = range(params.config.fifo_beats + 1)
        super().__init__(
            {
                "input": In(stream.Signature(BEAT_BITS)),
                "output": Out(stream.Signature(weight_beats())),
                "level": Out(count),
                "room": Out(count, init=params.config.fifo_beats),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
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
        accept, next_bank, next_row = Signal(), Signal(), Signal(self._row_bits)
        m.d.comb += [
            self.input.ready.eq(self.room != 0),
            accept.eq(self.input.valid & self.input.ready),
        ]
        with m.If(accept):
            m.d.sync += Cat(next_bank, next_row).eq(Cat(next_bank, next_row) + 1)
        pops = Signal(BANKS)
        rams, queues = [], []
        for bank in range(BANKS):
            write = Signal(name=f"write_{bank}")
            m.d.comb += write.eq(accept & (next_bank == bank))
            ram, queue = self._bank(m, bank, write, next_row, pops[bank])
            rams.append(ram)
            queues.append(queue)
        taken = self._offer(m, queues, pops)
        m.d.sync += [
            self.level.eq(self.level + accept - taken),
            self.room.eq(self.room - accept + taken),
        ]
        self._report(m, rams)
        return m

    @property
    def _row_bits(self) -> int:
        return (self._params.config.fifo_beats // BANKS - 1).bit_length()

    def _bank(self, m: Module, bank: int, write: Signal, row: Signal, pop: Any) -> tuple[Any, Any]:
        """Read a bank's beats in order as far ahead as its queue has places."""
        depth = self._params.config.fifo_beats // BANKS
        ram, queue = (
            EccRam(depth=depth, name=f"fifo.{bank}"),
            fifo.SyncFIFO(width=BEAT_BITS, depth=AHEAD),
        )
        m.submodules[f"bank{bank}"] = ram
        m.submodules[f"ahead{bank}"] = queue
        stored = Signal(range(depth + 1), name=f"stored_{bank}")
        places = Signal(range(AHEAD + 1), init=AHEAD, name=f"places_{bank}")
        at = Signal(self._row_bits, name=f"read_row_{bank}")
        fetch = Signal(name=f"fetch_{bank}")
        m.d.comb += [
            fetch.eq((stored != 0) & (places != 0)),
            ram.write_en.eq(write),
            ram.write_addr.eq(row),
            ram.write_data.eq(self.input.payload),
            ram.flip.eq(self.flip),
            ram.read_en.eq(fetch),
            ram.read_addr.eq(at),
            queue.w_en.eq(ram.read_valid),
            queue.w_data.eq(ram.read_data),
            queue.r_en.eq(pop),
        ]
        m.d.sync += [
            stored.eq(stored + write - fetch),
            places.eq(places - fetch + pop),
            at.eq(at + fetch),
        ]
        return ram, queue

    def _offer(self, m: Module, queues: list[Any], pops: Signal) -> Signal:
        """Show the oldest beat and its successor; return how many are taken."""
        first, lone, taken = Signal(), Signal(), Signal(range(3))
        output = self.output
        there = Cat(queue.r_rdy for queue in queues)
        shown = [queue.r_data for queue in queues]
        m.d.comb += [
            output.valid.eq(there.bit_select(first, 1)),
            # An offer does not change before it is taken.
            output.payload.two.eq(there.all() & ~lone),
            output.payload.beats[0].eq(Mux(first, shown[1], shown[0])),
            output.payload.beats[1].eq(Mux(first, shown[0], shown[1])),
        ]
        accepted = output.valid & output.ready
        with m.If(accepted):
            m.d.comb += taken.eq(1 + output.payload.two)
        m.d.comb += [
            pops[0].eq(accepted & (~first | output.payload.two)),
            pops[1].eq(accepted & (first | output.payload.two)),
        ]
        m.d.sync += lone.eq(output.valid & ~output.ready & ~output.payload.two)
        with m.If(taken[0]):
            m.d.sync += first.eq(~first)
        return taken

    def _report(self, m: Module, rams: list[Any]) -> None:
        failed = Cat(ram.failed for ram in rams)
        place = Mux(rams[0].failed, rams[0].read_from << 1, (rams[1].read_from << 1) | 1)
        m.d.sync += [
            self.repaired.eq(Cat(ram.repaired for ram in rams)),
            self.fault_valid.eq(failed.any()),
            self.fault.code.eq(ErrorCode.SRAM_ECC),
            self.fault.detail.eq(FIFO_MEMORY << MEMORY_SHIFT | place),
        ]
