"""The scheduling window: runs of beats in order of age, picked first-ready."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.banks import FLAGS, flags_layout
from pequin.hbm.config import HbmConfig
from pequin.hbm.select import first_of, indexed, one_hot_mux
from pequin.hbm.types import RowKind


def run_layout(config: HbmConfig) -> data.StructLayout:
    """Return the layout of a run: beats of one chunk that one requester asked for.

    `beat` is the next beat to issue and `end` the last one (places in the chunk); `stride` is set
    when the run takes every other beat, that is one bank of the pair. `index` is the next beat's
    number: the place in the return order for reads, in the write queue for writes. `hit` has a
    bit for each bank of the pair whose open row is this chunk's.
    """
    return data.StructLayout(
        {
            "requester": 2,
            "tag": config.tag_bits,
            "pair": config.pair_bits,
            "beat": config.beat_bits,
            "end": config.beat_bits,
            "stride": 1,
            "index": max(config.seq_bits, config.write_beats.bit_length()),
            "hit": 2,
        }
    )


def row_layout(config: HbmConfig) -> data.StructLayout:
    """Return the layout of a row command inside the controller."""
    return data.StructLayout(
        {"kind": RowKind, "pair": config.pair_bits, "g": 1, "tag": config.tag_bits}
    )


class Window(wiring.Component):
    """Runs of one direction, oldest first; offers one column and one row command a clock.

    *Timing*: a run that is pushed can be offered in the next clock. The oldest ready run is
    offered. A row is closed for a run only when no older run of the window still uses it, and a run
    does not use a row that an older one waits to have closed: no run starves.

    Parameters
    ----------
    config
        The channel's configuration.
    entries
        Runs held.
    write
        Direction. Writes of one chunk stay in order among themselves.

    Members
    -------
    push, merge, new
        Take `new` as the youngest run, or append it to the youngest run.
    can_merge, probe, probe_hit, probe_run
        For each requester: whether its run may be appended; whether any run overlaps it.
    flags, column_ok, heads
        What banks allow; whether the turnaround is over; for reads, each requester's next beat to
        be delivered.
    row
        The row command issued in this clock by anyone.
    column, column_valid, column_take
        The run whose next beat is offered, and whether it is issued.
    want, want_valid
        The row command offered.
    keep, kept
        Whether any run still uses the open row of bank `keep`.
    count, oldest, oldest_valid, leaving, leaving_requester, claimed
        Occupancy, the oldest run, the run that completes in this clock, pairs with a run.
    """

    def __init__(self, config: HbmConfig, *, entries: int, write: bool) -> None:
        self._config = config
        self._entries = entries
        self._write = write
        run = run_layout(config)
        requesters = config.requesters
        super().__init__(
            {
                "push": In(1),
                "merge": In(1),
                "new": In(run),
                "probe": In(run).array(requesters),
                "can_merge": Out(1).array(requesters),
                "probe_hit": Out(1).array(requesters),
                "flags": In(flags_layout(config.geometry.banks)),
                "column_ok": In(1),
                "heads": In(config.seq_bits).array(requesters),
                "row": In(row_layout(config)),
                "column": Out(run),
                "column_valid": Out(1),
                "column_take": In(1),
                "want": Out(row_layout(config)),
                "want_valid": Out(1),
                "keep": In(config.pair_bits + 1),
                "kept": Out(1),
                "count": Out(range(entries + 1)),
                "oldest": Out(run),
                "oldest_valid": Out(1),
                "oldest_flags": Out(flags_layout(2)),
                "oldest_room": Out(1),
                "leaving": Out(1),
                "leaving_requester": Out(2),
                "claimed": Out(config.geometry.pairs),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the entries, the two pickers and the queries."""
        m = Module()
        layout, n = run_layout(self._config), self._entries
        self._runs: list[Any] = [Signal(layout, name=f"run{i}") for i in range(n)]
        self._valid = [Signal(name=f"valid{i}") for i in range(n)]
        self._rivals = [Signal(max(1, i), name=f"rivals{i}") for i in range(n)]
        self._order = [Signal(max(1, i), name=f"order{i}") for i in range(n)]
        self._bank = [self._elaborate_flags(m, i) for i in range(n)]
        self._uses = [self._elaborate_uses(m, i) for i in range(n)]
        self._claims = [Signal(2, name=f"claims{i}") for i in range(n)]
        for claims, uses, run in zip(self._claims, self._uses, self._runs, strict=True):
            m.d.comb += claims.eq(uses & run.hit)
        self._elaborate_column(m)
        self._elaborate_row(m)
        self._elaborate_probe(m)
        self._elaborate_update(m)
        self._elaborate_status(m)
        return m

    def _elaborate_flags(self, m: Module, i: int) -> Any:
        """Look up the flags of an entry's two banks."""
        both: Any = Signal(flags_layout(2), name=f"flags{i}")
        for field in FLAGS:
            m.d.comb += both[field].eq(self.flags[field].word_select(self._runs[i].pair, 2))
        return both

    def _elaborate_uses(self, m: Module, i: int) -> Signal:
        """Return which banks of its pair an entry still needs."""
        run = self._runs[i]
        uses = Signal(2, name=f"uses{i}")
        more = (run.beat != run.end) & ~run.stride
        with m.If(self._valid[i]):
            m.d.comb += uses.eq(Cat(~run.beat[0] | more, run.beat[0] | more))
        return uses

    def _room(self, m: Module, i: int) -> Value:
        """Return whether the return buffer has room for the entry's next beat."""
        if self._write:
            return Const(1, 1)
        run, config = self._runs[i], self._config
        head = indexed([self.heads[q] for q in range(config.requesters)], run.requester)
        ahead = Signal(config.seq_bits, name=f"ahead{i}")
        m.d.comb += ahead.eq(run.index - head)
        return ahead < config.return_beats

    def _elaborate_column(self, m: Module) -> None:
        """Offer the oldest entry whose next beat may be issued."""
        ready = []
        misses = [Signal(self._entries, name=f"misses_g{g}") for g in range(2)]
        for g in range(2):
            m.d.comb += misses[g].eq(
                Cat(u[g] & ~r.hit[g] for u, r in zip(self._uses, self._runs, strict=True))
            )
        for i, run in enumerate(self._runs):
            g = run.beat[0]
            allowed = self._bank[i].can_write if self._write else self._bank[i].can_read
            room = Signal(name=f"room{i}")
            m.d.comb += room.eq(self._room(m, i))
            ok = Signal(name=f"ready{i}")
            open_ok = Mux(g, run.hit[1] & allowed[1], run.hit[0] & allowed[0])
            in_order = Value.cast(Const(1, 1))
            if i:
                in_order = ~(self._rivals[i] & Mux(g, misses[1][:i], misses[0][:i])).any()
            if i and self._write:
                in_order = in_order & ~self._order[i].any()
            m.d.comb += ok.eq(self._valid[i] & open_ok & room & in_order & self.column_ok)
            ready.append(ok)
            if i == 0:
                m.d.comb += self.oldest_room.eq(room)
        self._pick = first_of(m, ready, "column_pick")
        m.d.comb += [
            self.column_valid.eq(self._pick.any()),
            self.column.as_value().eq(
                one_hot_mux(self._pick, [run.as_value() for run in self._runs])
            ),
            self.leaving.eq(self.column_take & (self.column.beat == self.column.end)),
            self.leaving_requester.eq(self.column.requester),
        ]

    def _elaborate_row(self, m: Module) -> None:
        """Offer the oldest entry's next activate or precharge that is possible."""
        requests, commands = [], []
        by_bank = [Signal(self._entries, name=f"claims_g{g}") for g in range(2)]
        for g in range(2):
            m.d.comb += by_bank[g].eq(Cat(claims[g] for claims in self._claims))
        for i, run in enumerate(self._runs):
            options = []
            for g in range(2):
                flags = self._bank[i]
                blocked: Value = Const(0, 1)
                if i:
                    blocked = (self._rivals[i] & by_bank[g][:i]).any()
                act, pre = Signal(name=f"act{i}_{g}"), Signal(name=f"pre{i}_{g}")
                need = self._uses[i][g] & ~run.hit[g]
                m.d.comb += [
                    act.eq(need & flags.can_act[g]),
                    pre.eq(need & flags.can_pre[g] & ~blocked),
                ]
                options.append((act, pre))
            other = Signal(name=f"row_g{i}")
            first = Mux(run.beat[0], options[1][0] | options[1][1], options[0][0] | options[0][1])
            m.d.comb += other.eq(run.beat[0] ^ ~first)
            act, pre = Signal(name=f"act{i}"), Signal(name=f"pre{i}")
            m.d.comb += [
                act.eq(Mux(other, options[1][0], options[0][0])),
                pre.eq(Mux(other, options[1][1], options[0][1])),
            ]
            kind = Mux(act, RowKind.ACT, RowKind.PRE)
            requests.append(act | pre)
            commands.append(Cat(kind, run.pair, other, run.tag))
        pick = first_of(m, requests, "row_pick")
        m.d.comb += [
            self.want_valid.eq(pick.any()),
            self.want.as_value().eq(one_hot_mux(pick, commands)),
        ]

    def _elaborate_probe(self, m: Module) -> None:
        """Answer the requesters' questions about chunks and merging."""
        tail_run = Signal(run_layout(self._config), name="tail")
        tail_gone = Signal()
        self._is_tail = is_tail = Signal(self._entries)
        m.d.comb += [
            is_tail.eq(Cat(self.count == i + 1 for i in range(self._entries))),
            tail_run.as_value().eq(one_hot_mux(is_tail, [run.as_value() for run in self._runs])),
            tail_gone.eq(self.leaving & (self._pick & is_tail).any()),
        ]
        single = Signal()
        m.d.comb += single.eq(tail_run.beat == tail_run.end)
        # Beats of a run have consecutive numbers: only the run admitted last may grow. When it
        # has left, the youngest one that remains is not that run.
        growing = Signal()
        with m.If(self.push):
            m.d.sync += growing.eq(1)
        with m.Elif(tail_gone):
            m.d.sync += growing.eq(0)
        for q in range(self._config.requesters):
            probe = self.probe[q]
            overlaps = Signal(self._entries, name=f"overlaps{q}")
            m.d.comb += [
                overlaps.eq(
                    Cat(
                        valid
                        & (run.tag == probe.tag)
                        & (run.beat <= probe.end)
                        & (probe.beat <= run.end)
                        for valid, run in zip(self._valid, self._runs, strict=True)
                    )
                ),
                self.probe_hit[q].eq(overlaps.any()),
            ]
            next_beat = probe.beat == (tail_run.end + 1)
            next_but_one = (probe.beat == (tail_run.end + 2)) & (probe.beat == probe.end)
            contiguous = Mux(
                next_but_one, single | tail_run.stride, next_beat & (single | ~tail_run.stride)
            )
            m.d.comb += self.can_merge[q].eq(
                growing
                & (tail_run.requester == q)
                & (tail_run.tag == probe.tag)
                & contiguous
                & ~tail_gone
            )
        self._stride = Signal()
        m.d.comb += self._stride.eq(
            (self.new.beat == (tail_run.end + 2)) & (self.new.beat == self.new.end)
        )

    def _elaborate_update(self, m: Module) -> None:
        """Next state: issue, merge, follow the row command, insert, close the gap."""
        n = self._entries
        remove = Signal(n)
        m.d.comb += remove.eq(Mux(self.leaving, self._pick, 0))
        gone, insert, joins = Signal(n), Signal(), Signal()
        same = {field: Signal(n, name=f"same_{field}") for field in ("pair", "tag")}
        m.d.comb += [
            gone.eq(Cat(remove[: i + 1].any() for i in range(n))),
            insert.eq(self.push & ~self.merge),
            joins.eq(self.push & self.merge),
            *(
                vector.eq(Cat(run[field] == self.new[field] for run in self._runs))
                for field, vector in same.items()
            ),
        ]
        m.d.sync += self.count.eq(self.count + insert - self.leaving)
        nexts: list[Any] = []
        valid: list[Value] = []
        rivals: list[Signal] = []
        order: list[Signal] = []
        for i in range(n):
            run = self._runs[i]
            kept, after = (
                Signal(run_layout(self._config), name=f"{name}{i}") for name in ("kept", "after")
            )
            here = Signal(name=f"insert{i}")
            m.d.comb += [here.eq(insert & (self.count == i)), kept.eq(run)]
            with m.If(self.column_take & self._pick[i]):
                m.d.comb += [
                    kept.beat.eq(run.beat + 1 + run.stride),
                    kept.index.eq(run.index + 1),
                ]
            with m.If(joins & self._is_tail[i]):
                m.d.comb += [kept.end.eq(self.new.end), kept.stride.eq(self._stride)]
            with m.If(here):
                m.d.comb += kept.eq(self.new)
            self._follow_row(m, kept, after)
            nexts.append(after)
            valid.append(self._valid[i] | here)
            for field, masks, old in (("pair", rivals, self._rivals), ("tag", order, self._order)):
                mask = Signal(max(1, i), name=f"same_{field}{i}")
                m.d.comb += mask.eq(Mux(here, same[field][:i], old[i]))
                masks.append(mask)
        for i in range(n):
            last = i + 1 == n
            with m.If(gone[i]):
                m.d.sync += self._valid[i].eq(0 if last else valid[i + 1])
                if not last:
                    m.d.sync += self._runs[i].eq(nexts[i + 1])
            with m.Else():
                m.d.sync += [self._valid[i].eq(valid[i]), self._runs[i].eq(nexts[i])]
            self._close_mask(m, self._rivals, rivals, gone, i)
            if self._write:
                self._close_mask(m, self._order, order, gone, i)

    def _close_mask(
        self, m: Module, kept: list[Signal], masks: list[Signal], gone: Signal, i: int
    ) -> None:
        """Move a mask of older entries along with its entry and drop the bit of the one gone."""
        if not i:
            return
        moved = masks[i + 1] if i + 1 < self._entries else Const(0, i + 1)
        closed = Cat(Mux(gone[j], moved[j + 1], moved[j]) for j in range(i))
        m.d.sync += kept[i].eq(Mux(gone[i], closed, masks[i]))

    def _follow_row(self, m: Module, before: Any, after: Any) -> None:
        """Keep an entry's hit bits true to the row command of this clock."""
        row = self.row
        m.d.comb += after.eq(before)
        for g in range(2):
            here = (row.pair == before.pair) & (row.g == g)
            with m.If((row.kind == RowKind.ACT) & here):
                m.d.comb += after.hit[g].eq(row.tag == before.tag)
            with m.If(((row.kind == RowKind.PRE) & here) | (row.kind == RowKind.PRE_ALL)):
                m.d.comb += after.hit[g].eq(0)

    def _elaborate_status(self, m: Module) -> None:
        """Say what the rest of the controller wants to know."""
        kept = []
        for i, run in enumerate(self._runs):
            claims, here = self._claims[i], run.pair == self.keep[1:]
            kept.append(here & Mux(self.keep[0], claims[1], claims[0]))
        pairs = self._config.geometry.pairs
        m.d.comb += [
            self.kept.eq(Cat(kept).any()),
            self.oldest.eq(self._runs[0]),
            self.oldest_valid.eq(self._valid[0]),
            self.oldest_flags.eq(self._bank[0]),
            self.claimed.eq(
                Cat(
                    Cat(
                        v & (run.pair == p) for v, run in zip(self._valid, self._runs, strict=True)
                    ).any()
                    for p in range(pairs)
                )
            ),
        ]
