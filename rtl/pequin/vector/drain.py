"""Collects drained results of many vectors and hands them out as rows of one vector."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK, TileParams
from pequin.mac.types import result_group
from pequin.vector.rows import fill_request
from pequin.vector.types import VECTORS_BITS


class DrainBuffer(wiring.Component):
    """Transpose results: matrix rows in, 32 elements of one vector out.

    Element (r, v) lies in bank (r + v) % lanes, so that `drain_lanes` vectors of one row are
    written, and `lanes` rows of one vector read, in a clock. Two granules of 32 rows: one fills
    while the other is read.

    *Timing*: a group per clock; `row` follows `vector` and `place` by two clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    results : In(stream of result_group)
        Rows in order, and for each row its groups of vectors in order.
    fill : In(stream of fill_request)
        Rows and vectors of the next command; results are taken only for an announced one.
    granule : Out(1)
        32 rows, or the command's last rows, of all vectors are there.
    done : In(1)
        They are no longer needed.
    vector, place : In
        Vector and element in the granule that a row starts with.
    row : Out(32 * lanes)
    """

    results: Any
    fill: Any
    granule: Any
    done: Any
    vector: Any
    place: Any
    row: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        self._lanes = params.config.lanes
        super().__init__(
            {
                "results": In(stream.Signature(result_group(params))),
                "fill": In(stream.Signature(fill_request())),
                "granule": Out(1),
                "done": In(1),
                "vector": In(VECTORS_BITS),
                "place": In(5),
                "row": Out(32 * self._lanes),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        full, filling, reading = Signal(2), Signal(), Signal()
        row = Signal(5)
        write = Signal()
        self._fill(m, full, filling, row, write)
        m.d.comb += self.granule.eq(full.bit_select(reading, 1))
        with m.If(self.done):
            m.d.sync += [full.bit_select(reading, 1).eq(0), reading.eq(~reading)]
        self._store(m, filling, reading, row, write)
        return m

    def _fill(self, m: Module, full: Signal, filling: Signal, row: Signal, write: Signal) -> None:
        """Count groups and rows of the announced command."""
        lanes = self._params.config.drain_lanes
        active, left = Signal(), Signal(16)
        vectors = Signal(VECTORS_BITS)
        group = self.results.payload
        m.d.comb += [
            self.fill.ready.eq(~active),
            self.results.ready.eq(active & ~full.bit_select(filling, 1)),
            write.eq(self.results.valid & self.results.ready),
        ]
        with m.If(self.fill.valid & self.fill.ready):
            m.d.sync += [
                active.eq(1),
                left.eq(self.fill.payload.length),
                vectors.eq(self.fill.payload.vectors),
                row.eq(0),
            ]
        with m.If(write & (group.vector + lanes >= vectors)):
            m.d.sync += [row.eq(row + 1), left.eq(left - 1)]
            with m.If((row == BLOCK - 1) | (left == 1)):
                m.d.sync += [full.bit_select(filling, 1).eq(1), filling.eq(~filling)]
            with m.If(left == 1):
                m.d.sync += active.eq(0)

    def _store(
        self, m: Module, filling: Signal, reading: Signal, row: Signal, write: Signal
    ) -> None:
        """Write a group to the banks it meets; read one row of each bank."""
        lanes, c = self._lanes, self._params.config
        rows = BLOCK // lanes
        bits = lanes.bit_length() - 1
        vector_bits = (c.columns - 1).bit_length()
        depth = (2 << vector_bits) * rows
        group = self.results.payload
        values = Cat(*(lane.value for lane in group.lanes))
        # Bank k takes vector group.vector + d with (row + vector) % lanes == k.
        turn = (row + group.vector)[:bits] if bits else Const(0, 1)
        wide = Cat(values, Const(0, 32 * (lanes - c.drain_lanes)))
        back = (0 - turn)[:bits] if bits else Const(0, 1)
        spread = _rotate(m, wide, back, 32, "spread")
        enable = _rotate(m, Cat(group.mask, Const(0, lanes - c.drain_lanes)), back, 1, "enable")
        turn_1 = Signal(max(1, bits))
        m.d.sync += turn_1.eq((self.place + self.vector)[:bits] if bits else 0)
        words = []
        for bank in range(lanes):
            ram: Any
            m.submodules[f"bank{bank}"] = ram = memory.Memory(shape=32, depth=depth, init=[])
            into, out = ram.write_port(), ram.read_port()
            offset = (bank - turn)[:bits] if bits else Const(0, 1)
            vector = group.vector + offset
            at = Cat(row[bits:], vector[:vector_bits], filling)
            place = Cat(self.place[bits:], self.vector[:vector_bits], reading)
            m.d.comb += [
                into.addr.eq(at),
                into.data.eq(spread[32 * bank : 32 * bank + 32]),
                into.en.eq(write & enable[bank]),
                out.addr.eq(place),
                out.en.eq(1),
            ]
            words.append(out.data)
        m.d.sync += self.row.eq(_rotate(m, Cat(*words), turn_1, 32, "row"))


def _rotate(m: Module, value: Value, turn: Value, unit: int, name: str) -> Signal:
    """Rotate right by `turn` units: unit k + turn of the input becomes unit k of the output."""
    total = len(value)
    amount = Cat(Const(0, (unit - 1).bit_length()), turn)
    result = Signal(total, name=f"{name}_rotated")
    m.d.comb += result.eq((Cat(value, value) >> amount)[:total] if total > unit else value)
    return result
