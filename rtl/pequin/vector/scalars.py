"""Scalar registers and the pipeline that turns reductions into scalars."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.fp32 import FixedToFloat, FloatAdd, FloatMul, Function, SpecialFunctions
from pequin.fp32.compare import from_order_key
from pequin.fp32.types import MINUS_ZERO, ONE, as_float, registered
from pequin.vector.reduce import SUM_BITS, SUM_LSB, reduced
from pequin.vector.rows import SCALAR_FIELDS, scalar_operation
from pequin.vector.scoreboard import part_event
from pequin.vector.types import LENGTH_BITS, Reduce, row_layout, scalar_bits, vector_response

_MINUS_INFINITY = 0xFF800000
_MUL_AT = FixedToFloat.LATENCY
_ADD_AT = _MUL_AT + FloatMul.LATENCY
_SPECIAL_AT = _ADD_AT + FloatAdd.LATENCY
_RESULT_AT = _SPECIAL_AT + SpecialFunctions.LATENCY


class Scalars(wiring.Component):
    """Registers, and s[out] = finish(x * s[multiplier] + s[addend]) for reductions and commands.

    *Timing*: a value per clock; the register is written `LATENCY` clocks after a reduction.

    Parameters
    ----------
    params
        The tile's parameters.
    peek
        Make the registers readable from outside.

    Members
    -------
    done_valid, done : In
        A finished reduction; it goes first.
    operations : In(stream of scalar_operation)
    s1, s2, s3 : In
        Registers to read in this clock.
    value1, value2, value3 : Out(32)
    written : Out(part_event), written_queue : Out(1)
        A command's last scalar has been written.
    not_finite : Out(part_event)
        A scalar of the queue `written_queue` is NaN or infinite.
    result_valid, result : Out
        An arg-max entry, for the responses; cannot be held back.
    peek_index : In, peeked : Out(32)
        With `peek`: a register's number and its value in the same clock.
    """

    done_valid: Any
    done: Any
    operations: Any
    written: Any
    written_queue: Any
    not_finite: Any
    result_valid: Any
    result: Any
    peek_index: Any
    peeked: Any

    LATENCY = _RESULT_AT + 1

    def __init__(self, params: TileParams, *, peek: bool = False) -> None:
        self._params, self._peek = params, peek
        index = scalar_bits(params)
        super().__init__(
            {
                "done_valid": In(1),
                "done": In(reduced(params)),
                "operations": In(stream.Signature(scalar_operation(params))),
                **{f"s{i}": In(index) for i in (1, 2, 3)},
                **{f"value{i}": Out(32) for i in (1, 2, 3)},
                "written": Out(part_event()),
                "written_queue": Out(1),
                "not_finite": Out(part_event()),
                "result_valid": Out(1),
                "result": Out(vector_response()),
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
        registers: Any
        m.submodules.registers = registers = memory.Memory(
            shape=32, depth=self._params.config.scalars, init=[]
        )

        def read(index: Value) -> Value:
            port = registers.read_port(domain="comb")
            m.d.comb += port.addr.eq(index)
            return port.data

        for i in (1, 2, 3):
            m.d.comb += getattr(self, f"value{i}").eq(read(getattr(self, f"s{i}")))
        if self._peek:
            m.d.comb += self.peeked.eq(read(self.peek_index))
        chain, other = self._enter(m, read)
        result = self._compute(m, chain, other, read)
        self._leave(m, chain[_RESULT_AT], result, registers.write_port())
        return m

    def _enter(self, m: Module, read: Any) -> tuple[list[Any], Value]:
        """Take a reduction or else an operation; return the control chain and its fp32 value."""
        layout = data.StructLayout(
            {
                "valid": 1,
                "row": row_layout(self._params),
                "sum": 1,
                "empty": 1,
                "index": LENGTH_BITS,
            }
        )
        entering: Any = Signal(layout)
        operation = self.operations.payload
        done = self.done
        m.d.comb += [
            self.operations.ready.eq(~self.done_valid),
            entering.valid.eq(self.done_valid | self.operations.valid),
            entering.sum.eq(self.done_valid & (done.row.reduce == Reduce.SUM)),
            entering.index.eq(done.index),
            entering.empty.eq(self.done_valid & (done.key == 0) & ~entering.sum),
        ]
        with m.If(self.done_valid):
            m.d.comb += entering.row.eq(done.row)
        with m.Else():
            m.d.comb += [entering.row[name].eq(operation[name]) for name in SCALAR_FIELDS]
        best = Mux(done.key == 0, _MINUS_INFINITY, from_order_key(done.key))
        given = Mux(operation.use_immediate, operation.immediate, read(operation.s1))
        other = Mux(self.done_valid, best, given)
        chain: list[Any] = [entering]
        for stage in range(1, _RESULT_AT + 1):
            register = Signal(layout, name=f"control_{stage}")
            m.d.sync += register.eq(chain[-1])
            chain.append(register)
        return chain, other

    def _compute(self, m: Module, chain: list[Any], other: Value, read: Any) -> Value:
        """Convert, multiply, add, apply the function."""
        m.submodules.convert = convert = FixedToFloat(width=SUM_BITS, lsb_exponent=SUM_LSB)
        m.submodules.multiply = multiply = FloatMul()
        m.submodules.add = add = FloatAdd()
        m.submodules.special = special = SpecialFunctions(lanes=1)
        m.d.comb += convert.a.eq(self.done.total)
        for stage in range(_MUL_AT):
            register = Signal(32, name=f"other_{stage}", reset_less=True)
            m.d.sync += register.eq(other)
            other = register
        at_mul = chain[_MUL_AT]
        row = chain[_MUL_AT - 1].row
        factor = registered(m, "factor", Mux(row.use_multiplier, read(row.multiplier), ONE))
        addend = registered(m, "addend", Mux(row.use_addend, read(row.addend), MINUS_ZERO))
        for stage in range(FloatMul.LATENCY):
            register = Signal(32, name=f"addend_{stage}", reset_less=True)
            m.d.sync += register.eq(addend)
            addend = register
        m.d.comb += [
            multiply.a.as_value().eq(Mux(at_mul.sum, convert.result.as_value(), other)),
            multiply.b.as_value().eq(factor),
            add.a.eq(multiply.result),
            add.b.as_value().eq(addend),
            special.a[0].eq(add.result),
            special.function.eq(chain[_SPECIAL_AT].row.finish),
        ]
        return special.result[0].as_value()

    def _leave(self, m: Module, control: Any, result: Value, port: Any) -> None:
        row = control.row
        value = as_float(result)
        written = Signal()
        m.d.comb += [
            written.eq(control.valid),
            port.en.eq(written & (row.rank == 0)),
            port.addr.eq(row.out),
            port.data.eq(result),
        ]
        m.d.sync += [
            self.written.valid.eq(written & row.end),
            self.written.entry.eq(row.entry),
            self.written_queue.eq(row.queue),
            self.not_finite.valid.eq(written & ~value.is_finite & ~control.empty),
            self.not_finite.entry.eq(row.entry),
            self.result_valid.eq(written & (row.reduce == Reduce.ARG_MAX)),
            self.result.kind.eq(1),
            self.result.queue.eq(row.queue),
            self.result.tag.eq(row.tag),
            self.result.vector.eq(row.vector),
            self.result.rank.eq(row.rank),
            self.result.value.eq(result),
            self.result.index.eq(control.index),
        ]


assert Function.PASS.value == 0
