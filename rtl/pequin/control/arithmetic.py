"""What the sequencer computes: sums, logic, shifts, comparisons, products."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.control.isa import SHIFT_BITS, Instruction, Opcode

_HALF = 16
"""Bits of a factor of the one multiplier."""


class Alu(wiring.Component):
    """Result and branch decision of an instruction, combinational.

    Members
    -------
    instruction : In(Instruction)
    a, b : In(32)
        Registers rs and rt.
    result : Out(32)
        What goes to rd, or to a unit's register; meaningless for `mul` and `ldt`.
    jumps : Out(1)
        It is a branch, and taken.
    """

    instruction: In(Instruction)
    a: In(32)
    b: In(32)
    result: Out(32)
    jumps: Out(1)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        i, a, b = self.instruction, self.a, self.b
        less, equal = Signal(name="less"), Signal(name="equal")
        distance = i.imm[:SHIFT_BITS]
        m.d.comb += [less.eq(a < b), equal.eq(a == b), self.result.eq(a + i.imm)]
        with m.Switch(i.opcode):
            for opcode, result in (
                (Opcode.ADD, a + b),
                (Opcode.SUB, a - b),
                (Opcode.AND, a & b),
                (Opcode.ANDI, a & i.imm),
                (Opcode.SHL, (a << distance)[:32]),
                (Opcode.SHR, a >> distance),
            ):
                with m.Case(opcode):
                    m.d.comb += self.result.eq(result)
            for opcode, taken in (
                (Opcode.BEQ, equal),
                (Opcode.BNE, ~equal),
                (Opcode.BLT, less),
                (Opcode.BGE, ~less),
            ):
                with m.Case(opcode):
                    m.d.comb += self.jumps.eq(taken)
        return m


class Multiplier(wiring.Component):
    """Low 32 bits of a product, by one multiplier of 16 x 16 bits.

    *Timing*: `done` with the product in the fourth clock of `run`.

    Members
    -------
    run : In(1), a, b : In(32)
        Factors, held until `done`.
    done : Out(1), product : Out(32)
    """

    run: Any
    a: Any
    b: Any
    done: Any
    product: Any

    def __init__(self) -> None:
        super().__init__(
            {"run": In(1), "a": In(32), "b": In(32), "done": Out(1), "product": Out(32)}
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        phase = Signal(2)
        left, right = Signal(_HALF, name="left"), Signal(_HALF, name="right")
        part = Signal(2 * _HALF)
        low, high = Signal(_HALF, name="low"), Signal(_HALF, name="high")
        m.d.comb += [
            left.eq(Mux(phase == 2, self.a[_HALF:], self.a[:_HALF])),
            right.eq(Mux(phase == 1, self.b[_HALF:], self.b[:_HALF])),
            self.product.eq(Cat(low, (high + part[:_HALF])[:_HALF])),
            self.done.eq(phase == 3),
        ]
        m.d.sync += part.eq(left * right)
        with m.If(self.run):
            m.d.sync += phase.eq(phase + 1)
        with m.If(phase == 1):
            m.d.sync += [low.eq(part[:_HALF]), high.eq(part[_HALF:])]
        with m.Elif(phase == 2):
            m.d.sync += high.eq(self.product[_HALF:])
        return m
