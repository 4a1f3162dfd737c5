"""Turns checked commands into rows of `lanes` elements."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK, TileParams
from pequin.fp32.special import Function
from pequin.streams import connect_streams
from pequin.vector.buffer import StageBuffer
from pequin.vector.check import checked_command
from pequin.vector.rows import (
    COMMAND_FIELDS,
    fill_request,
    issued_row,
    limits_write,
    scalar_operation,
)
from pequin.vector.scoreboard import ENTRIES, Scoreboard, part_event
from pequin.vector.types import (
    LENGTH_BITS,
    TAG_BITS,
    VECTORS_BITS,
    Op,
    Quantize,
    Reduce,
    Source,
    Status,
    address_bits,
)


class RowIssuer(wiring.Component):
    """Run the commands of one queue, in order.

    Rows of consecutive commands follow each other without a gap unless one reads what the other
    has yet to write.

    Rows pass a buffer of two, so that nothing behind it reaches back into the counters. Their
    user holds them back until what they need is there: `granule_last`, `block_first`,
    `value_first` and `entry_last` tell.

    *Timing*: a row per clock, two clocks after its command started at the earliest.

    Parameters
    ----------
    params
        The tile's parameters.
    queue
        0: the memory queue; 1: the drain queue.

    Members
    -------
    checked : In(stream of checked_command)
    rows : Out(stream of issued_row)
    scalar_operations : Out(stream of scalar_operation)
    limits : Out(limits_write)
    fill : Out(stream of fill_request)
        Announces a command whose operand is the drain.
    running : Out(1)
        A command with rows runs.
    bound : In(1)
        The entry that bounds the next pass of an arg-max is known.
    ended : Out(stream of tag and status)
    rows_done, blocks, values, scalars, not_finite, not_finite_scalar, overflow : In(part_event)
        Progress of the queue's commands.
    """

    checked: Any
    rows: Any
    scalar_operations: Any
    limits: Any
    fill: Any
    running: Any
    bound: Any
    ended: Any

    def __init__(self, params: TileParams, *, queue: int) -> None:
        self._params = params
        self._queue = queue
        events = (
            "rows_done",
            "blocks",
            "values",
            "scalars",
            "not_finite",
            "not_finite_scalar",
            "overflow",
        )
        done = data.StructLayout({"tag": TAG_BITS, "status": Status})
        super().__init__(
            {
                "checked": In(stream.Signature(checked_command(params))),
                "rows": Out(stream.Signature(issued_row(params))),
                "scalar_operations": Out(stream.Signature(scalar_operation(params))),
                "limits": Out(limits_write()),
                "fill": Out(stream.Signature(fill_request())),
                "running": Out(1),
                "bound": In(1),
                "ended": Out(stream.Signature(done)),
                **{name: In(part_event()) for name in events},
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        run = Signal(checked_command(self._params))
        active = Signal()
        finished = Signal()
        entry = Signal(range(ENTRIES))
        m.submodules.buffer = buffer = StageBuffer(issued_row(self._params))
        connect_streams(m, buffer.output, self.rows)
        self._start(m, run, active, finished, entry)
        place = self._place(m, run)
        self._rows(m, run, active, place, entry, buffer.input)
        self._advance(m, run, active, place, finished, buffer.input)
        self._scalars(m, run, active, place, entry)
        return m

    def _start(
        self, m: Module, run: Signal, active: Signal, finished: Signal, entry: Signal
    ) -> None:
        """Take the next command when nothing holds it; the last one may be ending."""
        m.submodules.scoreboard = board = Scoreboard(self._params)
        checked = self.checked.payload
        good = ~checked.status.as_value().any()
        announced = Signal()
        drains = good & checked.rows & (checked.command.source == Source.DRAIN)
        m.d.comb += [
            self.fill.valid.eq(self.checked.valid & drains & ~announced),
            self.fill.payload.vectors.eq(checked.command.vectors),
            self.fill.payload.length.eq(checked.command.length),
            board.command.eq(checked),
            board.rows.eq(self.rows_done),
            board.blocks.eq(self.blocks),
            board.values.eq(self.values),
            board.scalars.eq(self.scalars),
            board.not_finite.eq(self.not_finite),
            board.not_finite_scalar.eq(self.not_finite_scalar),
            board.overflow.eq(self.overflow),
            self.ended.payload.eq(board.ended.payload),
            self.ended.valid.eq(board.ended.valid),
            board.ended.ready.eq(self.ended.ready),
            self.running.eq(active & run.rows),
        ]
        with m.If(self.fill.valid & self.fill.ready):
            m.d.sync += announced.eq(1)
        # Rows look scalars and limits up behind the buffer, and must not see later ones.
        behind = ~checked.rows & (self.rows.valid | self.running)
        clear = (~active | finished) & board.free & ~board.hazard & (announced | ~drains) & ~behind
        m.d.comb += [self.checked.ready.eq(clear), board.start.eq(clear & self.checked.valid)]
        with m.If(finished):
            m.d.sync += active.eq(0)
        with m.If(board.start):
            m.d.sync += [
                run.eq(checked),
                active.eq(good),
                entry.eq(board.entry),
                announced.eq(0),
            ]

    def _place(self, m: Module, run: Signal) -> Any:
        """Declare where the issue stands in the command, and what the row there is."""
        address = address_bits(self._params)
        place = _Place(address)
        low_bits = self._params.config.lanes.bit_length() - 1
        m.d.comb += [
            place.apart.eq(run.pair.any()),
            place.last_vector.eq(place.vector == run.last_vector),
            place.row_end.eq((place.element[:5] | ((1 << low_bits) - 1)).all()),
            place.vector_end.eq(place.element == run.last_row),
            place.last_pass.eq(place.rank == run.command.rank),
            place.end.eq(place.vector_end & place.last_vector & place.last_pass),
        ]
        return place

    def _rows(
        self, m: Module, run: Signal, active: Signal, place: Any, entry: Signal, rows: Any
    ) -> None:
        """Describe the row at this place."""
        command, issued = run.command, rows.payload
        row = issued.row
        blocks = (command.quantize != Quantize.NONE) & (command.quantize != Quantize.VALUES)
        values = command.quantize == Quantize.VALUES
        boundary = place.row_end if self._queue else place.vector_end
        block_first, vector_first = Signal(name="block_first"), Signal(name="vector_first")
        for name in COMMAND_FIELDS:
            m.d.comb += row[name].eq(command[name])
        self._scalar_indices(m, issued, command, place.vector)
        m.d.comb += [
            row.queue.eq(self._queue),
            row.entry.eq(entry),
            row.dst.eq(place.dst + place.element),
            row.apart.eq(place.apart),
            row.second.eq(place.second),
            row.bounded.eq(place.rank != 0),
            row.more.eq(~place.last_pass),
            row.rank.eq(place.rank),
            row.first.eq(vector_first),
            row.last.eq(place.vector_end),
            row.vector.eq(place.vector),
            row.element.eq(place.element),
            row.block_last.eq(Mux(values, place.vector_end, place.row_end)),
            row.column.eq(place.column),
            row.address.eq(place.block + Mux(values, 0, place.element >> 5)),
            row.length.eq(command.length),
            row.end.eq(place.end),
            issued.a.eq(place.a + place.element),
            # A rotary pair's second row reads its table where it reads its elements.
            issued.b.eq(place.b + place.element),
            issued.reads_a.eq(run.reads_a),
            issued.reads_b.eq(run.reads_b),
            issued.source.eq(command.source),
            issued.left.eq(Mux(place.element < command.length, command.length - place.element, 0)),
            issued.limits.eq(command.limits),
            block_first.eq(blocks & (place.element[:5] == 0)),
            issued.block_first.eq(block_first),
            vector_first.eq(place.element == 0),
            issued.value_first.eq(values & vector_first),
            issued.entry_last.eq((command.reduce == Reduce.ARG_MAX) & place.vector_end),
            issued.granule_last.eq(
                place.row_end & (place.last_vector | (command.source != Source.DRAIN))
            ),
            issued.lock.eq(Mux(place.apart, ~boundary, blocks & ~place.row_end)),
            issued.gap.eq(place.apart & boundary),
            rows.valid.eq(active & run.rows & ~place.waiting),
        ]

    def _scalar_indices(self, m: Module, issued: Any, command: Any, vector: Signal) -> None:
        row = issued.row
        targets = (issued.s1, issued.s2, issued.s3, row.multiplier, row.addend)
        names = ("s1", "s2", "s3", "multiplier", "addend")
        for bit, (target, name) in enumerate(zip(targets, names, strict=True)):
            step = Mux(command.per_vector[bit], vector, 0)
            m.d.comb += target.eq(command[name] + step)
        m.d.comb += [
            issued.use_s1.eq(command.use_s1),
            issued.use_s2.eq(command.use_s2),
            row.out.eq(command.out + vector),
        ]

    def _advance(
        self, m: Module, run: Signal, active: Signal, place: Any, finished: Signal, rows: Any
    ) -> None:
        """Step to the next row when this one is taken."""
        command = run.command
        taken = Signal(name="taken")
        m.d.comb += taken.eq(rows.valid & rows.ready)
        with m.If(self.bound):
            m.d.sync += place.waiting.eq(0)
        scalar_taken = self.scalar_operations.valid & self.scalar_operations.ready
        scalar_step = Mux(command.op == Op.SET_LIMITS, active & ~run.rows, scalar_taken)
        if self._queue:
            self._advance_drain(m, run, place, taken)
        else:
            with m.If(taken):
                with m.If(~place.vector_end):
                    self._advance_in_vector(m, run, place)
                with m.Else():
                    m.d.sync += [place.element.eq(0), place.inner.eq(0), place.second.eq(0)]
                    with m.If(place.last_pass):
                        self._next_vector(m, run, place)
                    with m.Else():
                        m.d.sync += [place.rank.eq(place.rank + 1), place.waiting.eq(1)]
        with m.If(scalar_step):
            self._next_vector(m, run, place)
        m.d.comb += finished.eq((taken & place.end) | (scalar_step & place.last_vector))
        with m.If(self.checked.valid & self.checked.ready):
            place.reset(m, self.checked.payload.command)

    def _advance_in_vector(self, m: Module, run: Signal, place: Any) -> None:
        """Go to the next row, to a pair's second one, or back to the next pair's first one."""
        lanes = self._params.config.lanes
        pairs_end, step = Signal(name="pairs_end"), Signal(LENGTH_BITS, name="step")
        m.d.comb += [
            pairs_end.eq(place.inner == run.last_inner),
            step.eq(
                Mux(
                    ~place.apart | (place.second & pairs_end),
                    lanes,
                    Mux(place.second, ~run.last_inner, run.pair),
                )
            ),
        ]
        back = place.apart & place.second & ~pairs_end
        m.d.sync += [
            # Back by the distance less a row: -x is ~x + 1.
            place.element.eq((Cat(back, place.element) + Cat(back, step))[1:]),
            place.second.eq(place.apart & ~place.second),
        ]
        with m.If(place.second):
            m.d.sync += place.inner.eq(Mux(pairs_end, 0, place.inner + lanes))

    def _advance_drain(self, m: Module, run: Signal, place: Any, taken: Value) -> None:
        """Go through all vectors for each 32 elements (drain), or vector by vector (blocks)."""
        lanes = self._params.config.lanes
        command = run.command
        drain = command.source == Source.DRAIN
        with m.If(taken):
            m.d.sync += [
                place.element.eq(place.element + lanes),
                # With one lane, even an adjacent pair lies in two rows.
                place.second.eq(place.apart & ~place.second),
            ]
            with m.If(place.row_end & drain):
                self._next_vector(m, run, place)
                with m.If(~place.last_vector):
                    m.d.sync += place.element.eq(place.element & ~(BLOCK - 1))
                with m.Else():
                    place.rewind(m, command)
            with m.If(place.vector_end & ~drain):
                m.d.sync += place.element.eq(0)
                self._next_vector(m, run, place)

    def _next_vector(self, m: Module, run: Signal, place: Any) -> None:
        command = run.command
        m.d.sync += [
            place.vector.eq(place.vector + 1),
            place.rank.eq(0),
            place.a.eq(place.a + command.a_stride),
            place.b.eq(place.b + command.b_stride),
            place.dst.eq(place.dst + command.dst_stride),
            place.column.eq(place.column + command.column_step),
            place.block.eq(place.block + command.address_step),
        ]

    def _scalars(self, m: Module, run: Signal, active: Signal, place: Any, entry: Signal) -> None:
        """Commands without rows: one scalar register or limit per clock."""
        command, operation = run.command, self.scalar_operations.payload
        row = operation
        for name in ("tag", "use_multiplier", "use_addend", "finish"):
            m.d.comb += row[name].eq(command[name])
        # An immediate takes no further arithmetic.
        with m.If(command.op == Op.SET_SCALAR):
            m.d.comb += [
                row.use_multiplier.eq(0),
                row.use_addend.eq(0),
                row.finish.eq(Function.PASS),
            ]
        idle = active & ~run.rows
        limit = command.op == Op.SET_LIMITS
        m.d.comb += [
            row.queue.eq(self._queue),
            row.entry.eq(entry),
            row.out.eq(command.out + place.vector),
            row.vector.eq(place.vector),
            row.multiplier.eq(command.multiplier + Mux(command.per_vector[3], place.vector, 0)),
            row.addend.eq(command.addend + Mux(command.per_vector[4], place.vector, 0)),
            row.end.eq(place.last_vector),
            operation.s1.eq(command.s1 + Mux(command.per_vector[0], place.vector, 0)),
            operation.immediate.eq(command.immediate),
            operation.use_immediate.eq(command.op == Op.SET_SCALAR),
            self.scalar_operations.valid.eq(idle & ~limit),
            self.limits.valid.eq(idle & limit),
            self.limits.index.eq(command.out + place.vector),
            self.limits.start.eq(command.immediate[:16]),
            self.limits.end.eq(command.immediate[16:]),
        ]


class _Place:
    """Registers of an issuer's position in its command."""

    def __init__(self, address: int) -> None:
        self.element = Signal(LENGTH_BITS, name="element")
        self.inner = Signal(LENGTH_BITS, name="inner")
        self.second = Signal(name="second")
        self.vector = Signal(VECTORS_BITS, name="vector")
        self.rank = Signal(3, name="rank")
        self.waiting = Signal(name="waiting")
        self.a = Signal(address, name="a")
        self.b = Signal(address, name="b")
        self.dst = Signal(address, name="dst")
        self.column = Signal(8, name="column")
        self.block = Signal(24, name="block")
        self.apart = Signal(name="pair_in_rows")
        self.last_vector = Signal(name="last_vector")
        self.row_end = Signal(name="row_end")
        self.vector_end = Signal(name="vector_end")
        self.last_pass = Signal(name="last_pass")
        self.end = Signal(name="end")

    def rewind(self, m: Module, command: Any) -> None:
        """Go back to vector 0."""
        m.d.sync += [
            self.vector.eq(0),
            self.a.eq(command.a),
            self.b.eq(command.b),
            self.dst.eq(command.dst),
            self.column.eq(command.column),
            self.block.eq(command.address),
        ]

    def reset(self, m: Module, command: Any) -> None:
        """Go to the start of a command."""
        self.rewind(m, command)
        m.d.sync += [
            self.element.eq(0),
            self.inner.eq(0),
            self.second.eq(0),
            self.rank.eq(0),
            self.waiting.eq(0),
        ]
