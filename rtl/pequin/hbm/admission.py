"""Admission: one piece a clock from the requesters into the scheduling windows."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.config import HbmConfig
from pequin.hbm.frontend import FrontEnd
from pequin.hbm.select import first_of, one_hot_mux
from pequin.hbm.types import BEAT_BITS, HbmError, HbmRequest, HbmWriteAck
from pequin.hbm.window import run_layout

ACKS = 4
"""Write acknowledges held for each requester."""


FRESH_CLOCKS = 512
"""How long a requester's place counts after its last beat was admitted (clocks): refresh keeps away
from the banks ahead of it, and would run out of banks if it kept away from places of long ago."""


class Admission(wiring.Component):
    """Arbitrate between requesters and number their beats.

    *Arbitration*: a requester whose piece continues the youngest run of its direction goes first,
    so that single-beat requests of a stream become one run; such a run ends with its chunk.
    Otherwise the requester after the one that was served last goes first. A piece is passed over
    while it cannot be admitted: no room in its window, write queue or return buffer, or one of its
    beats in a run of the other direction. A requester may hold at most `read_window - requesters
    + 1` runs, so that each can always get one in.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    request, write_data, write_ack
        The requesters' streams.
    lookup_pair, lookup_hit
        The pair each requester's piece is in, and in which of its banks the chunk is open.
    probe, can_merge_read, can_merge_write, read_conflict, write_conflict
        The windows' answers about each requester's piece.
    read_count, write_count, leaving, leaving_requester
        Occupancy of the windows, and the read run that completes.
    head
        Next beat to be delivered to each requester.
    write_room, write_slot
        The write queue.
    push_read, push_write, merge, new, push_data
        What is admitted in this clock.
    mark_last, refuse, mark_slot
        For the return buffers: the last beat of a request, or an error response.
    position, position_valid
        Chunks the requesters are at: reads, then writes. One that has asked for nothing for
        `FRESH_CLOCKS` is nowhere.
    read_blocked, write_stuck
        A read waits for a write of its beats; a write waits for room.
    refused
        A request is answered with an error.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        n, run = config.requesters, run_layout(config)
        super().__init__(
            {
                "request": In(stream.Signature(HbmRequest)).array(n),
                "write_data": In(stream.Signature(BEAT_BITS)).array(n),
                "write_ack": Out(stream.Signature(HbmWriteAck)).array(n),
                "lookup_pair": Out(config.pair_bits).array(n),
                "lookup_hit": In(2).array(n),
                "probe": Out(run).array(n),
                "can_merge_read": In(1).array(n),
                "can_merge_write": In(1).array(n),
                "read_conflict": In(1).array(n),
                "write_conflict": In(1).array(n),
                "read_count": In(range(config.read_window + 1)),
                "write_count": In(range(config.write_window + 1)),
                "leaving": In(1),
                "leaving_requester": In(2),
                "head": In(config.seq_bits).array(n),
                "write_room": In(1),
                "write_slot": In(config.write_beats.bit_length()),
                "push_read": Out(1),
                "push_write": Out(1),
                "merge": Out(1),
                "new": Out(run),
                "push_data": Out(BEAT_BITS),
                "mark_last": Out(1).array(n),
                "refuse": Out(1).array(n),
                "mark_slot": Out(config.seq_bits),
                "position": Out(config.tag_bits).array(2 * n),
                "position_valid": Out(2 * n),
                "read_blocked": Out(1),
                "write_stuck": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the entrances, the arbiter and the numbering."""
        m = Module()
        n = self._config.requesters
        self._fronts = [FrontEnd(self._config) for _ in range(n)]
        self._seq = [Signal(self._config.seq_bits, name=f"seq{q}") for q in range(n)]
        self._owned = [
            Signal(range(self._config.read_window + 1), name=f"owned{q}") for q in range(n)
        ]
        self._sealed = Signal()
        self._ack_room: list[Signal] = []
        self._ack_push = Signal(n)
        for q in range(n):
            self._elaborate_front(m, q)
        self._elaborate_arbiter(m)
        self._elaborate_grant(m)
        for q in range(n):
            self._elaborate_numbers(m, q)
        return m

    def _elaborate_front(self, m: Module, q: int) -> None:
        """One requester's entrance, its question to the windows, and its acknowledges."""
        front = self._fronts[q]
        m.submodules[f"front{q}"] = front
        wiring.connect(m, wiring.flipped(self.request[q]), front.request)
        piece, probe = front.piece, self.probe[q]
        m.d.comb += [
            self.lookup_pair[q].eq(piece.pair),
            probe.requester.eq(q),
            probe.tag.eq(piece.tag),
            probe.pair.eq(piece.pair),
            probe.beat.eq(piece.beat),
            probe.end.eq(piece.end),
            probe.hit.eq(self.lookup_hit[q]),
            probe.index.eq(Mux(piece.write, self.write_slot, self._seq[q])),
        ]
        m.submodules[f"acks{q}"] = acks = fifo.SyncFIFO(width=2, depth=ACKS)
        m.d.comb += [
            acks.w_en.eq(self._ack_push[q]),
            acks.w_data.eq(Mux(piece.bad, HbmError.ADDRESS, HbmError.OK)),
            acks.r_en.eq(self.write_ack[q].ready),
            self.write_ack[q].valid.eq(acks.r_rdy),
            self.write_ack[q].payload.as_value().eq(acks.r_data),
        ]
        self._ack_room.append(acks.w_rdy)

    def _elaborate_arbiter(self, m: Module) -> None:
        """Find who may be admitted and choose one."""
        config, n = self._config, self._config.requesters
        cap = config.read_window - n + 1
        eligible, continues, blocked, stuck = [], [], [], []
        for q, front in enumerate(self._fronts):
            piece = front.piece
            ahead = Signal(config.seq_bits, name=f"ahead{q}")
            m.d.comb += ahead.eq(self._seq[q] - self.head[q])
            merge = Signal(name=f"merge{q}")
            m.d.comb += merge.eq(
                Mux(piece.write, self.can_merge_write[q], self.can_merge_read[q] & ~self._sealed)
            )
            new_read = (self.read_count != config.read_window) & (self._owned[q] != cap)
            read_ok = (ahead < config.return_beats) & (
                piece.bad | ((merge | new_read) & ~self.write_conflict[q])
            )
            has_data = self.write_data[q].valid | ~piece.takes_data
            room = self.write_room & (merge | (self.write_count != config.write_window))
            write_ok = (
                has_data
                & (self._ack_room[q] | ~piece.last)
                & (piece.bad | (room & ~self.read_conflict[q]))
            )
            ok = Signal(name=f"eligible{q}")
            m.d.comb += ok.eq(front.piece_valid & Mux(piece.write, write_ok, read_ok))
            eligible.append(ok)
            continues.append(ok & merge & ~piece.bad)
            reading = front.piece_valid & ~piece.bad
            blocked.append(reading & ~piece.write & self.write_conflict[q])
            stuck.append(reading & piece.write & has_data & ~room)
        self._grant = Signal(n)
        turn = Signal(range(n))
        ring = Cat(eligible)
        for first in range(n):
            order = [(first + i) % n for i in range(n)]
            chosen = first_of(m, [ring[q] for q in order], f"turn{first}")
            with m.If(turn == first):
                m.d.comb += self._grant.eq(Cat(chosen[order.index(q)] for q in range(n)))
        going = first_of(m, continues, "going")
        with m.If(going.any()):
            m.d.comb += self._grant.eq(going)
        for q in range(n):
            with m.If(self._grant[q]):
                m.d.sync += turn.eq((q + 1) % n)
        m.d.comb += [
            self.merge.eq((self._grant & Cat(continues)).any()),
            self.read_blocked.eq(Cat(blocked).any()),
            self.write_stuck.eq(Cat(stuck).any()),
        ]

    def _elaborate_grant(self, m: Module) -> None:
        """Pass the chosen piece on."""
        fronts = self._fronts
        piece = Signal.like(fronts[0].piece, name="granted")
        m.d.comb += [
            piece.as_value().eq(one_hot_mux(self._grant, [f.piece.as_value() for f in fronts])),
            self.new.as_value().eq(
                one_hot_mux(self._grant, [p.as_value() for p in self._probes()])
            ),
            self.push_data.eq(one_hot_mux(self._grant, [w.payload for w in self._write_streams()])),
            self.push_read.eq(self._grant.any() & ~piece.write & ~piece.bad),
            self.push_write.eq(self._grant.any() & piece.write & ~piece.bad),
            self.refused.eq(self._grant.any() & piece.bad & piece.last),
        ]
        with m.If(self.push_read):
            m.d.sync += self._sealed.eq(0)
        with m.Elif(self._grant.any() & ~piece.write & piece.bad):
            m.d.sync += self._sealed.eq(1)
        count = Signal(self._config.beat_bits + 1, name="granted_beats")
        m.d.comb += count.eq(piece.end - piece.beat + 1)
        self._count = count
        m.d.comb += self.mark_slot.eq(
            one_hot_mux(self._grant, [seq for seq in self._seq]) + count - 1
        )

    def _probes(self) -> list[Any]:
        return [self.probe[q] for q in range(self._config.requesters)]

    def _write_streams(self) -> list[Any]:
        return [self.write_data[q] for q in range(self._config.requesters)]

    def _elaborate_numbers(self, m: Module, q: int) -> None:
        """Count one requester's beats and runs, and tell its return buffer."""
        front, granted = self._fronts[q], self._grant[q]
        piece, n = front.piece, self._config.requesters
        read = granted & ~piece.write
        gains = read & ~piece.bad & ~self.merge
        loses = self.leaving & (self.leaving_requester == q)
        m.d.comb += [
            front.take.eq(granted),
            self.write_data[q].ready.eq(granted & piece.takes_data),
            self._ack_push[q].eq(granted & piece.write & piece.last),
            self.mark_last[q].eq(read & piece.last & ~piece.bad),
            self.refuse[q].eq(read & piece.bad),
        ]
        m.d.sync += self._owned[q].eq(self._owned[q] + gains - loses)
        with m.If(read):
            m.d.sync += self._seq[q].eq(self._seq[q] + self._count)
        for index, mine in ((q, ~piece.write), (q + n, piece.write)):
            left = Signal(range(FRESH_CLOCKS), name=f"fresh{index}")
            with m.If(granted & mine & ~piece.bad):
                m.d.sync += [
                    self.position[index].eq(piece.tag),
                    self.position_valid[index].eq(1),
                    left.eq(FRESH_CLOCKS - 1),
                ]
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
            with m.Else():
                m.d.sync += self.position_valid[index].eq(0)
