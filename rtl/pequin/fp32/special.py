"""exp2, reciprocal and reciprocal square root: range reduction, table, one multiplication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, enum, memory, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.fp32.tables import (
    FRACTION_BITS,
    INDEX_BITS,
    SLOPE_BITS,
    VALUE_BITS,
    exp2_table,
    reciprocal_table,
    rsqrt_table,
)
from pequin.fp32.types import (
    BIAS,
    CANONICAL_NAN,
    INFINITY,
    Float32,
    add_or_subtract,
    as_float,
    named,
    negated,
    out_of_range,
    registered,
    rounded,
)

_OFFSET_BITS = 16


class Function(enum.Enum, shape=2):
    """What a special-function unit computes."""

    PASS = 0
    """The operand itself."""
    EXP2 = 1
    RECIPROCAL = 2
    RSQRT = 3


_TABLE_COUNT = {Function.EXP2: 1, Function.RECIPROCAL: 1, Function.RSQRT: 2}

_TABLES: dict[Any, Any] = {
    Function.EXP2: [exp2_table],
    Function.RECIPROCAL: [reciprocal_table],
    Function.RSQRT: [lambda: rsqrt_table(False), lambda: rsqrt_table(True)],
}


class SpecialFunctions(wiring.Component):
    """exp2, 1/x and 1/sqrt(x) for several lanes that share one table.

    The sequence is documented in docs/numerics.md. Relative error below 2**-21. 2**0 is exactly 1,
    and so are powers of two at whole exponents.

    *Timing*: one result per lane and clock, `LATENCY` clocks after its operand.

    Parameters
    ----------
    lanes
        Operands per clock.
    functions
        The functions built, `Function.PASS` aside; each takes 1,024 table words of 44 bits, rsqrt
        2,048. The result for another function is undefined.

    Members
    -------
    function : In(Function)
        What to compute in this clock, the same for all lanes.
    a : In(Float32), array of `lanes`
        Operands.
    result : Out(Float32), array of `lanes`
        1 / 0 is infinity of the zero's sign and 1 / infinity zero; rsqrt of either zero is
        +infinity and of a negative number NaN.

    Raises
    ------
    ConfigError
        No lane or no function.
    """

    function: Any
    a: Any
    result: Any

    LATENCY = 7

    def __init__(
        self,
        *,
        lanes: int = 1,
        functions: Sequence[Function] = (Function.EXP2, Function.RECIPROCAL, Function.RSQRT),
    ) -> None:
        if lanes < 1:
            raise ConfigError(f"lanes must be at least 1, not {lanes}")
        if not functions or Function.PASS in functions:
            raise ConfigError("functions must name at least one of EXP2, RECIPROCAL, RSQRT")
        self._lanes = lanes
        self._functions = tuple(f for f in Function if f in functions)
        super().__init__(
            {
                "function": In(Function),
                "a": In(Float32).array(lanes),
                "result": Out(Float32).array(lanes),
            }
        )

    @property
    def lanes(self) -> int:
        """Operands per clock."""
        return self._lanes

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions built."""
        return self._functions

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        words, bases = self._table()
        entry = data.StructLayout({"value": VALUE_BITS, "slope": SLOPE_BITS})
        table: Any
        m.submodules.table = table = memory.Memory(shape=entry, depth=len(words), init=words)
        function = [self.function.as_value()]
        for stage in range(1, 7):
            function.append(registered(m, f"function_{stage}", function[-1]))
        for lane in range(self._lanes):
            m.submodules[f"lane{lane}"] = part = _Lane(self._functions, bases)
            port = table.read_port()
            m.d.comb += [
                part.function.eq(Cat(*function)),
                part.a.eq(self.a[lane]),
                port.addr.eq(part.address),
                port.en.eq(1),
                part.entry.eq(port.data),
                self.result[lane].eq(part.result),
            ]
        return m

    def _table(self) -> tuple[list[dict[str, int]], dict[Function, int]]:
        """Return the table's words and where each function's start (in tables)."""
        words: list[dict[str, int]] = []
        bases: dict[Function, int] = {}
        # rsqrt needs two neighbours at an even place.
        for function in sorted(self._functions, key=lambda f: -_TABLE_COUNT[f]):
            bases[function] = len(words) >> INDEX_BITS
            for make in _TABLES[function]:
                words += [{"value": v, "slope": s} for v, s in make()]
        return words, bases


class _Lane(wiring.Component):
    """One lane; `function` holds the function of the last seven clocks, newest first."""

    function: Any
    a: Any
    address: Any
    entry: Any
    result: Any

    def __init__(self, functions: tuple[Function, ...], bases: dict[Function, int]) -> None:
        self._functions = functions
        self._bases = bases
        self._select_bits = max(base + _TABLE_COUNT[f] for f, base in bases.items()) - 1
        self._select_bits = self._select_bits.bit_length()
        entry = data.StructLayout({"value": VALUE_BITS, "slope": SLOPE_BITS})
        super().__init__(
            {
                "function": In(14),
                "a": In(Float32),
                "address": Out(self._select_bits + INDEX_BITS),
                "entry": In(entry),
                "result": Out(Float32),
            }
        )

    def _is(self, stage: int, function: Function) -> Value:
        """1 when the function of `stage` clocks ago is this one; constant if it is not built."""
        if function is not Function.PASS and function not in self._functions:
            return Const(0, 1)
        return self.function[2 * stage : 2 * stage + 2] == function.value

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fixed = self._reduce_exp2(m)
        operand = [self.a.as_value()]
        for stage in range(1, 6):
            operand.append(registered(m, f"operand_{stage}", operand[-1]))
        offset, whole = self._address(m, as_float(operand[2]), fixed)
        # Clock 3: the table's word is there; a register after it suits a block RAM.
        offset, whole = registered(m, "offset_4", offset), registered(m, "whole_4", whole)
        value = registered(m, "value_4", self.entry.value)
        slope = registered(m, "slope_4", self.entry.slope)
        value = registered(m, "value_5", value)
        product = registered(m, "product", slope * offset)
        whole = registered(m, "whole_5", whole)
        change = product >> _OFFSET_BITS
        total = add_or_subtract(value, change[:VALUE_BITS], ~self._is(5, Function.EXP2))
        total = registered(m, "total", total)
        # A total below 1.0 has its highest bit one place lower.
        exponent = registered(m, "exponent_6", whole.as_signed())
        lower = registered(m, "lower_6", (whole - 1).as_signed())
        special, alternative, sign = self._special_cases(m, as_float(operand[5]))
        self._finish(m, total, exponent, lower, sign, special, alternative)
        return m

    def _reduce_exp2(self, m: Module) -> Value:
        """Clocks 1 and 2: the operand on a grid of 2**-26, rounded towards zero, with its sign."""
        a = self.a
        far = a.exponent > BIAS + 7
        # 2**7 has its highest bit at FRACTION_BITS + 7 = 33.
        distance = named(m, "far_distance", Mux(far, 0, BIAS + 7 - a.exponent))
        distance = registered(m, "distance", Mux(distance > 63, 63, distance)[:6])
        significand = registered(m, "significand", a.significand)
        sign = registered(m, "sign", a.sign)
        wide = Cat(Const(0, FRACTION_BITS + 7 - 23), significand)
        magnitude = named(m, "magnitude", (wide >> distance)[:34])
        return registered(m, "fixed", negated(magnitude, sign, 35).as_signed())

    def _address(self, m: Module, a: Any, fixed: Value) -> tuple[Value, Value]:
        """Clock 3: segment, offset in the segment (16 bits), and the result's exponent field."""
        exp2 = self._is(2, Function.EXP2)
        rsqrt = self._is(2, Function.RSQRT)
        # The exponent field of an even power of two, 2**0 say, is odd.
        odd = rsqrt & ~a.exponent[0]
        select: Value = Const(0, self._select_bits)
        for function, base in self._bases.items():
            select = select | Mux(self._is(2, function), base, 0)
        segment = Mux(
            exp2, fixed[FRACTION_BITS - INDEX_BITS : FRACTION_BITS], a.fraction[23 - INDEX_BITS :]
        )
        offset = Mux(
            exp2,
            fixed[: FRACTION_BITS - INDEX_BITS],
            Cat(Const(0, 3), a.fraction[: 23 - INDEX_BITS]),
        )
        m.d.comb += self.address.eq(Cat(segment, (select | odd)[: self._select_bits]))
        whole = Mux(
            exp2,
            fixed[FRACTION_BITS:].as_signed() + BIAS,
            Mux(
                rsqrt,
                ((3 * BIAS - a.exponent + odd) >> 1).as_signed(),
                (2 * BIAS - a.exponent).as_signed(),
            ),
        )
        return registered(m, "offset_3", offset), registered(m, "whole_3", whole)

    def _special_cases(self, m: Module, a: Any) -> tuple[Value, Value, Value]:
        """Clock 6: whether the operand alone decides the result, that result, its sign."""
        exp2, rsqrt = self._is(5, Function.EXP2), self._is(5, Function.RSQRT)
        passes = self._is(5, Function.PASS)
        huge = a.exponent > BIAS + 7
        sign = registered(m, "sign_6", ~exp2 & a.sign)
        zero, infinity = Const(0, 32), Const(INFINITY, 32)
        of_exp2 = Mux(a.is_zero, Const(BIAS << 23, 32), Mux(a.sign, zero, infinity))
        of_reciprocal = Cat(Mux(a.is_zero, Const(INFINITY, 31), Const(0, 31)), a.sign)
        of_rsqrt = Mux(a.is_zero, infinity, Mux(a.sign, Const(CANONICAL_NAN, 32), zero))
        alternative = Mux(exp2, of_exp2, Mux(rsqrt, of_rsqrt, of_reciprocal))
        alternative = Mux(a.is_nan, Const(CANONICAL_NAN, 32), alternative)
        alternative = Mux(passes, a.as_value(), alternative)
        special = passes | a.is_zero | (a.exponent == 0xFF)
        special = special | (exp2 & huge) | (rsqrt & a.sign)
        return (
            registered(m, "special_6", special),
            registered(m, "alternative_6", alternative),
            sign,
        )

    def _finish(
        self,
        m: Module,
        total: Value,
        exponent: Value,
        lower: Value,
        sign: Value,
        special: Value,
        alternative: Value,
    ) -> None:
        """Clock 7: round half up to 24 bits, unless the operand alone decides."""
        # A total below 1.0 has its highest bit one place lower.
        low = ~total[FRACTION_BITS]
        exponent = named(m, "exponent", Mux(low, lower, exponent).as_signed())
        fraction, up = Mux(low, total[2:25], total[3:26]), Mux(low, total[1], total[2])
        magnitude: Value = rounded(m, exponent, fraction, up)
        below, above = out_of_range(exponent)
        magnitude = Mux(below, 0, Mux(above, INFINITY, magnitude))
        result = Cat(magnitude[:31], sign)
        m.d.sync += self.result.as_value().eq(Mux(special, alternative, result))
