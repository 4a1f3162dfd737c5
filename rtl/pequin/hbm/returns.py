"""The return buffer: one requester's read data, put back into the order of the requests."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from pequin.hbm.config import HbmConfig
from pequin.hbm.types import BEAT_BITS, HbmError, HbmReadBeat


class ReturnBuffer(wiring.Component):
    """Beats come in any order by number and leave in order.

    *Timing*: a beat stored in one clock is on `read_data` two clocks later at the earliest, one
    beat a clock.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    store, store_slot, store_data, store_error
        A beat from the device, and whether it had an uncorrectable error.
    mark_last, refuse, mark_slot
        The beat of this number is the last of its request; it is an error response at once.
    head
        Number of the next beat to be delivered.
    read_data
        The requester's data.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        slot_bits = (config.return_beats - 1).bit_length()
        super().__init__(
            {
                "store": In(1),
                "store_slot": In(slot_bits),
                "store_data": In(BEAT_BITS),
                "store_error": In(1),
                "mark_last": In(1),
                "refuse": In(1),
                "mark_slot": In(config.seq_bits),
                "head": Out(config.seq_bits),
                "read_data": Out(stream.Signature(HbmReadBeat)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the memory, the presence bits and the output register."""
        m = Module()
        depth = self._config.return_beats
        present, refused = Signal(depth), Signal(depth)
        # A piece is admitted when its first beat fits; its last one may be a chunk further on.
        last = Signal(1 << len(self.head))
        slot = self.head[: len(self.store_slot)]
        memory: Memory = Memory(shape=BEAT_BITS + 1, depth=depth, init=[])
        m.submodules.memory = memory
        write, read = memory.write_port(), memory.read_port()
        valid, out_last, out_refused = Signal(), Signal(), Signal()
        fetch = Signal()
        beat = self.read_data.payload
        m.d.comb += [
            write.addr.eq(self.store_slot),
            write.data[:BEAT_BITS].eq(self.store_data),
            write.data[BEAT_BITS].eq(self.store_error),
            write.en.eq(self.store),
            fetch.eq(present.bit_select(slot, 1) & (~valid | self.read_data.ready)),
            read.addr.eq(slot),
            read.en.eq(fetch),
            self.read_data.valid.eq(valid),
            beat.data.eq(Mux(out_refused, 0, read.data[:BEAT_BITS])),
            beat.error.eq(
                Mux(
                    out_refused,
                    HbmError.ADDRESS,
                    Mux(read.data[BEAT_BITS], HbmError.ECC, HbmError.OK),
                )
            ),
            beat.last.eq(out_last),
        ]
        with m.If(self.read_data.ready):
            m.d.sync += valid.eq(0)
        taken, stored, refusing = Signal(depth), Signal(depth), Signal(depth)
        passed, marked = Signal(len(last)), Signal(len(last))
        m.d.comb += [
            taken.eq(fetch << slot),
            stored.eq(self.store << self.store_slot),
            refusing.eq(self.refuse << self.mark_slot[: len(slot)]),
            passed.eq(fetch << self.head),
            marked.eq((self.mark_last | self.refuse) << self.mark_slot),
        ]
        m.d.sync += [
            present.eq((present & ~taken) | stored | refusing),
            refused.eq((refused & ~taken) | refusing),
            last.eq((last & ~passed) | marked),
        ]
        with m.If(fetch):
            m.d.sync += [
                valid.eq(1),
                out_last.eq((last & passed).any()),
                out_refused.eq((refused & taken).any()),
                self.head.eq(self.head + 1),
            ]
        return m
