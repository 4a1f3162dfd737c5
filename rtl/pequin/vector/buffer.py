"""A stream stage without a combinational path from input to output or back."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class StageBuffer(wiring.Component):
    """Hold up to two items, so that `ready` is a register as `valid` is.

    *Timing*: one clock from input to output; one item per clock.

    Parameters
    ----------
    shape
        Payload shape.

    Members
    -------
    input : In(stream of shape)
    output : Out(stream of shape)
    """

    input: Any
    output: Any

    def __init__(self, shape: Any) -> None:
        signature = stream.Signature(shape)
        super().__init__({"input": In(signature), "output": Out(signature)})

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        item = Value.cast(self.input.payload)
        spare, spare_full = Signal(len(item), reset_less=True), Signal()
        front, front_full = Signal(len(item), reset_less=True), Signal()
        m.d.comb += [
            self.input.ready.eq(~spare_full),
            Value.cast(self.output.payload).eq(front),
            self.output.valid.eq(front_full),
        ]
        with m.If(~spare_full):
            m.d.sync += spare.eq(item)
        with m.If(~front_full | self.output.ready):
            m.d.sync += [
                front_full.eq(spare_full | self.input.valid),
                spare_full.eq(0),
            ]
            with m.If(spare_full):
                m.d.sync += front.eq(spare)
            with m.Else():
                m.d.sync += front.eq(item)
        with m.Elif(self.input.valid):
            m.d.sync += spare_full.eq(1)
        return m
