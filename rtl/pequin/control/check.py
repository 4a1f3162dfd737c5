"""What is wrong with an instruction, as far as its bits tell."""

from amaranth.hdl import Array, Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.control.isa import (
    CODE_BITS,
    COUNT_REGISTER,
    LEVELS,
    OPERANDS,
    SHIFT_BITS,
    Instruction,
    LaunchWord,
    Opcode,
)
from pequin.tile.types import COMMAND_WORDS, SEMAPHORES, STRIDED_WORDS, ErrorCode, UnitFault

_SEMAPHORE_BITS = (SEMAPHORES - 1).bit_length()
_IMM_BITS = {
    Opcode.SHL: SHIFT_BITS,
    Opcode.SHR: SHIFT_BITS,
    Opcode.EVENT: CODE_BITS,
    Opcode.LAUNCH: 26,
}
"""Bits of `imm` that an instruction may use, where that is not all of them."""


class InstructionCheck(wiring.Component):
    """Find an instruction's error, combinational: ILLEGAL, then UNIT, then SEMAPHORE.

    Members
    -------
    instruction : In(Instruction)
    fault : Out(UnitFault)
        Its code is NONE when there is no error.
    """

    instruction: In(Instruction)
    fault: Out(UnitFault)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        i, fault = self.instruction, self.fault
        legal, unit_error = Signal(name="legal"), Signal(name="unit_error")
        self._check_fields(m, legal)
        self._check_unit(m, unit_error)
        number, bad_number = Signal(32, name="number"), Signal(name="bad_number")
        self._check_semaphores(m, number, bad_number)
        with m.If(~legal):
            m.d.comb += [fault.code.eq(ErrorCode.ILLEGAL), fault.detail.eq(i.opcode)]
        with m.Elif(unit_error):
            m.d.comb += [fault.code.eq(ErrorCode.UNIT), fault.detail.eq(Cat(i.reg, i.unit))]
        with m.Elif(bad_number):
            m.d.comb += [fault.code.eq(ErrorCode.SEMAPHORE), fault.detail.eq(number)]
        return m

    def _check_fields(self, m: Module, legal: Signal) -> None:
        i = self.instruction
        fields = ("rd", "rs", "rt", "unit", "reg", "imm")
        set_ = {name: Signal(name=f"{name}_set") for name in fields}
        for name in fields:
            m.d.comb += set_[name].eq(i[name].any())
        with m.Switch(i.opcode):
            for opcode, used in OPERANDS.items():
                wrong: list[Value] = [set_[name] for name in fields if name not in used]
                if opcode in _IMM_BITS:
                    wrong.append(i.imm[_IMM_BITS[opcode] :].any())
                with m.Case(opcode):
                    m.d.comb += legal.eq(~Cat(wrong).any())

    def _check_unit(self, m: Module, unit_error: Signal) -> None:
        """Look the unit and its register up."""
        i = self.instruction
        rows = [(0, 0)] * 16
        for unit, count in COMMAND_WORDS.items():
            strided = sum(1 << word for word in STRIDED_WORDS[unit])
            rows[unit.value] = ((1 << count) - 1, strided | 1 << COUNT_REGISTER)
        words = Array(Const(first, 16) for first, _ in rows)[i.unit]
        loops = Array(Const(second, 16) for _, second in rows)[i.unit]
        level, place = i.reg[4:], i.reg[:4]
        exists, known = Signal(name="exists"), Signal(name="known")
        m.d.comb += known.eq(words.any())
        with m.If(level == 0):
            m.d.comb += exists.eq(words.bit_select(place, 1))
        with m.Elif(level <= LEVELS):
            m.d.comb += exists.eq(loops.bit_select(place, 1))
        with m.Switch(i.opcode):
            with m.Case(Opcode.SET):
                m.d.comb += unit_error.eq(~exists)
            with m.Case(Opcode.LAUNCH):
                m.d.comb += unit_error.eq(~known)

    def _check_semaphores(self, m: Module, number: Signal, bad: Signal) -> None:
        """Find the first number out of range of those that take part."""
        i = self.instruction
        launch = Signal(LaunchWord)
        m.d.comb += Value.cast(launch).eq(i.imm)
        with m.Switch(i.opcode):
            with m.Case(Opcode.WAIT, Opcode.SIGNAL):
                m.d.comb += [number.eq(i.imm), bad.eq(i.imm[_SEMAPHORE_BITS:].any())]
            with m.Case(Opcode.LAUNCH):
                for part in (launch.wait_b, launch.wait_a, launch.signal):
                    with m.If(part.use & part.number[_SEMAPHORE_BITS:].any()):
                        m.d.comb += [number.eq(part.number), bad.eq(1)]
