"""From MXINT8 blocks to rows of fp32."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK, TileParams
from pequin.fp32.types import (
    CANONICAL_NAN,
    INFINITY,
    leading_zeros,
    named,
    negated,
    out_of_range,
    registered,
)
from pequin.vector.types import quantized_block


def element_to_float(m: Module, name: str, sign: Value, magnitude: Value, scale: Value) -> Value:
    """Return the fp32 bits of an MXINT8 element times its scale, combinational and exact.

    Scale 0xFF gives NaN; a magnitude below 2**-126 becomes zero, one of 2**128 infinity.
    """
    zeros = named(m, f"{name}_zeros", leading_zeros(m, name, magnitude)[:3])
    normal = named(m, f"{name}_normal", (magnitude << zeros)[:8])
    # The highest bit has the weight 2**(7 - zeros - 6).
    exponent = named(m, f"{name}_exponent", scale + Const(1, 2) - zeros)
    below, above = out_of_range(exponent)
    result: Value = Cat(Const(0, 16), normal[:7], exponent[:8], sign)
    result = Mux(~normal[7] | below, Cat(Const(0, 31), sign), result)
    result = Mux(above, Cat(Const(INFINITY, 31), sign), result)
    return Mux(scale == 0xFF, Const(CANONICAL_NAN, 32), result)


class Dequantizer(wiring.Component):
    """Convert `lanes` elements of a block.

    *Timing*: `row` follows `block` and `place` by two clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    block : In(quantized_block)
    place : In(5)
        First element; a multiple of `lanes`.
    row : Out(32 * lanes)
    """

    block: Any
    place: Any
    row: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "block": In(quantized_block()),
                "place": In(5),
                "row": Out(32 * params.config.lanes),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        lanes = self._params.config.lanes
        bits = lanes.bit_length() - 1
        part = self.block.elements
        if lanes < BLOCK:
            part = part.word_select(self.place[bits:], 8 * lanes)
        scale = registered(m, "scale", self.block.scale)
        for i in range(lanes):
            name = f"lane{i}"
            element = named(m, f"{name}_element", part.word_select(i, 8))
            sign = registered(m, f"{name}_sign", element[7])
            magnitude = registered(m, f"{name}_magnitude", negated(element, element[7], 8))
            value = element_to_float(m, name, sign, magnitude, scale)
            m.d.sync += self.row.word_select(i, 32).eq(value)
        return m
