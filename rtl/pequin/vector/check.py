"""Checks a command before it starts, and computes the ends of what it reads and writes."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK, TileParams
from pequin.fp32.special import Function
from pequin.fp32.types import named, registered
from pequin.vector.types import (
    ALIGN,
    LENGTH_BITS,
    VALUE_ELEMENTS,
    VECTORS_BITS,
    Factor,
    Op,
    Quantize,
    Reduce,
    Source,
    Status,
    address_bits,
    vector_command,
)

_WIDE = 34
_OPERANDS = ("a", "b", "dst", "blocks")
_END_LATENCY = 3
_STEPS = len(_OPERANDS) + _END_LATENCY


def checked_command(params: TileParams) -> data.StructLayout:
    """Return a command with what follows from it.

    status
        Errors; a command with any does nothing.
    rows, reads_a, reads_b, reads_scalars, writes_scalars
        Which resources it uses; `rows` is 0 for the scalar commands.
    a_end, b_end, dst_end
        Last element address of each operand.
    last_row
        First element of a vector's last row; a vector is issued to its end or in whole blocks.
    last_vector
        Number of the last vector.
    pair, last_inner
        Distance of the two rows of a rotary pair (elements), 0 when pairs lie in one row; and
        that less a row.
    """
    address = address_bits(params)
    return data.StructLayout(
        {
            "command": vector_command(params),
            "status": Status,
            "rows": 1,
            "reads_a": 1,
            "reads_b": 1,
            "reads_scalars": 1,
            "writes_scalars": 1,
            "a_end": address,
            "b_end": address,
            "dst_end": address,
            "last_row": LENGTH_BITS,
            "last_vector": VECTORS_BITS,
            "pair": LENGTH_BITS,
            "last_inner": LENGTH_BITS,
        }
    )


class CommandCheck(wiring.Component):
    """Check commands one after another.

    *Timing*: 9 clocks per command, while earlier commands run.

    Parameters
    ----------
    params
        The tile's parameters.
    queue
        0: operand a comes from memory; 1: from the drain or from blocks.

    Members
    -------
    commands : In(stream of vector_command)
    checked : Out(stream of checked_command)
    """

    commands: Any
    checked: Any

    def __init__(self, params: TileParams, *, queue: int) -> None:
        self._params = params
        self._queue = queue
        super().__init__(
            {
                "commands": In(stream.Signature(vector_command(params))),
                "checked": Out(stream.Signature(checked_command(params))),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        held: Any = Signal(checked_command(self._params))
        command: Any = Signal(vector_command(self._params))
        m.d.comb += self.checked.payload.eq(held)
        step = Signal(range(_STEPS))
        more = registered(m, "more", (command.vectors - 1)[:VECTORS_BITS])
        column = registered(m, "column_steps", command.column_step * more)
        column = registered(m, "last_column", (command.column + column)[:17])
        total = self._ends(m, command, step, more)
        with m.FSM(name="check"):
            with m.State("IDLE"):
                m.d.comb += self.commands.ready.eq(1)
                m.d.sync += [command.eq(self.commands.payload), step.eq(0)]
                with m.If(self.commands.valid):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += step.eq(step + 1)
                with m.If(step == 0):
                    m.d.sync += [held.command.eq(command), held.status.eq(0)]
                with m.If(step == 1):
                    self._static(m, command, held, more)
                for number, name in enumerate(_OPERANDS[:-1]):
                    with m.If(step == number + _END_LATENCY):
                        self._check_end(m, command, held, name, total)
                with m.If(step == _STEPS - 1):
                    self._blocks(m, command, held, total, column)
                with m.If(step == _STEPS - 1):
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.checked.valid.eq(1)
                with m.If(self.checked.ready):
                    m.next = "IDLE"
        return m

    def _ends(self, m: Module, command: Any, step: Signal, more: Value) -> Value:
        """Compute the end of an operand's last vector, `_END_LATENCY` clocks after its step."""
        stride, base, extent = (Signal(24, name=f"end_{n}") for n in ("stride", "base", "extent"))
        blocks = (command.length + (BLOCK - 1)) >> 5
        with m.Switch(step):
            for number, name in enumerate(_OPERANDS[:-1]):
                with m.Case(number):
                    m.d.sync += [
                        base.eq(command[name]),
                        stride.eq(command[f"{name}_stride"]),
                        extent.eq((command.length - 1)[:LENGTH_BITS]),
                    ]
            with m.Default():
                m.d.sync += [
                    base.eq(command.address),
                    stride.eq(command.address_step),
                    extent.eq((blocks - 1)[:LENGTH_BITS]),
                ]
        product = registered(m, "end_product", stride * more)
        start = registered(m, "end_start", base + extent)
        return registered(m, "end_total", (product + start)[:_WIDE])

    def _check_end(self, m: Module, command: Any, held: Any, name: str, total: Value) -> None:
        base, stride = command[name], command[f"{name}_stride"]
        used = {"a": held.reads_a, "b": held.reads_b, "dst": command.store}[name]
        aligned = (base[:5] | stride[:5]) == 0
        over = total >= self._params.config.vector_elements
        m.d.sync += held[f"{name}_end"].eq(total)
        with m.If(used & held.rows & (over | ~aligned)):
            m.d.sync += held.status.range.eq(1)

    def _static(self, m: Module, c: Signal, held: Signal, more: Value) -> None:
        """Everything that needs no multiplication."""
        row_op = c.op.as_value() <= Op.ROTARY_HALF.value
        rotary = (c.op == Op.ROTARY) | (c.op == Op.ROTARY_HALF)
        adds_b = (c.op == Op.ADD) | (c.op == Op.SUB)
        reads_b = adds_b | (c.op == Op.MUL) | rotary | (c.factor == Factor.B)
        reduces = c.reduce != Reduce.NONE
        scalar = c.op == Op.SCALAR
        reads_scalars = Mux(
            row_op,
            c.use_s1 | c.use_s2 | (c.factor == Factor.S3) | c.start | self._finish_reads(c),
            scalar,
        )
        in_blocks = (c.quantize != Quantize.NONE) | (self._queue == 1)
        lanes = self._params.config.lanes
        # In whole blocks the last row ends a block.
        last_row = ((c.length - 1)[:LENGTH_BITS] | Mux(in_blocks, BLOCK - 1, 0)) & -lanes
        pair = named(m, "pair", self._pair(c))
        m.d.sync += [
            held.rows.eq(row_op),
            held.reads_a.eq(c.source == Source.MEMORY),
            held.reads_b.eq(reads_b),
            held.reads_scalars.eq(reads_scalars),
            held.writes_scalars.eq(Mux(row_op, reduces, c.op != Op.SET_LIMITS)),
            held.last_row.eq(last_row),
            held.last_vector.eq(more),
            held.pair.eq(pair),
            held.last_inner.eq(pair - lanes),
            held.status.opcode.eq(self._bad_opcode(c, row_op, rotary, adds_b)),
            held.status.length.eq(self._bad_length(c, row_op)),
            held.status.range.eq(self._bad_scalars(c, row_op, more)),
        ]

    def _finish_reads(self, c: Signal) -> Value:
        return (c.reduce != Reduce.NONE) & (c.use_multiplier | c.use_addend)

    def _pair(self, c: Signal) -> Value:
        """Rows of a pair: in one row when the distance is below the lanes."""
        apart = (Const(1, 1) << c.distance)[:8]
        lanes = self._params.config.lanes
        adjacent = Mux((c.op == Op.ROTARY) & (apart >= lanes), apart, 0)
        return Mux(c.op == Op.ROTARY_HALF, c.length >> 1, adjacent)[:LENGTH_BITS]

    def _bad_opcode(self, c: Signal, row_op: Value, rotary: Value, adds_b: Value) -> Value:
        own = (c.source != Source.MEMORY) if self._queue else (c.source == Source.MEMORY)
        source = c.source.as_value() == 3
        values = c.quantize == Quantize.VALUES
        spread = (c.op == Op.ROTARY_HALF) | ((c.op == Op.ROTARY) & (c.distance != 0))
        wrong = [
            ~own | source,
            rotary & (c.use_s1 | c.use_s2 | (c.factor == Factor.B)),
            rotary & (c.function != Function.PASS),
            (c.op == Op.MUL) & c.use_s1,
            adds_b & c.use_s2,
            c.function == Function.RSQRT,
            spread & ((c.quantize != Quantize.NONE) | (self._queue == 1)),
            c.start & ((c.reduce != Reduce.MAX) | (c.factor == Factor.S3)),
            (c.rank != 0)
            & ((c.reduce != Reduce.ARG_MAX) | c.store | (c.quantize != Quantize.NONE)),
            c.paired & (c.quantize != Quantize.ACTIVATIONS),
        ]
        if self._queue:
            wrong += [values, c.rank != 0]
        bad = wrong[0]
        for term in wrong[1:]:
            bad = bad | term
        scalar_bad = (c.op.as_value() > Op.SET_LIMITS.value) | (self._queue == 1)
        return Mux(row_op, bad, scalar_bad)

    def _bad_length(self, c: Signal, row_op: Value) -> Value:
        mask = ((Const(2, 2) << c.distance) - 1)[:9]
        uneven = (c.op == Op.ROTARY) & (c.length & mask).any()
        half = (c.op == Op.ROTARY_HALF) & c.length[:6].any()
        long = (c.quantize == Quantize.VALUES) & (c.length > VALUE_ELEMENTS)
        return (c.vectors == 0) | (row_op & ((c.length == 0) | uneven | half | long))

    def _bad_scalars(self, c: Signal, row_op: Value, more: Value) -> Value:
        """Tell whether a scalar register or a limit lies beyond the last one."""
        config = self._params.config
        reduces = row_op & (c.reduce != Reduce.NONE)
        finish = reduces | (c.op == Op.SCALAR)
        uses = [
            ((row_op & c.use_s1) | (c.op == Op.SCALAR), c.s1, c.per_vector[0]),
            (row_op & c.use_s2, c.s2, c.per_vector[1]),
            (row_op & ((c.factor == Factor.S3) | c.start), c.s3, c.per_vector[2]),
            (finish & c.use_multiplier, c.multiplier, c.per_vector[3]),
            (finish & c.use_addend, c.addend, c.per_vector[4]),
            (finish | (c.op == Op.SET_SCALAR), c.out, Const(1, 1)),
        ]
        bad = (c.op == Op.SET_LIMITS) & (c.out + more >= config.columns)
        bad = bad | (row_op & c.limits & (c.vectors > config.columns))
        for used, index, step in uses:
            bad = bad | (used & (index + Mux(step, more, 0) >= config.scalars))
        return bad

    def _blocks(self, m: Module, c: Signal, held: Signal, last: Value, column: Value) -> None:
        """Check the place of quantized blocks."""
        config = self._params.config
        paired = c.paired
        over = Mux(paired, last >= 2 * config.act_blocks, last >= config.act_blocks)
        wide = Mux(paired, column >= config.columns // 2, column >= config.columns)
        with m.If(held.rows & (c.quantize == Quantize.ACTIVATIONS) & (over | wide)):
            m.d.sync += held.status.range.eq(1)


assert ALIGN == 1 << 5
