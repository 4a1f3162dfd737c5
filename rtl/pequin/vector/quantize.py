"""From rows of fp32 to MXINT8 blocks: the largest exponent is the scale."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK, TileParams
from pequin.fp32 import Float32
from pequin.fp32.types import as_float, named, registered
from pequin.mac.types import activation_write
from pequin.vector.lanes import lane_result
from pequin.vector.scoreboard import part_event
from pequin.vector.types import KV_ADDRESS_BITS, VALUE_ELEMENTS, Quantize, kv_write

SHORT_BITS = 18
"""What rounding to 7 bits needs of a value: sign, exponent, 7 bits, guard and sticky."""

_VALUE_BANKS = 2


def shorten(value: Float32) -> Value:
    """Reduce an fp32 value to `SHORT_BITS`, combinational."""
    significand = value.significand
    sticky = significand[:16].any()
    return Cat(sticky, significand[16:], value.exponent, value.sign)


def aligned_element(m: Module, name: str, value: Value, largest: Value) -> Value:
    """Return what `to_element` needs of a shortened value, combinational: 10 bits.

    `largest` is the block's largest exponent field; 0xFF gives an element of 0.
    """
    short = named(m, f"{name}_short", value)
    exponent, sign = short[9:17], short[17]
    distance = named(m, f"{name}_distance", (largest - exponent)[:8])
    shift = Mux(distance > 9, 9, distance)[:4]
    moved = named(m, f"{name}_moved", (Cat(Const(0, 9), short[:9]) >> shift)[:18])
    whole, guard, below = moved[11:], moved[10], moved[:10].any()
    up = guard & (below | whole[0])
    none = (largest == 0xFF) | (exponent == 0)
    return named(m, f"{name}_aligned", Cat(whole, up, sign, none))


def to_element(m: Module, name: str, aligned: Value) -> Value:
    """Return the MXINT8 element: nearest even, clamped to +-127, combinational."""
    whole, sign, none = aligned[:7], aligned[8], aligned[9]
    up = named(m, f"{name}_up", aligned[7] & ~whole.all())
    # -(whole + up) is ~whole + (1 - up).
    signed = (Cat(whole, Const(0, 1)) ^ sign.replicate(8)) + (sign ^ up)
    return named(m, f"{name}_signed", Mux(none, 0, signed[:8]))


def _largest(m: Module, exponents: list[Value]) -> Value:
    """Return the largest of a power of two of values, as a tree."""
    level = exponents
    while len(level) > 1:
        level = [
            named(m, f"largest_{len(level) // 2}_{i}", Mux(a > b, a, b))
            for i, (a, b) in enumerate(zip(level[::2], level[1::2], strict=True))
        ]
    return level[0]


def block_place() -> data.StructLayout:
    """Return where a block goes and which command it belongs to."""
    return data.StructLayout(
        {
            "kind": Quantize,
            "paired": 1,
            "column": 8,
            "address": KV_ADDRESS_BITS,
            "lane": 5,
            "length": 9,
            "queue": 1,
            "entry": 2,
            "last": 1,
            "end": 1,
        }
    )


class Quantizer(wiring.Component):
    """Collect rows to blocks, quantize them, and send them to their buffers.

    *Timing*: a row per clock. A block of K or of activations is offered 6 clocks after its last
    row at the earliest; a vector of V leaves one element per clock, starting 6 clocks after its
    last row. Rows cannot be held back: the issue reserves room (`block_credit`, `value_credit`).

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    valid, result : In
        A computed row.
    reserve_block, reserve_value : In(1)
        A row that starts a block, or a vector of V, has been issued.
    block_credit, value_credit : Out(1)
        A further one may be issued.
    activations : Out(stream of activation_write)
    kv : Out(stream of kv_write)
    written : Out(part_event), written_queue : Out(1)
        A command's last block has been accepted.
    value_written : Out(part_event)
        A command's last element of V has been accepted; of queue 0.
    """

    valid: Any
    result: Any
    reserve_block: Any
    reserve_value: Any
    block_credit: Any
    value_credit: Any
    activations: Any
    kv: Any
    written: Any
    written_queue: Any
    value_written: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        self._lanes = params.config.lanes
        super().__init__(
            {
                "valid": In(1),
                "result": In(lane_result(params)),
                "reserve_block": In(1),
                "reserve_value": In(1),
                "block_credit": Out(1),
                "value_credit": Out(1),
                "activations": Out(stream.Signature(activation_write(params))),
                "kv": Out(stream.Signature(kv_write())),
                "written": Out(part_event()),
                "written_queue": Out(1),
                "value_written": Out(part_event()),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def block_depth(self) -> int:
        """Blocks that may be between issue and acceptance."""
        return max(4, 2 * self._lanes)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        row = self.result.row
        shorts = [
            named(m, f"short_{lane}", shorten(as_float(self.result.output[lane])))
            for lane in range(self._lanes)
        ]
        largest = _largest(m, [short[9:17] for short in shorts])
        place: Any = Signal(block_place())
        m.d.comb += [
            place[name].eq(row[name])
            for name in ("paired", "column", "address", "lane", "length", "queue", "entry", "end")
        ]
        m.d.comb += [place.kind.eq(row.quantize), place.last.eq(row.last)]
        place_1 = Signal(block_place())
        m.d.sync += place_1.eq(place)
        words = registered(m, "short_row", Cat(*shorts))
        largest = registered(m, "largest_row", largest)
        last = registered(m, "row_is_last", row.block_last)
        is_value = row.quantize == Quantize.VALUES
        is_block = (row.quantize != Quantize.NONE) & ~is_value
        block_valid, value_valid = Signal(), Signal()
        m.d.sync += [
            block_valid.eq(self.valid & is_block),
            value_valid.eq(self.valid & is_value),
        ]
        blocks = self._blocks(m, block_valid, words, largest, last, place_1)
        values = self._values(m, value_valid, words, largest, last, place_1)
        self._send(m, blocks, values)
        return m

    def _blocks(
        self, m: Module, valid: Value, words: Value, largest: Value, last: Value, place: Any
    ) -> Any:
        """Collect 32 elements, then convert them a row per clock."""
        lanes = self._lanes
        rows = BLOCK // lanes
        width = lanes * SHORT_BITS
        collected = Signal(max(1, (rows - 1) * width), reset_less=True)
        fresh, so_far = Signal(init=1), Signal(8)
        whole = Cat(collected, words) if rows > 1 else words
        most = named(m, "block_largest", Mux(fresh | (largest > so_far), largest, so_far))
        work, work_largest = Signal(rows * width, reset_less=True), Signal(8)
        work_place, left = Signal(block_place()), Signal(range(rows + 1))
        with m.If(left != 0):
            m.d.sync += [left.eq(left - 1), work.eq(work >> width)]
        with m.If(valid):
            if rows > 1:
                m.d.sync += collected.eq(whole[width:])
            m.d.sync += [so_far.eq(most), fresh.eq(last)]
            with m.If(last):
                m.d.sync += [
                    work.eq(whole),
                    work_largest.eq(most),
                    work_place.eq(place),
                    left.eq(rows),
                ]
        elements = []
        for lane in range(lanes):
            name, short = f"element{lane}", work.word_select(lane, SHORT_BITS)
            aligned = aligned_element(m, name, short, work_largest)
            elements.append(to_element(m, name, registered(m, f"{name}_2", aligned)))
        item = Signal(
            data.StructLayout({"place": block_place(), "scale": 8, "elements": 8 * BLOCK})
        )
        push, running = Signal(), registered(m, "running", left != 0)
        m.d.sync += push.eq(registered(m, "ends", left == 1))
        scale, place = registered(m, "item_scale", work_largest), Signal(block_place())
        m.d.sync += place.eq(work_place)
        with m.If(running):
            m.d.sync += [
                item.elements.eq(Cat(item.elements, *elements)[8 * lanes :]),
                item.scale.eq(scale),
                item.place.eq(place),
            ]
        return self._queue(m, item, push)

    def _queue(self, m: Module, item: Any, push: Signal) -> Any:
        """Buffer blocks; count the room that is not promised to rows in flight."""
        m.submodules.blocks = buffer = fifo.SyncFIFOBuffered(
            width=len(item.as_value()), depth=self.block_depth
        )
        room = Signal(range(self.block_depth + 1), init=self.block_depth)
        taken = buffer.r_rdy & buffer.r_en
        m.d.sync += room.eq(room + taken - self.reserve_block)
        m.d.comb += [
            buffer.w_data.eq(item.as_value()),
            buffer.w_en.eq(push),
            self.block_credit.eq(room != 0),
        ]
        return buffer

    def _values(
        self, m: Module, valid: Value, words: Value, largest: Value, last: Value, place: Any
    ) -> Any:
        """Collect vectors in two banks; read one element per clock."""
        lanes = self._lanes
        rows = VALUE_ELEMENTS // lanes
        ram: Any
        m.submodules.values = ram = memory.Memory(
            shape=lanes * SHORT_BITS, depth=_VALUE_BANKS * rows, init=[]
        )
        write, read = ram.write_port(), ram.read_port()
        at, bank = Signal(range(rows)), Signal()
        fresh, so_far = Signal(init=1), Signal(8)
        most = named(m, "value_largest", Mux(fresh | (largest > so_far), largest, so_far))
        full = Signal(_VALUE_BANKS)
        scales = [Signal(8, name=f"value_scale_{i}") for i in range(_VALUE_BANKS)]
        places = [Signal(block_place(), name=f"value_place_{i}") for i in range(_VALUE_BANKS)]
        m.d.comb += [write.addr.eq(Cat(at, bank)), write.data.eq(words), write.en.eq(valid)]
        with m.If(valid):
            m.d.sync += [so_far.eq(most), fresh.eq(last), at.eq(Mux(last, 0, at + 1))]
            with m.If(last):
                m.d.sync += bank.eq(~bank)
                for i in range(_VALUE_BANKS):
                    with m.If(bank == i):
                        m.d.sync += [full[i].eq(1), scales[i].eq(most), places[i].eq(place)]
        return self._emit_values(m, read, full, scales, places)

    def _emit_values(
        self, m: Module, read: Any, full: Signal, scales: list[Signal], places: list[Any]
    ) -> Any:
        lanes = self._lanes
        bits = lanes.bit_length() - 1
        v, stages = _Values(), [_Values(stage) for stage in range(1, 4)]
        reading, element = Signal(), Signal(9)
        here = data.View(block_place(), Mux(reading, places[1].as_value(), places[0].as_value()))
        scale = Mux(reading, scales[1], scales[0])
        step = ~v.valid | v.accepted
        last = element + 1 == here.length
        m.d.comb += [
            read.addr.eq(Cat(element[bits:8], reading)),
            read.en.eq(step),
        ]
        running = full.bit_select(reading, 1)
        lane_1 = Signal(max(1, bits))
        first = stages[0]
        short = read.data.word_select(lane_1, SHORT_BITS) if bits else read.data
        short_2 = Signal(SHORT_BITS, name="value_short_2")
        aligned_3 = Signal(10, name="value_aligned_3")
        aligned = aligned_element(m, "value", short_2, stages[1].scale)
        with m.If(step):
            m.d.sync += [
                first.valid.eq(running),
                first.place.eq(here),
                first.place.address.eq(here.address + element),
                first.place.last.eq(last),
                first.place.end.eq(here.end & last),
                first.scale.eq(scale),
                lane_1.eq(element[:bits] if bits else 0),
            ]
            m.d.sync += [
                short_2.eq(short),
                aligned_3.eq(aligned),
                v.element.eq(to_element(m, "value", aligned_3)),
            ]
            for before, after in zip(stages, [*stages[1:], v], strict=True):
                m.d.sync += after.follows(before)
            with m.If(running):
                m.d.sync += element.eq(Mux(last, 0, element + 1))
                with m.If(last):
                    m.d.sync += [reading.eq(~reading), full.bit_select(reading, 1).eq(0)]
        room = Signal(range(_VALUE_BANKS + 1), init=_VALUE_BANKS)
        freed = step & running & last
        m.d.sync += room.eq(room + freed - self.reserve_value)
        m.d.comb += self.value_credit.eq(room != 0)
        return v

    def _send(self, m: Module, blocks: Any, values: Any) -> None:
        """Elements of V go before blocks."""
        layout = data.StructLayout({"place": block_place(), "scale": 8, "elements": 8 * BLOCK})
        head = data.View(layout, blocks.r_data)
        place = head.place
        to_acts = place.kind == Quantize.ACTIVATIONS
        write = self.activations.payload
        kv = self.kv.payload
        paired = place.paired
        m.d.comb += [
            write.column.eq(Mux(paired, Cat(place.address[0], place.column), place.column)),
            write.address.eq(Mux(paired, place.address >> 1, place.address)),
            write.elements.eq(head.elements),
            write.scale.eq(head.scale),
            self.activations.valid.eq(blocks.r_rdy & to_acts),
            self.kv.valid.eq(values.valid | (blocks.r_rdy & ~to_acts)),
            values.accepted.eq(values.valid & self.kv.ready),
            blocks.r_en.eq(Mux(to_acts, self.activations.ready, self.kv.ready & ~values.valid)),
            self.written.valid.eq(blocks.r_rdy & blocks.r_en & place.end),
            self.written.entry.eq(place.entry),
            self.written_queue.eq(place.queue),
            self.value_written.valid.eq(values.accepted & values.place.end),
            self.value_written.entry.eq(values.place.entry),
            kv.values.eq(values.valid),
            kv.address.eq(Mux(values.valid, values.place.address, place.address)),
            kv.lane.eq(Mux(values.valid, values.place.lane, place.lane)),
            kv.elements.eq(Mux(values.valid, values.element.replicate(BLOCK), head.elements)),
            kv.scale.eq(Mux(values.valid, values.scale, head.scale)),
            kv.last.eq(Mux(values.valid, values.place.last, place.last)),
        ]


class _Values:
    """The element of V that is offered."""

    def __init__(self, stage: int = 0) -> None:
        suffix = f"_{stage}" if stage else ""
        self.valid = Signal(name=f"value_valid{suffix}")
        self.accepted = Signal(name=f"value_accepted{suffix}")
        self.place = Signal(block_place(), name=f"value_place{suffix}")
        self.scale = Signal(8, name=f"value_scale{suffix}")
        self.element = Signal(8, name=f"value_element{suffix}")

    def follows(self, before: _Values) -> list[Any]:
        """Return the assignments of one more stage."""
        return [
            self.valid.eq(before.valid),
            self.place.eq(before.place),
            self.scale.eq(before.scale),
        ]
