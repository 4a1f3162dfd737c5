"""Order-free sums and maxima over the rows of a vector."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.fp32 import FloatToFixed
from pequin.fp32.compare import order_key
from pequin.fp32.types import as_float, named, registered
from pequin.vector.lanes import lane_result
from pequin.vector.types import LENGTH_BITS, Reduce, row_layout

SUM_LSB = -32
"""Exponent of a sum's least significant bit."""

TERM_BITS = 64
"""Bits of a term."""

SUM_BITS = 80
"""Bits of a sum: 65,536 terms cannot overflow it."""

_NO_INDEX = (1 << LENGTH_BITS) - 1


def reduced(params: TileParams) -> data.StructLayout:
    """Return a finished reduction.

    row
        Control of the vector's last row.
    total
        Sum in units of 2**SUM_LSB.
    key
        Maximum as an order key; 0 when no element took part.
    index
        Its place in the vector, all ones when there is none.
    """
    return data.StructLayout(
        {
            "row": row_layout(params),
            "total": signed(SUM_BITS),
            "key": 32,
            "index": LENGTH_BITS,
        }
    )


class Reducer(wiring.Component):
    """Reduce the live lanes of each row and join them with the vector's earlier rows.

    Sums are exact on their grid, so that neither the lanes nor the order of rows matters.

    *Timing*: a row per clock; `done` follows a vector's last row by `latency` clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    valid : In(1)
    result : In(lane_result)
    done_valid : Out(1)
    done : Out(reduced)
    overflow : Out(1)
        A term of the row of `overflow_queue`, `overflow_entry` did not fit; it counted as zero.
    bound : Out(1)
        A pass of an arg-max of queue 0 has ended, and the next one is bounded by its result.
    """

    valid: Any
    result: Any
    done_valid: Any
    done: Any
    overflow: Any
    overflow_queue: Any
    overflow_entry: Any
    bound: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        self._lanes = params.config.lanes
        self._levels = self._lanes.bit_length() - 1
        super().__init__(
            {
                "valid": In(1),
                "result": In(lane_result(params)),
                "done_valid": Out(1),
                "done": Out(reduced(params)),
                "overflow": Out(1),
                "overflow_queue": Out(1),
                "overflow_entry": Out(2),
                "bound": Out(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def latency(self) -> int:
        """Clocks from a row to `done`."""
        return FloatToFixed.LATENCY + (self._levels + 1) // 2 + 1

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        bound_key, bound_index = Signal(32), Signal(LENGTH_BITS)
        total, overflow = self._terms(m)
        best = self._best(m, bound_key, bound_index)
        valid, row, before_row = self.valid, self.result.row, self.result.row
        for stage in range(1, self.latency):
            before, before_row = valid, row
            valid = Signal(name=f"valid_{stage}")
            row = Signal(row_layout(self._params), name=f"row_{stage}", reset_less=True)
            m.d.sync += [valid.eq(before), row.eq(before_row)]
            if stage == FloatToFixed.LATENCY:
                m.d.comb += [
                    self.overflow.eq(valid & (row.reduce == Reduce.SUM) & overflow),
                    self.overflow_queue.eq(row.queue),
                    self.overflow_entry.eq(row.entry),
                ]
        slot = registered(m, "slot", Mux(before_row.queue, before_row.vector + 1, 0))
        start = Mux(before_row.start, order_key(before_row.s3), 0)
        start = registered(m, "start_key", start)
        self._accumulate(m, valid, row, slot, start, total, best, bound_key, bound_index)
        return m

    def _terms(self, m: Module) -> tuple[Value, Value]:
        """Convert the live lanes and add them in a tree, a register after every two levels."""
        row = self.result.row
        terms, overflow = [], Signal(self._lanes)
        for lane in range(self._lanes):
            m.submodules[f"term{lane}"] = unit = FloatToFixed(width=TERM_BITS, lsb_exponent=SUM_LSB)
            value = Mux(row.live[lane], self.result.reduce[lane], 0)
            m.d.comb += [unit.a.as_value().eq(value), overflow[lane].eq(unit.overflow)]
            terms.append(unit.result)
        return self._tree(m, "sum", terms, lambda a, b: a + b), overflow.any()

    def _tree(self, m: Module, name: str, items: list[Any], join: Any) -> Value:
        level = 0
        while len(items) > 1:
            level += 1
            keep = registered if level % 2 == 0 or len(items) == 2 else named
            items = [
                keep(m, f"{name}_{level}_{i}", join(a, b))
                for i, (a, b) in enumerate(zip(items[::2], items[1::2], strict=True))
            ]
        return items[0]

    def _best(self, m: Module, bound_key: Signal, bound_index: Signal) -> Value:
        """Return key and lane of the row's best element, in step with the sum."""
        row = self.result.row
        arg = registered(m, "arg", row.reduce == Reduce.ARG_MAX)
        bounded = registered(m, "bounded", row.bounded)
        live = registered(m, "live_1", row.live)
        element = registered(m, "element_1", row.element)
        entries = []
        for lane in range(self._lanes):
            key = registered(m, f"key_{lane}", order_key(as_float(self.result.reduce[lane])))
            # The two zeros are equal for an arg-max.
            minus_zero = arg & (key == 0x7FFFFFFF)
            key = named(m, f"ranked_{lane}", Mux(minus_zero, 0x80000000, key))
            after = (key < bound_key) | (
                (key == bound_key) & ((element + lane)[:LENGTH_BITS] > bound_index)
            )
            use = registered(m, f"use_{lane}", live[lane] & (~bounded | after))
            key = registered(m, f"key2_{lane}", key)
            key = registered(m, f"key3_{lane}", Mux(use, key, 0))
            entries.append(Cat(Const(lane, 5), key))
        return self._tree(m, "best", entries, lambda a, b: Mux(b[5:] > a[5:], b, a))

    def _accumulate(
        self,
        m: Module,
        valid: Value,
        row: Any,
        slot: Value,
        start: Value,
        total: Value,
        best: Value,
        bound_key: Signal,
        bound_index: Signal,
    ) -> None:
        """Join the row with what the vector's earlier rows left."""
        layout = data.StructLayout({"total": signed(SUM_BITS), "key": 32, "index": LENGTH_BITS})
        columns = self._params.config.columns
        partial: Any
        m.submodules.partial = partial = memory.Memory(shape=layout, depth=columns + 1, init=[])
        read, write = partial.read_port(domain="comb"), partial.write_port()
        slot = slot[: len(read.addr)]
        before, joined = Signal(layout), Signal(layout)
        m.d.comb += [
            read.addr.eq(slot),
            before.eq(read.data),
            write.addr.eq(slot),
            write.data.eq(joined),
            write.en.eq(valid & (row.reduce != Reduce.NONE)),
        ]
        with m.If(row.first):
            m.d.comb += [
                before.total.eq(0),
                before.key.eq(start),
                before.index.eq(_NO_INDEX),
            ]
        key, index = best[5:], named(m, "index", (row.element + best[:5])[:LENGTH_BITS])
        tie = (key == before.key) & (index < before.index) & (key != 0)
        better = named(m, "better", (key > before.key) | tie)
        m.d.comb += [
            joined.total.eq(before.total + total),
            joined.key.eq(Mux(better, key, before.key)),
            joined.index.eq(Mux(better, index, before.index)),
        ]
        m.d.sync += [
            self.done_valid.eq(write.en & row.last),
            self.done.row.eq(row),
            self.done.total.eq(joined.total),
            self.done.key.eq(joined.key),
            self.done.index.eq(joined.index),
        ]
        ends_pass = write.en & row.last & (row.reduce == Reduce.ARG_MAX) & ~row.queue
        m.d.comb += self.bound.eq(ends_pass & row.more)
        with m.If(ends_pass):
            m.d.sync += [bound_key.eq(joined.key), bound_index.eq(joined.index)]


assert Shape.cast(Reduce).width == 2
