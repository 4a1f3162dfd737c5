"""The vector unit."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.fp32.types import MINUS_ZERO, ONE
from pequin.mac.types import activation_write, result_group
from pequin.vector.check import CommandCheck
from pequin.vector.dequantize import Dequantizer
from pequin.vector.drain import DrainBuffer
from pequin.vector.issue import RowIssuer
from pequin.vector.lanes import VectorLanes
from pequin.vector.masks import RowMasks
from pequin.vector.memory import VectorMemory
from pequin.vector.quantize import Quantizer
from pequin.vector.reduce import Reducer
from pequin.vector.rows import issued_row
from pequin.vector.scalars import Scalars
from pequin.vector.types import (
    ACCESS_ELEMENTS,
    ResponseKind,
    Source,
    access_request,
    kv_write,
    quantized_block,
    row_layout,
    scalar_bits,
    vector_command,
    vector_response,
)

RESULTS = 8
"""Arg-max entries that may wait for the response stream."""


class LaneCause(enum.Enum, shape=3):
    """What the lanes did in a clock; every clock has one cause.

    BUSY: a row was issued. BANK: a row waited for a memory bank, or for a rotary pair's end.
    OPERAND: a row waits for the drain or for blocks. OUTPUT: it waits for room behind the
    quantizer or the responses. DEPEND: a command waits for an earlier one's result, or makes its
    first row. IDLE: no command.
    """

    BUSY = 0
    BANK = 1
    OPERAND = 2
    OUTPUT = 3
    DEPEND = 4
    IDLE = 5


class VectorUnit(wiring.Component):
    """fp32 vector operations on packed vectors, chained to reductions and the quantizer.

    Two queues of commands share the lanes, row by row: the memory queue, and the drain queue whose
    operand a comes from the MAC array or from quantized blocks. Commands of a queue run and end in
    order; one that reads what an earlier one of its queue still writes waits for it. Between the
    queues nothing is ordered but by the responses.

    *Timing*: a row of `lanes` elements per clock. A result is written `LATENCY` clocks after its
    row was issued. docs/vector.md has the clocks of every operation.

    Parameters
    ----------
    params
        The tile's parameters.
    peek
        Make the scalar registers readable from outside.

    Members
    -------
    commands : In(stream of vector_command)
        The memory queue.
    drain_commands : In(stream of vector_command)
        The drain queue.
    responses : Out(stream of vector_response)
        One with `ResponseKind.DONE` per command.
    results : In(stream of result_group)
        The MAC array's drain.
    blocks : In(stream of quantized_block)
    activations : Out(stream of activation_write)
    kv : Out(stream of kv_write)
    access : In(stream of access_request)
        Vector memory from outside.
    access_data : Out(stream of 256 bits)
    cause : Out(LaneCause)
    peek_index : In, peeked : Out(32)
        With `peek`: as `Scalars`.
    """

    commands: Any
    drain_commands: Any
    responses: Any
    results: Any
    blocks: Any
    activations: Any
    kv: Any
    access: Any
    access_data: Any
    cause: Any
    peek_index: Any
    peeked: Any

    LATENCY = 2 + VectorLanes.LATENCY

    def __init__(self, params: TileParams, *, peek: bool = False) -> None:
        self._params, self._peek = params, peek
        index = scalar_bits(params)
        command = stream.Signature(vector_command(params))
        super().__init__(
            {
                "commands": In(command),
                "drain_commands": In(command),
                "responses": Out(stream.Signature(vector_response())),
                "results": In(stream.Signature(result_group(params))),
                "blocks": In(stream.Signature(quantized_block())),
                "activations": Out(stream.Signature(activation_write(params))),
                "kv": Out(stream.Signature(kv_write())),
                "access": In(stream.Signature(access_request(params))),
                "access_data": Out(stream.Signature(32 * ACCESS_ELEMENTS)),
                "cause": Out(LaneCause),
                **({"peek_index": In(index), "peeked": Out(32)} if peek else {}),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        p = self._params
        parts = _Parts()
        m.submodules.memory = parts.memory = VectorMemory(p)
        m.submodules.drain = parts.drain = DrainBuffer(p)
        m.submodules.dequantizer = parts.dequantizer = Dequantizer(p)
        m.submodules.lanes = parts.lanes = VectorLanes(p)
        m.submodules.reducer = parts.reducer = Reducer(p)
        m.submodules.masks = parts.masks = RowMasks(p)
        m.submodules.scalars = parts.scalars = Scalars(p, peek=self._peek)
        if self._peek:
            m.d.comb += [
                parts.scalars.peek_index.eq(self.peek_index),
                self.peeked.eq(parts.scalars.peeked),
            ]
        m.submodules.quantizer = parts.quantizer = Quantizer(p)
        parts.issuers = [self._queue(m, queue, parts) for queue in (0, 1)]
        issued, accepted = self._arbitrate(m, parts)
        self._fetch(m, parts, issued, accepted)
        self._results(m, parts)
        self._respond(m, parts, accepted & issued.entry_last)
        self._outside(m, parts)
        return m

    def _queue(self, m: Module, queue: int, parts: Any) -> RowIssuer:
        """Command FIFO, check and issue of one queue."""
        name = ("memory_queue", "drain_queue")[queue]
        source = (self.commands, self.drain_commands)[queue]
        m.submodules[f"{name}_check"] = check = CommandCheck(self._params, queue=queue)
        m.submodules[f"{name}_issue"] = issue = RowIssuer(self._params, queue=queue)
        width = len(source.payload.as_value())
        m.submodules[f"{name}_fifo"] = buffer = fifo.SyncFIFO(width=width, depth=4)
        m.d.comb += [
            buffer.w_data.eq(source.payload.as_value()),
            buffer.w_en.eq(source.valid),
            source.ready.eq(buffer.w_rdy),
            check.commands.payload.as_value().eq(buffer.r_data),
            check.commands.valid.eq(buffer.r_rdy),
            buffer.r_en.eq(check.commands.ready),
            issue.checked.payload.eq(check.checked.payload),
            issue.checked.valid.eq(check.checked.valid),
            check.checked.ready.eq(issue.checked.ready),
        ]
        return issue

    def _arbitrate(self, m: Module, parts: Any) -> tuple[Any, Value]:
        """Choose the row to issue: the drain's first, unless the other queue holds the lanes."""
        memory_rows, drain_rows = (issuer.rows for issuer in parts.issuers)
        locked, owner, gap = Signal(), Signal(), Signal()
        use_drain, offered = Signal(), Signal()
        issued = Signal(issued_row(self._params))
        accepted = Signal()
        memory_may, drain_may = Signal(), Signal()
        m.d.comb += [
            memory_may.eq(memory_rows.valid & self._room(parts, memory_rows.payload)),
            drain_may.eq(drain_rows.valid & parts.granule & self._room(parts, drain_rows.payload)),
            use_drain.eq(Mux(locked, owner, drain_may)),
            offered.eq(Mux(use_drain, drain_may, memory_may) & ~gap),
            issued.eq(
                Mux(use_drain, drain_rows.payload.as_value(), memory_rows.payload.as_value())
            ),
            accepted.eq(offered & parts.memory.ready),
            drain_rows.ready.eq(use_drain & accepted),
            memory_rows.ready.eq(~use_drain & accepted),
            parts.memory.read.eq(offered),
        ]
        m.d.sync += gap.eq(accepted & issued.gap)
        with m.If(accepted):
            m.d.sync += [locked.eq(issued.lock), owner.eq(use_drain)]
        self._explain(m, parts, accepted, offered | gap)
        return issued, accepted

    def _room(self, parts: Any, row: Any) -> Value:
        """Tell whether what the row starts has room behind the lanes."""
        room: Value = parts.quantizer.block_credit | ~row.block_first
        room = room & (parts.quantizer.value_credit | ~row.value_first)
        return room & (parts.result_room | ~row.entry_last)

    def _explain(self, m: Module, parts: Any, accepted: Value, held: Value) -> None:
        full, starts = Signal(), Signal()
        rows = [issuer.rows for issuer in parts.issuers]
        m.d.comb += [
            full.eq(Cat(r.valid & ~self._room(parts, r.payload) for r in rows).any()),
            starts.eq(Cat(i.running | i.checked.valid for i in parts.issuers).any()),
        ]
        m.d.comb += self.cause.eq(LaneCause.IDLE)
        with m.If(accepted):
            m.d.comb += self.cause.eq(LaneCause.BUSY)
        with m.Elif(held):
            m.d.comb += self.cause.eq(LaneCause.BANK)
        with m.Elif(full):
            m.d.comb += self.cause.eq(LaneCause.OUTPUT)
        with m.Elif(rows[1].valid & ~parts.granule):
            m.d.comb += self.cause.eq(LaneCause.OPERAND)
        with m.Elif(starts):
            m.d.comb += self.cause.eq(LaneCause.DEPEND)

    def _fetch(self, m: Module, parts: Any, issued: Any, accepted: Value) -> None:
        """Read operands and scalars; bring them to the lanes two clocks later."""
        mem, drain, scalars, masks = parts.memory, parts.drain, parts.scalars, parts.masks
        row, drained = issued.row, parts.issuers[1].rows.payload.row
        lanes = self._params.config.lanes
        looked_up = Signal(row_layout(self._params))
        m.d.comb += [
            mem.read_a.eq(issued.reads_a),
            mem.read_b.eq(issued.reads_b),
            mem.a.eq(issued.a),
            mem.b.eq(issued.b),
            scalars.s1.eq(issued.s1),
            scalars.s2.eq(issued.s2),
            scalars.s3.eq(issued.s3),
            drain.vector.eq(drained.vector),
            drain.place.eq(drained.element[:5]),
            parts.dequantizer.place.eq(drained.element[:5]),
            masks.update.eq(parts.issuers[0].limits),
            masks.vector.eq(row.vector),
            masks.element.eq(row.element),
            masks.left.eq(issued.left),
            masks.limited.eq(issued.limits),
            looked_up.eq(row),
            looked_up.s1.as_value().eq(Mux(issued.use_s1, scalars.value1, ONE)),
            looked_up.s2.as_value().eq(Mux(issued.use_s2, scalars.value2, MINUS_ZERO)),
            looked_up.minus_s2.eq(row.minus_s2 & issued.use_s2),
            looked_up.s3.as_value().eq(scalars.value3),
        ]
        row_1, row_2 = (
            Signal(row_layout(self._params), name=f"fetched_{i}", reset_less=True) for i in (1, 2)
        )
        valid_1, valid_2 = Signal(), Signal()
        source_1, source_2 = Signal(Source), Signal(Source)
        m.d.sync += [
            row_1.eq(looked_up),
            row_2.eq(row_1),
            valid_1.eq(accepted),
            valid_2.eq(valid_1),
            source_1.eq(issued.source),
            source_2.eq(source_1),
        ]
        a = Signal(32 * lanes, name="operand_a")
        with m.Switch(source_2):
            with m.Case(Source.DRAIN):
                m.d.comb += a.eq(drain.row)
            with m.Case(Source.BLOCKS):
                m.d.comb += a.eq(parts.dequantizer.row)
            with m.Default():
                m.d.comb += a.eq(mem.row_a)
        m.d.comb += [
            parts.lanes.valid.eq(valid_2),
            parts.lanes.row.eq(row_2),
            parts.lanes.row.mask.eq(masks.mask),
            parts.lanes.row.live.eq(masks.live),
            parts.lanes.a.as_value().eq(a),
            parts.lanes.b.as_value().eq(mem.row_b),
            parts.quantizer.reserve_block.eq(accepted & issued.block_first),
            parts.quantizer.reserve_value.eq(accepted & issued.value_first),
        ]

    def _results(self, m: Module, parts: Any) -> None:
        """Write rows, reduce them, quantize them; tell the issuers."""
        lanes, reducer, quantizer, scalars = (
            parts.lanes,
            parts.reducer,
            parts.quantizer,
            parts.scalars,
        )
        result = lanes.result
        m.d.comb += [
            parts.memory.write.eq(lanes.result_valid & result.row.store),
            parts.memory.write_address.eq(result.row.dst),
            parts.memory.write_mask.eq(result.row.mask),
            parts.memory.write_data.eq(result.output.as_value()),
            reducer.valid.eq(lanes.result_valid),
            reducer.result.eq(result),
            quantizer.valid.eq(lanes.result_valid),
            quantizer.result.eq(result),
            scalars.done_valid.eq(reducer.done_valid),
            scalars.done.eq(reducer.done),
        ]
        for queue, issuer in enumerate(parts.issuers):
            own = lanes.result_valid & (result.row.queue == queue)
            for event, valid, entry in (
                (issuer.rows_done, own & result.row.end, result.row.entry),
                (issuer.not_finite, own & result.not_finite, result.row.entry),
                (
                    issuer.overflow,
                    reducer.overflow & (reducer.overflow_queue == queue),
                    reducer.overflow_entry,
                ),
                (
                    issuer.blocks,
                    quantizer.written.valid & (quantizer.written_queue == queue),
                    quantizer.written.entry,
                ),
                (
                    issuer.scalars,
                    scalars.written.valid & (scalars.written_queue == queue),
                    scalars.written.entry,
                ),
                (
                    issuer.not_finite_scalar,
                    scalars.not_finite.valid & (scalars.written_queue == queue),
                    scalars.not_finite.entry,
                ),
            ):
                m.d.comb += [event.valid.eq(valid), event.entry.eq(entry)]
        memory_queue, drain_queue = parts.issuers
        m.d.comb += [
            memory_queue.values.eq(quantizer.value_written),
            memory_queue.bound.eq(reducer.bound),
            scalars.operations.payload.eq(memory_queue.scalar_operations.payload),
            scalars.operations.valid.eq(memory_queue.scalar_operations.valid),
            memory_queue.scalar_operations.ready.eq(scalars.operations.ready),
        ]
        self._drain(m, parts, drain_queue)

    def _drain(self, m: Module, parts: Any, issuer: RowIssuer) -> None:
        """Join the drain queue with its two sources."""
        drain, row = parts.drain, issuer.rows.payload
        from_blocks = row.source == Source.BLOCKS
        done = Signal(name="granule_done")
        m.d.comb += [
            drain.results.payload.eq(self.results.payload),
            drain.results.valid.eq(self.results.valid),
            self.results.ready.eq(drain.results.ready),
            drain.fill.payload.eq(issuer.fill.payload),
            drain.fill.valid.eq(issuer.fill.valid),
            issuer.fill.ready.eq(drain.fill.ready),
            parts.granule.eq(Mux(from_blocks, self.blocks.valid, drain.granule)),
            done.eq(issuer.rows.ready & row.granule_last),
            drain.done.eq(done & ~from_blocks),
            self.blocks.ready.eq(done & from_blocks),
            parts.dequantizer.block.eq(self.blocks.payload),
        ]

    def _respond(self, m: Module, parts: Any, reserved: Value) -> None:
        """Send arg-max entries, then the ends of commands; count the room for entries."""
        layout = vector_response()
        width = len(Signal(layout).as_value())
        m.submodules.entries = entries = fifo.SyncFIFOBuffered(width=width, depth=RESULTS)
        room = Signal(range(RESULTS + 1), init=RESULTS)
        taken = entries.r_rdy & entries.r_en
        m.d.sync += room.eq(room + taken - reserved)
        response, valid = Signal(layout), Signal()
        free = ~valid | self.responses.ready
        quiet = (entries.level == 0) & ~parts.scalars.result_valid
        m.d.comb += [
            parts.result_room.eq(room != 0),
            entries.w_data.eq(parts.scalars.result.as_value()),
            entries.w_en.eq(parts.scalars.result_valid),
            entries.r_en.eq(free),
            self.responses.payload.eq(response),
            self.responses.valid.eq(valid),
        ]
        memory_queue, drain_queue = parts.issuers
        m.d.comb += [
            memory_queue.ended.ready.eq(free & quiet),
            drain_queue.ended.ready.eq(free & quiet & ~memory_queue.ended.valid),
        ]
        with m.If(free):
            m.d.sync += valid.eq(0)
            with m.If(entries.r_rdy):
                m.d.sync += [response.as_value().eq(entries.r_data), valid.eq(1)]
            for queue, issuer in reversed(list(enumerate(parts.issuers))):
                with m.If(quiet & issuer.ended.valid):
                    m.d.sync += [
                        response.as_value().eq(0),
                        response.kind.eq(ResponseKind.DONE),
                        response.queue.eq(queue),
                        response.tag.eq(issuer.ended.payload.tag),
                        response.status.eq(issuer.ended.payload.status),
                        valid.eq(1),
                    ]

    def _outside(self, m: Module, parts: Any) -> None:
        mem, quantizer = parts.memory, parts.quantizer
        m.d.comb += [
            mem.access.payload.eq(self.access.payload),
            mem.access.valid.eq(self.access.valid),
            self.access.ready.eq(mem.access.ready),
            self.access_data.payload.eq(mem.access_data.payload),
            self.access_data.valid.eq(mem.access_data.valid),
            mem.access_data.ready.eq(self.access_data.ready),
            self.activations.payload.eq(quantizer.activations.payload),
            self.activations.valid.eq(quantizer.activations.valid),
            quantizer.activations.ready.eq(self.activations.ready),
            self.kv.payload.eq(quantizer.kv.payload),
            self.kv.valid.eq(quantizer.kv.valid),
            quantizer.kv.ready.eq(self.kv.ready),
        ]


class _Parts:
    """The unit's sub-components."""

    memory: VectorMemory
    drain: DrainBuffer
    dequantizer: Dequantizer
    lanes: VectorLanes
    masks: RowMasks
    reducer: Reducer
    scalars: Scalars
    quantizer: Quantizer
    issuers: list[RowIssuer]

    def __init__(self) -> None:
        self.result_room = Signal(name="result_room")
        self.granule = Signal(name="granule")
