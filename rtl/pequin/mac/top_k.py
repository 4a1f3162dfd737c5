"""Running top-k registers: the largest results of every vector and their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth import Array, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.mac.delay import register
from pequin.mac.types import DrainedGroup, selected_entry


def _entry(params: TileParams) -> data.StructLayout:
    """Return a register whose numeric order is the order of selection."""
    return data.StructLayout(
        {
            "inverted_index": unsigned(params.config.index_bits),
            "key": unsigned(32),
            "valid": unsigned(1),
        }
    )


@dataclass(frozen=True)
class _Candidate:
    """A result on its way into the registers of the vector that `choose` names."""

    new: Any
    choose: Signal
    wanted: Any

    def registered(self, m: Module, name: str) -> _Candidate:
        """Return it one clock later."""
        return _Candidate(
            register(m, self.new, name=f"new_{name}"),
            register(m, self.choose, name=f"choose_{name}"),
            register(m, self.wanted, name=f"wanted_{name}"),
        )


class _Step:
    """What belongs to all lanes of a group, one clock later."""

    def __init__(self, m: Module, insert: Any, clear: Any, stage: int) -> None:
        self.insert = Signal(name=f"insert_{stage}")
        m.d.sync += self.insert.eq(insert)
        self.clear = register(m, clear, name=f"clear_{stage}")


class TopK(wiring.Component):
    """Keep each vector's `top_k` largest results; the lowest index wins a tie.

    With `top_k` = 1 this is arg-max. A NaN result is never selected.

    Timing: one group per clock, also to the same vectors; it is registered, compared, and placed
    in the registers in three clocks. After a group with `emit`, `selected` brings `top_k` entries
    per vector, vector by vector, the best first; `busy` is high meanwhile and no group may be
    given.

    Parameters
    ----------
    params
        Sizes: `columns`, `drain_lanes`, `top_k`, `index_bits`.

    Members
    -------
    insert : In(1)
    group : In(DrainedGroup(params))
    clear : In(1)
        Forget everything before inserting this group.
    emit : In(1)
        Emit after inserting this group.
    last_vector : In(range(columns))
        Vectors to emit, minus 1; with `emit`.
    selected : Out(stream of selected_entry(params))
    busy : Out(1)
    """

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "insert": In(1),
                "group": In(DrainedGroup(params)),
                "clear": In(1),
                "emit": In(1),
                "last_vector": In(range(params.config.columns)),
                "selected": Out(stream.Signature(selected_entry(params))),
                "busy": Out(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        c = self._params.config
        entries = [
            [Signal(_entry(self._params), name=f"entry_{v}_{k}") for k in range(c.top_k)]
            for v in range(c.columns)
        ]
        arrived = _Step(m, self.insert, self.clear, 1)
        given = [self._candidate(m, d) for d in range(c.drain_lanes)]
        placing = _Step(m, arrived.insert, arrived.clear, 2)
        with m.If(placing.insert & placing.clear):
            for vector in entries:
                m.d.sync += [entry.valid.eq(0) for entry in vector]
        for d, candidate in enumerate(given):
            self._insert(m, entries, d, candidate, arrived, placing)
        emit = Signal()
        m.d.sync += emit.eq(self.insert & self.emit)
        self._emit(m, entries, emit)
        return m

    def _candidate(self, m: Module, d: int) -> _Candidate:
        """Register lane `d`: as an entry, where it belongs, and whether it takes part."""
        c = self._params.config
        value = self.group.values[d]
        new = Signal(_entry(self._params), name=f"new_{d}")
        m.d.comb += [
            new.valid.eq(1),
            new.key.eq(value ^ Mux(value[31], 0xFFFFFFFF, 0x80000000)),
            new.inverted_index.eq(~self.group.row),
        ]
        choose = Signal(range(c.columns // c.drain_lanes), name=f"choose_{d}")
        m.d.comb += choose.eq(self.group.vector // c.drain_lanes)
        wanted = self.group.mask[d] & ~self.group.flags[d].nan
        return _Candidate(new, choose, wanted).registered(m, f"{d}_1")

    def _insert(
        self,
        m: Module,
        entries: list[list[Signal]],
        d: int,
        arrived: _Candidate,
        arriving: _Step,
        step: _Step,
    ) -> None:
        """Compare lane `d` with its vector's sorted entries; place it one clock later.

        While a candidate is placed, the next is compared with the entries as they will be.
        """
        c = self._params.config
        vectors = range(d, c.columns, c.drain_lanes)
        placed = arrived.registered(m, f"{d}_2")
        better = [Signal(name=f"better_{d}_{k}") for k in range(c.top_k)]
        same = Signal(name=f"same_{d}")
        above = Signal(name=f"above_{d}")
        m.d.comb += [
            same.eq(step.insert & placed.wanted & (arrived.choose == placed.choose)),
            above.eq(arrived.new.as_value() > placed.new.as_value()),
        ]
        cleared = step.insert & step.clear
        before: list[Signal] = []
        for k in range(c.top_k):
            bank = Array([entries[v][k].as_value() for v in vectors])
            kept = Signal(name=f"above_{d}_{k}")
            m.d.comb += kept.eq(arrived.new.as_value() > bank[arrived.choose])
            moved = above if k == 0 else Mux(cleared, 1, Mux(better[k - 1], before[-1], above))
            now = Mux(same & better[k], moved, kept | cleared)
            m.d.sync += better[k].eq(now | arriving.clear)
            before.append(kept)
        for g, v in enumerate(vectors):
            with m.If(step.insert & placed.wanted & (placed.choose == g)):
                for k in range(c.top_k):
                    self._place(m, entries[v], k, placed.new, better, step.clear)

    def _place(
        self,
        m: Module,
        entries: list[Signal],
        k: int,
        new: Signal,
        better: list[Signal],
        clear: Signal,
    ) -> None:
        """Write entry `k`: kept, the new one, or its predecessor moved down."""
        with m.If(better[k]):
            if k == 0:
                m.d.sync += entries[k].eq(new)
            else:
                moved = Mux(better[k - 1], entries[k - 1].as_value(), new.as_value())
                m.d.sync += entries[k].as_value().eq(moved)
                with m.If(clear):
                    m.d.sync += entries[k].valid.eq(0)

    def _emit(self, m: Module, entries: list[list[Signal]], emit: Signal) -> None:
        """Walk through the vectors and ranks after a group with `emit`."""
        c = self._params.config
        # With the last candidate in its place.
        emitting = Signal()
        m.d.sync += emitting.eq(emit)
        pending = Signal()
        vector, last_vector = Signal(range(c.columns)), Signal(range(c.columns), reset_less=True)
        rank = Signal(range(c.top_k))
        out = self.selected.p
        entry = Signal(_entry(self._params), name="chosen")
        ranks = [
            Array([entries[v][k].as_value() for v in range(c.columns)]) for k in range(c.top_k)
        ]
        m.d.comb += [
            entry.as_value().eq(Array([bank[vector] for bank in ranks])[rank]),
            self.busy.eq(emit | emitting | pending | self.selected.valid),
        ]
        with m.If(self.insert & self.emit):
            m.d.sync += last_vector.eq(self.last_vector)
        with m.If(emitting):
            m.d.sync += [pending.eq(1), vector.eq(0), rank.eq(0)]
        with m.If(self.selected.ready | ~self.selected.valid):
            m.d.sync += self.selected.valid.eq(pending)
            with m.If(pending):
                sign = ~entry.key[31]
                last = (vector == last_vector) & (rank == c.top_k - 1)
                m.d.sync += [
                    out.vector.eq(vector),
                    out.rank.eq(rank),
                    out.valid.eq(entry.valid),
                    out.value.eq(entry.key ^ Mux(sign, 0xFFFFFFFF, 0x80000000)),
                    out.index.eq(~entry.inverted_index),
                    out.last.eq(last),
                    pending.eq(~last),
                    rank.eq(rank + 1),
                ]
                with m.If(rank == c.top_k - 1):
                    m.d.sync += [rank.eq(0), vector.eq(vector + 1)]
