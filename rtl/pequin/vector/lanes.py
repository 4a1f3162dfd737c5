"""The arithmetic of a row: y = function(a * x + b) * factor on all lanes."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.fp32 import FloatAdd, FloatMul, Function, SpecialFunctions
from pequin.fp32.types import ONE, as_float, named, registered
from pequin.vector.delay import DelayLine
from pequin.vector.types import Factor, Op, row_layout

_ADD_AT = FloatMul.LATENCY
_SPECIAL_AT = _ADD_AT + FloatAdd.LATENCY
_FACTOR_AT = _SPECIAL_AT + SpecialFunctions.LATENCY
_RESULT_AT = _FACTOR_AT + FloatMul.LATENCY


def lane_result(params: TileParams) -> data.StructLayout:
    """Return what leaves the lanes with a row.

    row
        The row's control.
    output
        The result, zero in lanes that are not live.
    reduce
        What reductions take; any value in lanes that are not live.
    not_finite
        A live lane met or produced NaN or infinity.
    """
    lanes = params.config.lanes
    return data.StructLayout(
        {
            "row": row_layout(params),
            "output": data.ArrayLayout(32, lanes),
            "reduce": data.ArrayLayout(32, lanes),
            "not_finite": 1,
        }
    )


class VectorLanes(wiring.Component):
    """Compute rows, one per clock.

    *Timing*: `result` follows a row by `LATENCY` clocks, the first row of a rotary pair in two
    rows by one more than the distance to its second. It cannot be held back.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    valid, row, a, b
        A row and its operands.
    result_valid, result
        The same row, computed.
    """

    valid: Any
    row: Any
    a: Any
    b: Any
    result_valid: Any
    result: Any

    LATENCY = 2 + _RESULT_AT + 1

    def __init__(self, params: TileParams) -> None:
        self._params = params
        self._lanes = params.config.lanes
        operand = data.ArrayLayout(32, self._lanes)
        super().__init__(
            {
                "valid": In(1),
                "row": In(row_layout(params)),
                "a": In(operand),
                "b": In(operand),
                "result_valid": Out(1),
                "result": Out(lane_result(params)),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        chosen = self._pairs(m)
        valid, row, operands, subtract = self._select(m, chosen)
        control = self._control(m, valid, row, subtract)
        special = SpecialFunctions(
            lanes=self._lanes, functions=(Function.EXP2, Function.RECIPROCAL)
        )
        m.submodules.special = special
        m.d.comb += special.function.eq(control.function)
        second, first = [], []
        for lane in range(self._lanes):
            one, two = self._multiply_add(m, lane, operands, control, special.a[lane])
            first.append(one)
            second.append(two)
        kept = self._delay(m, "kept", Cat(*second), _FACTOR_AT - _ADD_AT)
        products = self._factors(m, special, kept, control)
        f: Value = Cat(*(special.result[lane].as_value() for lane in range(self._lanes)))
        f = self._delay(m, "f", f, FloatMul.LATENCY)
        self._finish(m, control, products, f)
        return m

    def _delay(self, m: Module, name: str, value: Value, clocks: int) -> Value:
        m.submodules[f"delay_{name}"] = line = DelayLine(width=len(value), clocks=clocks)
        m.d.comb += line.input.eq(value)
        return line.output

    def _pairs(self, m: Module) -> Any:
        """Clock 1: hold the first row of a pair, emit both with the second row and after it."""
        c = _Chosen()
        row = Signal(row_layout(self._params), name="row_1", reset_less=True)
        valid = Signal(name="valid_1")
        a, b = (Signal(32 * self._lanes, name=f"{n}_1", reset_less=True) for n in "ab")
        m.d.sync += [
            valid.eq(self.valid),
            row.eq(self.row),
            a.eq(self.a.as_value()),
            b.eq(self.b.as_value()),
        ]
        held, late = Signal.like(row, name="held_row"), Signal.like(row, name="late_row")
        held_a, held_b, late_a, late_b, late_c, late_d = (
            Signal.like(a, name=n)
            for n in ("held_a", "held_b", "late_a", "late_b", "late_c", "late_d")
        )
        pending = Signal()
        entering, opening, closing = self.row, Signal(), Signal()
        m.d.sync += [
            opening.eq(self.valid & entering.apart & ~entering.second),
            closing.eq(self.valid & entering.apart & entering.second),
        ]
        with m.If(opening):
            m.d.sync += [held.eq(row), held_a.eq(a), held_b.eq(b)]
        m.d.sync += pending.eq(closing)
        with m.If(closing):
            m.d.sync += [
                late.eq(row),
                late_a.eq(a),
                late_b.eq(held_b),
                late_c.eq(held_a),
                late_d.eq(b),
            ]
        # Operands x, its factor, the partner, its factor.
        c.valid = pending | (valid & ~opening)
        c.row = data.View(
            row_layout(self._params),
            Mux(pending, late.as_value(), Mux(closing, held.as_value(), row.as_value())),
        )
        c.apart = pending | closing
        c.x = Mux(pending, late_a, Mux(closing, held_a, a))
        c.x_factor = Mux(pending, late_b, Mux(closing, held_b, b))
        c.partner = Mux(pending, late_c, a)
        c.partner_factor = Mux(pending, late_d, b)
        return c

    def _select(self, m: Module, c: Any) -> tuple[Any, Any, Any, Any]:
        """Clock 2: operands of both multipliers of each lane."""
        row = Signal(row_layout(self._params), name="chosen_row")
        m.d.comb += row.eq(c.row)
        wires = {}
        for name in ("x", "x_factor", "partner", "partner_factor"):
            wires[name] = Signal(32 * self._lanes, name=f"chosen_{name}")
            m.d.comb += wires[name].eq(getattr(c, name))
        apart = Signal(name="chosen_apart")
        rotary = Signal(name="chosen_rotary")
        m.d.comb += [
            apart.eq(c.apart),
            rotary.eq((row.op == Op.ROTARY) | (row.op == Op.ROTARY_HALF)),
        ]
        operands, subtract = [], []
        for lane in range(self._lanes):
            chosen, minus = self._select_lane(m, wires, lane, row, apart, rotary)
            operands.append(
                [
                    registered(m, f"operand_{n}_{lane}", v)
                    for n, v in zip(("x1", "y1", "x2", "y2"), chosen, strict=True)
                ]
            )
            subtract.append(minus)
        valid = Signal(name="valid_2")
        m.d.sync += valid.eq(c.valid)
        row_2 = Signal(row_layout(self._params), name="row_2", reset_less=True)
        m.d.sync += row_2.eq(row)
        return valid, row_2, operands, registered(m, "subtract_2", Cat(*subtract))

    def _select_lane(
        self,
        m: Module,
        wires: dict[str, Signal],
        lane: int,
        row: Any,
        apart: Value,
        rotary: Value,
    ) -> tuple[tuple[Value, Value, Value, Value], Value]:
        x, b = (wires[n].word_select(lane, 32) for n in ("x", "x_factor"))
        multiply = row.op == Op.MUL
        factor = Mux(multiply, b, row.s1.as_value())
        one = Const(ONE, 32)
        near_x, near_b = x, b
        low: Value = Const(1, 1)
        for distance in range(self._lanes.bit_length() - 1):
            partner = lane ^ (1 << distance)
            here = row.distance == distance
            near_x = Mux(here, wires["x"].word_select(partner, 32), near_x)
            near_b = Mux(here, wires["x_factor"].word_select(partner, 32), near_b)
            low = Mux(here, Const(not lane >> distance & 1, 1), low)
        near_b, low = named(m, f"near_b_{lane}", near_b), named(m, f"low_{lane}", low)
        in_row = rotary & ~apart
        y1 = Mux(apart, b, Mux(in_row, Mux(low, b, near_b), factor))
        x2 = Mux(apart, wires["partner"].word_select(lane, 32), Mux(in_row, near_x, b))
        y2 = Mux(
            apart,
            wires["partner_factor"].word_select(lane, 32),
            Mux(in_row, Mux(low, near_b, b), one),
        )
        first = Mux(apart, ~row.second, low)
        minus = Mux(rotary, first, Mux(row.op == Op.SUB, 1, row.minus_s2))
        return (x, y1, x2, y2), minus

    def _control(self, m: Module, valid: Value, row: Any, subtract: Value) -> Any:
        """Bring each part of the control to the clock that needs it."""
        control = _Control()
        add_b = (row.op == Op.ADD) | (row.op == Op.SUB)
        add_b = add_b | (row.op == Op.ROTARY) | (row.op == Op.ROTARY_HALF)
        at_add = self._delay(m, "add", Cat(add_b, row.s2.as_value(), subtract), _ADD_AT)
        control.add_b, control.s2, control.subtract = at_add[0], at_add[1:33], at_add[33:]
        live = self._delay(m, "special", Cat(row.function, row.live), _SPECIAL_AT)
        control.function, control.live = live[:2], live[2:]
        late = self._delay(m, "factor", Cat(row.factor, row.s3.as_value()), _FACTOR_AT)
        control.factor, control.s3 = late[:2], late[2:]
        chain = Signal(_RESULT_AT, name="valid_chain")
        m.d.sync += chain.eq(Cat(valid, chain[:-1]))
        control.valid = chain[-1]
        control.row = data.View(
            row_layout(self._params), self._delay(m, "row", row.as_value(), _RESULT_AT)
        )
        control.bad = Signal(self._lanes, name="not_finite_sums")
        return control

    def _multiply_add(
        self, m: Module, lane: int, operands: list[list[Value]], control: Any, target: Any
    ) -> tuple[Value, Value]:
        m.submodules[f"first{lane}"] = first = FloatMul()
        m.submodules[f"second{lane}"] = second = FloatMul()
        m.submodules[f"add{lane}"] = add = FloatAdd()
        x1, y1, x2, y2 = operands[lane]
        m.d.comb += [
            first.a.as_value().eq(x1),
            first.b.as_value().eq(y1),
            second.a.as_value().eq(x2),
            second.b.as_value().eq(y2),
            add.a.eq(first.result),
            add.b.as_value().eq(Mux(control.add_b, second.result.as_value(), control.s2)),
            add.subtract.eq(control.subtract[lane]),
            target.eq(add.result),
            control.bad[lane].eq(~add.result.is_finite & control.live[lane]),
        ]
        return first.result.as_value(), second.result.as_value()

    def _factors(self, m: Module, special: Any, kept: Value, control: Any) -> list[Value]:
        products = []
        for lane in range(self._lanes):
            m.submodules[f"factor{lane}"] = unit = FloatMul()
            f = special.result[lane].as_value()
            with m.Switch(control.factor):
                with m.Case(Factor.ONE.value):
                    m.d.comb += unit.b.as_value().eq(ONE)
                with m.Case(Factor.S3.value):
                    m.d.comb += unit.b.as_value().eq(control.s3)
                with m.Case(Factor.B.value):
                    m.d.comb += unit.b.as_value().eq(kept.word_select(lane, 32))
                with m.Case(Factor.SQUARE.value):
                    m.d.comb += unit.b.as_value().eq(f)
            m.d.comb += unit.a.as_value().eq(f)
            products.append(unit.result.as_value())
        return products

    def _finish(self, m: Module, control: Any, products: list[Value], f: Value) -> None:
        row, result = control.row, self.result
        bad: Value = registered(m, "bad_sum", control.bad.any())
        bad = self._delay(m, "bad", bad, _RESULT_AT - _SPECIAL_AT - 1)
        square = row.factor == Factor.SQUARE
        before = (row.function == Function.EXP2) & ~square
        wrong = Signal(self._lanes, name="not_finite_products")
        m.d.sync += [
            self.result_valid.eq(control.valid),
            result.row.eq(row),
            result.not_finite.eq(bad | wrong.any()),
        ]
        for lane, product in enumerate(products):
            own = f.word_select(lane, 32)
            m.d.comb += wrong[lane].eq(~as_float(product).is_finite & row.live[lane])
            m.d.sync += [
                result.output[lane].eq(Mux(row.live[lane], Mux(square, own, product), 0)),
                result.reduce[lane].eq(Mux(before, own, product)),
            ]


class _Chosen:
    """A row after pairing."""

    valid: Any
    row: Any
    apart: Any
    x: Any
    x_factor: Any
    partner: Any
    partner_factor: Any


class _Control:
    """Control at the clocks of its use."""

    add_b: Any
    s2: Any
    subtract: Any
    function: Any
    live: Any
    factor: Any
    s3: Any
    valid: Any
    row: Any
    bad: Any
