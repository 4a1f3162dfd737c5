"""Hardware that plays operand pairs from a RAM through every fp32 unit, one per clock."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from pequin.fp32 import (
    FixedToFloat,
    FloatAdd,
    FloatCompare,
    FloatMax,
    FloatMul,
    FloatToFixed,
    FloatToInt,
    Function,
    IntToFloat,
    SpecialFunctions,
)
from pequin.ram import Ram

OPERANDS = data.StructLayout({"a": 32, "b": 32})
"""A word of the operand RAM."""

RESULTS = data.StructLayout(
    {
        "add": 32,
        "sub": 32,
        "mul": 32,
        "max": 32,
        "from_int": 32,
        "to_int": 32,
        "exp2": 32,
        "reciprocal": 32,
        "rsqrt": 32,
        "mixed": 32,
        "to_fixed": 64,
        "from_fixed": 32,
        "compare": 4,
        "invalid": 1,
        "overflow": 1,
        "unused": 26,
    }
)
"""A word of the result RAM: every unit's answer for the operands at the same address."""

FIXED_WIDTH = 80
"""Operand of `FixedToFloat`: b above a, sign-extended by its top bit, after a shift of 16."""


class UnitPlayer(wiring.Component):
    """Play `depth` operand pairs through all units.

    Load `+operands.load=FILE`, run until `done`, take `+results.dump=FILE`.

    *Timing*: a pair per clock; `done` rises after about `depth` + 10 clocks and stays.

    Parameters
    ----------
    depth
        Operand pairs.

    Members
    -------
    done : Out(1)
        All results are in their RAM.
    """

    done: Any

    def __init__(self, depth: int) -> None:
        self._depth = depth
        super().__init__({"done": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.operands = source = Ram(
            width=OPERANDS.size, depth=self._depth, name="operands"
        )
        m.submodules.results = sink = Ram(width=RESULTS.size, depth=self._depth, name="results")
        m.d.comb += [source.read_en.eq(1), sink.write_en.eq(1)]
        self._count(m, source, sink)
        operands = data.View(OPERANDS, source.read_data)
        m.d.comb += sink.write_data.eq(self._units(m, operands.a, operands.b).as_value())
        return m

    def _count(self, m: Module, source: Ram, sink: Ram) -> None:
        """Write results `_DEPTH` + 1 clocks after their operands' read."""
        count = Signal(range(self._depth + 32))
        with m.If(count != self._depth + _DEPTH + 2):
            m.d.sync += count.eq(count + 1)
        with m.Else():
            m.d.comb += self.done.eq(1)
        m.d.comb += [
            source.read_addr.eq(count),
            sink.write_addr.eq(count - (_DEPTH + 1)),
            sink.write_en.eq((count > _DEPTH) & (count <= self._depth + _DEPTH)),
        ]

    def _units(self, m: Module, a: Value, b: Value) -> Any:
        results: Any = Signal(RESULTS)
        self._arithmetic(m, results, a, b)
        self._conversions(m, results, a, b)
        for name, function in (
            ("exp2", Function.EXP2),
            ("reciprocal", Function.RECIPROCAL),
            ("rsqrt", Function.RSQRT),
            ("mixed", None),
        ):
            unit = SpecialFunctions(lanes=1)
            m.submodules[name] = unit
            code = b[:2] if function is None else function.value
            m.d.comb += [unit.function.eq(code), unit.a[0].as_value().eq(a)]
            self._align(m, results[name], unit.result[0].as_value(), unit.LATENCY)
        return results

    def _arithmetic(self, m: Module, results: Any, a: Value, b: Value) -> None:
        units: tuple[tuple[str, Any], ...] = (
            ("add", FloatAdd()),
            ("sub", FloatAdd()),
            ("mul", FloatMul()),
            ("max", FloatMax()),
        )
        for name, unit in units:
            m.submodules[name] = unit
            m.d.comb += [unit.a.as_value().eq(a), unit.b.as_value().eq(b)]
            if name == "sub":
                m.d.comb += unit.subtract.eq(1)
            self._align(m, results[name], unit.result.as_value(), unit.LATENCY)
        m.submodules.compare = compare = FloatCompare()
        m.d.comb += [compare.a.as_value().eq(a), compare.b.as_value().eq(b)]
        code = Cat(compare.less, compare.equal, compare.greater, compare.unordered)
        self._align(m, results.compare, code, compare.LATENCY)

    def _conversions(self, m: Module, results: Any, a: Value, b: Value) -> None:
        m.submodules.from_int = from_int = IntToFloat()
        m.submodules.to_int = to_int = FloatToInt()
        m.submodules.to_fixed = to_fixed = FloatToFixed(width=64, lsb_exponent=-32)
        m.submodules.from_fixed = from_fixed = FixedToFloat(width=FIXED_WIDTH, lsb_exponent=-32)
        m.d.comb += [
            from_int.a.eq(a.as_signed()),
            to_int.a.as_value().eq(a),
            to_fixed.a.as_value().eq(a),
            from_fixed.a.eq((Cat(a, b).as_signed() << 16) >> b[:6]),
        ]
        self._align(m, results.from_int, from_int.result.as_value(), from_int.LATENCY)
        self._align(m, results.to_int, to_int.result, to_int.LATENCY)
        self._align(m, results.invalid, to_int.invalid, to_int.LATENCY)
        self._align(m, results.to_fixed, to_fixed.result, to_fixed.LATENCY)
        self._align(m, results.overflow, to_fixed.overflow, to_fixed.LATENCY)
        self._align(m, results.from_fixed, from_fixed.result.as_value(), from_fixed.LATENCY)

    def _align(self, m: Module, target: Value, value: Value, latency: int) -> None:
        """Delay a unit's result to the latency of the slowest."""
        for _ in range(_DEPTH - latency):
            register = Signal(value.shape())
            m.d.sync += register.eq(value)
            value = register
        m.d.comb += target.eq(value)


_DEPTH = max(FloatAdd.LATENCY, SpecialFunctions.LATENCY)
