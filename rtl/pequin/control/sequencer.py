"""The sequencer: runs the program and fills the units' queues."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.control.arithmetic import Alu, Multiplier
from pequin.control.check import InstructionCheck
from pequin.control.fetcher import Fetcher
from pequin.control.isa import REGISTERS, Instruction, Opcode
from pequin.control.step_table import StepTable
from pequin.control.types import FetchPort, SequencerCause, unit_item
from pequin.move.types import MEMORY_SHIFT
from pequin.tile.types import (
    PC_BITS,
    SEMAPHORES,
    ErrorCode,
    EventKind,
    Memory,
    StepItem,
    TakeRequest,
    TileEvent,
    UnitFault,
    UnitId,
)

_WRITERS = (
    *(Opcode.ADDI, Opcode.ADD, Opcode.SUB, Opcode.AND),
    *(Opcode.ANDI, Opcode.SHL, Opcode.SHR),
)
"""Instructions that write a register in their only clock."""

_BRANCHES = (Opcode.BEQ, Opcode.BNE, Opcode.BLT, Opcode.BGE)


class Sequencer(wiring.Component):
    """Run a program: scalar registers, branches, the step's table, items for the units' queues.

    *Timing*: an instruction takes one clock; a branch that is taken four, `mul` four, `ldt` two,
    `wait` and `step` at least two. The first instruction ends five clocks after `start`. `set`,
    `launch` and `event` wait only while the item or event before them is not taken. An item, an
    event or a signal goes out in the clock after its instruction. All outputs but `fetch` are
    registers or functions of few.

    A reset stops the program, empties the step's table and, within 16 clocks, sets the scalar
    registers to zero; a program that starts meanwhile waits. `pc` keeps its value.

    Parameters
    ----------
    params
        The tile's parameters: `columns`, `program_words`.

    Members
    -------
    fetch : Out(FetchPort())
    start : In(1), start_pc : In(PC_BITS)
        Pulse: run from `start_pc`; ignored while `running`. Registers and table are kept.
    steps : In(stream of StepItem)
        Taken while `step` waits.
    items : Out(stream of unit_item())
    events : Out(stream of TileEvent)
        `stamp` is 0.
    take : Out(TakeRequest), take_valid : Out(1), taken : In(1), lacks : In(5)
        As a user of `Semaphores`.
    signal : Out(5), signal_valid : Out(1)
        As a user of `Semaphores`.
    signal_pc : Out(PC_BITS)
        Program counter of the instruction that signalled in the clock before.
    fault : Out(UnitFault), fault_valid : Out(1)
        Pulse; the program has stopped, and all its events have been taken.
    pc : Out(PC_BITS)
        Of the instruction at work, or of the last one.
    running : Out(1)
        A program runs. After `halt` it falls when all items and events have been taken.
    pending : Out(1)
        A program runs and does not wait for a STEP.
    stepping : Out(1)
        It waits for a STEP.
    moved : Out(1)
        An instruction has ended in this clock.
    waiting : Out(1), waiting_for : Out(5)
        It waits for this semaphore.
    cause : Out(SequencerCause)
    """

    fetch: Any
    start: Any
    start_pc: Any
    steps: Any
    items: Any
    events: Any
    take: Any
    take_valid: Any
    taken: Any
    lacks: Any
    signal: Any
    signal_valid: Any
    signal_pc: Any
    fault: Any
    fault_valid: Any
    pc: Any
    running: Any
    pending: Any
    stepping: Any
    moved: Any
    waiting: Any
    waiting_for: Any
    cause: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        number = range(SEMAPHORES)
        super().__init__(
            {
                "fetch": Out(FetchPort()),
                "start": In(1),
                "start_pc": In(PC_BITS),
                "steps": In(stream.Signature(StepItem)),
                "items": Out(stream.Signature(unit_item())),
                "events": Out(stream.Signature(TileEvent)),
                "take": Out(TakeRequest),
                "take_valid": Out(1),
                "taken": In(1),
                "lacks": In(number),
                "signal": Out(number),
                "signal_valid": Out(1),
                "signal_pc": Out(PC_BITS),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "pc": Out(PC_BITS),
                "running": Out(1),
                "pending": Out(1),
                "stepping": Out(1),
                "moved": Out(1),
                "waiting": Out(1),
                "waiting_for": Out(number),
                "cause": Out(SequencerCause),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.fetcher = self._fetcher = Fetcher()
        m.submodules.check = self._check = InstructionCheck()
        m.submodules.alu = self._alu = Alu()
        m.submodules.multiplier = self._multiplier = Multiplier()
        m.submodules.table = self._table = StepTable(columns=self._params.config.columns)
        self._now: Any = Signal(Instruction, name="now")
        self._valid = Signal(name="now_valid")
        self._wrong: Any = Signal(UnitFault, name="wrong")
        self._unreadable = Signal(name="unreadable")
        self._begin = Signal(name="begin")
        self._finish = Signal(name="finish")
        self._pc: Any = Signal(PC_BITS, name="pc_now", reset_less=True)
        self._look(m)
        self._feed(m)
        self._keep_registers(m)
        self._leave(m)
        self._send(m)
        self._run(m)
        self._explain(m)
        return m

    def _look(self, m: Module) -> None:
        """Fetch and check the next instruction while the one before is at work."""
        fetcher, check = self._fetcher, self._check
        wiring.connect(m, fetcher.port, wiring.flipped(self.fetch))
        now, free = self._now, Signal(name="now_free")
        following: Any = Signal(Instruction, name="following")
        m.d.comb += [
            Value.cast(following).eq(fetcher.instruction.word),
            check.instruction.eq(following),
            free.eq(~self._valid | self._finish),
            fetcher.run.eq(self.running),
            fetcher.redirect.eq(self._begin | (self._finish & self._alu.jumps)),
            fetcher.target.eq(Mux(self._begin, self._pc, now.imm[:PC_BITS])),
            fetcher.take.eq(fetcher.valid & free),
        ]
        with m.If(free):
            m.d.sync += [
                now.eq(following),
                self._wrong.eq(check.fault),
                self._unreadable.eq(fetcher.instruction.failed),
                self._valid.eq(fetcher.valid),
            ]
        with m.If(fetcher.redirect):
            m.d.sync += self._valid.eq(0)

    def _feed(self, m: Module) -> None:
        """Give the instruction and its registers to what computes."""
        now, alu, table = self._now, self._alu, self._table
        m.d.comb += [
            alu.instruction.eq(now),
            self._multiplier.a.eq(alu.a),
            self._multiplier.b.eq(alu.b),
            table.column.eq(alu.a),
            table.field.eq(now.imm),
            table.steps.payload.eq(self.steps.payload),
            table.steps.valid.eq(self.steps.valid),
            self.steps.ready.eq(table.steps.ready),
        ]

    def _keep_registers(self, m: Module) -> None:
        """Read and write the scalar registers; nothing is ever written to r0."""
        now, alu = self._now, self._alu
        registers: Any = memory.Memory(shape=32, depth=REGISTERS, init=[])
        m.submodules.registers = registers
        write = registers.write_port()
        for source, port in ((now.rs, alu.a), (now.rt, alu.b)):
            read = registers.read_port(domain="comb")
            m.d.comb += [read.addr.eq(source), port.eq(read.data)]
        self._writes = Signal(name="writes")
        self._cleared = Signal(name="cleared")
        clearing = Signal(range(REGISTERS), name="clearing")
        m.d.comb += [
            write.addr.eq(now.rd),
            write.data.eq(alu.result),
            write.en.eq(self._writes & now.rd.any()),
        ]
        with m.Switch(now.opcode):
            with m.Case(Opcode.MUL):
                m.d.comb += write.data.eq(self._multiplier.product)
            with m.Case(Opcode.LDT):
                m.d.comb += write.data.eq(self._table.value)
        with m.If(~self._cleared):
            m.d.comb += [write.addr.eq(clearing), write.data.eq(0), write.en.eq(1)]
            m.d.sync += [
                clearing.eq(clearing + 1),
                self._cleared.eq(clearing == REGISTERS - 1),
            ]

    def _leave(self, m: Module) -> None:
        """Go on after an instruction, or fault when that leads out of the memory."""
        now, jumps = self._now, self._alu.jumps
        words = self._params.config.program_words
        # As signals: some of these are constant for the largest program memory.
        self._outside, far = Signal(name="start_outside"), Signal(name="target_outside")
        self._leaves = Signal(name="leaves")
        m.d.comb += [
            self._outside.eq(self._pc >= words),
            far.eq(now.imm >= words),
            self._leaves.eq(Mux(jumps, far, self._pc == words - 1)),
        ]
        with m.If(self._finish):
            with m.If(self._leaves):
                self._fail(m, ErrorCode.PC, Mux(jumps, now.imm, words))
            with m.Else():
                m.d.sync += self._pc.eq(Mux(jumps, now.imm[:PC_BITS], self._pc + 1))

    def _fail(self, m: Module, code: Any, detail: Any) -> None:
        m.d.sync += [self.fault.code.eq(code), self.fault.detail.eq(detail)]

    def _send(self, m: Module) -> None:
        """Hold what goes out until it is taken."""
        self._items_free, self._events_free = Signal(name="items_free"), Signal(name="events_free")
        sent_pc = Signal(PC_BITS, name="sent_pc")
        for port, free in ((self.items, self._items_free), (self.events, self._events_free)):
            m.d.comb += free.eq(~port.valid | port.ready)
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        m.d.sync += [
            self.signal_valid.eq(0),
            self.signal.eq(self._now.imm),
            sent_pc.eq(self._pc),
            self.signal_pc.eq(sent_pc),
        ]

    def _run(self, m: Module) -> None:
        """Step through the program."""
        self._ready, faulted = Signal(name="ready"), Signal(name="faulted")
        m.d.sync += self.fault_valid.eq(faulted)
        m.d.comb += self._ready.eq(self._valid & self._cleared)
        with m.FSM(name="run") as self._fsm:
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += self._pc.eq(self.start_pc)
                m.next = "START"
            with m.State("START"):
                m.d.comb += self._begin.eq(1)
                m.next = "EXECUTE"
                with m.If(self._outside):
                    self._fail(m, ErrorCode.PC, self._pc)
                    m.next = "FAULT"
            with m.State("EXECUTE"), m.If(self._ready):
                with m.If(self._unreadable):
                    place = Memory.PROGRAM.value << MEMORY_SHIFT | self._pc
                    self._fail(m, ErrorCode.SRAM_ECC, place)
                    m.next = "FAULT"
                with m.Elif(self._wrong.code != ErrorCode.NONE):
                    self._fail(m, self._wrong.code, self._wrong.detail)
                    m.next = "FAULT"
                with m.Else():
                    self._execute(m)
            with m.State("LOOK_UP"):
                m.d.comb += self._writes.eq(1)
                self._end(m)
            with m.State("WAIT"), m.If(self.taken):
                self._end(m)
            with m.State("STEP"), m.If(self._table.loaded):
                self._end(m)
            # What the program has told before its error must not be lost in the stop.
            with m.State("FAULT"), m.If(~self.events.valid):
                m.d.comb += faulted.eq(1)
                m.next = "IDLE"
        m.d.comb += [
            self.running.eq(~self._fsm.ongoing("IDLE")),
            self.stepping.eq(self._fsm.ongoing("STEP")),
            self._table.load.eq(self.stepping),
            self.pending.eq(self.running & ~self.stepping),
            self.take_valid.eq(self._fsm.ongoing("WAIT")),
            self.take.use_first.eq(self.take_valid),
            self.take.first.eq(self._now.imm),
        ]

    def _execute(self, m: Module) -> None:
        """Carry out an instruction, or go where it is carried out."""
        now, multiplier = self._now, self._multiplier
        unsent = self.items.valid | self.events.valid | self.signal_valid
        with m.Switch(now.opcode):
            with m.Case(Opcode.HALT), m.If(~unsent):
                m.next = "IDLE"
            with m.Case(*_WRITERS):
                m.d.comb += self._writes.eq(1)
                self._end(m)
            with m.Case(*_BRANCHES):
                self._end(m)
            with m.Case(Opcode.MUL):
                m.d.comb += multiplier.run.eq(1)
                with m.If(multiplier.done):
                    m.d.comb += self._writes.eq(1)
                    self._end(m)
            with m.Case(Opcode.LDT):
                m.next = "LOOK_UP"
                with m.If(~self._table.exists):
                    self._fail(m, ErrorCode.TABLE, self._alu.a)
                    m.next = "FAULT"
            with m.Case(Opcode.SET, Opcode.LAUNCH), m.If(self._items_free):
                self._send_item(m)
                self._end(m)
            with m.Case(Opcode.WAIT):
                m.next = "WAIT"
            with m.Case(Opcode.SIGNAL):
                m.d.sync += self.signal_valid.eq(1)
                self._end(m)
            with m.Case(Opcode.EVENT), m.If(self._events_free):
                self._send_event(m)
                self._end(m)
            with m.Case(Opcode.STEP):
                m.next = "STEP"

    def _end(self, m: Module) -> None:
        """End an instruction."""
        m.d.comb += self._finish.eq(1)
        m.next = "EXECUTE"
        with m.If(self._leaves):
            m.next = "FAULT"

    def _send_item(self, m: Module) -> None:
        now, payload = self._now, self.items.payload
        launches = now.opcode == Opcode.LAUNCH
        m.d.sync += [
            self.items.valid.eq(1),
            payload.unit.eq(UnitId(now.unit)),
            payload.item.launch.eq(launches),
            payload.item.register.eq(now.reg),
            payload.item.value.eq(Mux(launches, now.imm, self._alu.result)),
            payload.item.pc.eq(self._pc),
        ]

    def _send_event(self, m: Module) -> None:
        now, payload = self._now, self.events.payload
        m.d.sync += [
            self.events.valid.eq(1),
            payload.kind.eq(EventKind.DONE),
            payload.unit.eq(UnitId.SEQ),
            payload.code.eq(now.imm),
            payload.pc.eq(self._pc),
            payload.value.eq(self._alu.a),
        ]

    def _explain(self, m: Module) -> None:
        """Tell what this clock is spent on."""
        opcode, cause, state = self._now.opcode, self.cause, self._fsm.ongoing
        executes = state("EXECUTE")
        halts = executes & (opcode == Opcode.HALT)
        sends = executes & ((opcode == Opcode.SET) | (opcode == Opcode.LAUNCH))
        tells = executes & (opcode == Opcode.EVENT)
        m.d.comb += [
            self.pc.eq(self._pc),
            self.moved.eq(self._finish | self._begin),
            self.waiting.eq(self.take_valid & ~self.taken),
            self.waiting_for.eq(self.lacks),
            cause.eq(SequencerCause.EXECUTE),
        ]
        with m.If(~self.running):
            m.d.comb += cause.eq(SequencerCause.IDLE)
        with m.Elif(self.waiting):
            m.d.comb += cause.eq(SequencerCause.SEMAPHORE)
        with m.Elif(self.stepping):
            m.d.comb += cause.eq(SequencerCause.STEP)
        with m.Elif(self._begin | (executes & ~self._ready)):
            m.d.comb += cause.eq(SequencerCause.FETCH)
        with m.Elif((sends & ~self._items_free) | (halts & self.items.valid)):
            m.d.comb += cause.eq(SequencerCause.QUEUE)
        with m.Elif((tells & ~self._events_free) | ((halts | state("FAULT")) & self.events.valid)):
            m.d.comb += cause.eq(SequencerCause.EVENT)
