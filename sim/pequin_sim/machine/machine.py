"""The golden machine: a program, executed in program order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from pequin.config import TileParams
from pequin.errors import InputError
from pequin_sim.isa import UNIT_NAMES, UNITS, Instruction, LaunchWord, Program, decode, is_legal
from pequin_sim.machine.capacity import Capacity, Work
from pequin_sim.machine.events import (
    ErrorCode,
    Event,
    EventKind,
    Fault,
    ProgramError,
    RaceError,
    Step,
)
from pequin_sim.machine.fetch import Words, dma, kv, stream
from pequin_sim.machine.multiply import mac
from pequin_sim.machine.order import Clock, Order
from pequin_sim.machine.races import Access, Race, Range, Shadow
from pequin_sim.machine.records import CommandRecord, Result, Where
from pequin_sim.machine.registers import UnitRegisters
from pequin_sim.machine.sequencer import Sequencer, check_semaphores
from pequin_sim.machine.state import Beats, Effects, Product, State
from pequin_sim.machine.vectors import drain, vector

EXECUTE: dict[int, Callable[[State, Words, int], Effects]] = {
    UNITS["mac"]: mac,
    UNITS["stream"]: stream,
    UNITS["kv"]: kv,
    UNITS["vector"]: vector,
    UNITS["drain"]: drain,
    UNITS["dma"]: dma,
}
"""What executes a command of each unit: state, words, program address of the launch."""

RaceMode = Literal["raise", "collect", "off"]


@dataclass
class _Log:
    """What a run collects."""

    events: list[Event] = field(default_factory=list)
    commands: list[CommandRecord] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)
    instructions: int = 0


class Machine:
    """A tile without time: commands are executed when they are launched.

    Parameters
    ----------
    params
        Sizes.
    hbm
        uint8 [beats, 32]: the beginning of the HBM store; the rest is zero.
    program
        The program, or its words (uint64).
    races
        "raise" a `RaceError` at the first race, "collect" them in the results, or "off".
    capacity
        Refuse a program that deadlocks because a queue or FIFO is full.
    hook
        Called after each command with its record and the machine.
    keep_values
        Keep what commands computed in their records.
    limit
        Instructions and commands of a run after which it is refused as endless.

    Raises
    ------
    InputError
        The program or the memory do not fit the tile.
    """

    def __init__(
        self,
        params: TileParams,
        hbm: Beats,
        program: Program | Sequence[int] | npt.NDArray[np.uint64],
        *,
        races: RaceMode = "raise",
        capacity: bool = True,
        hook: Callable[[CommandRecord, Machine], None] | None = None,
        keep_values: bool = False,
        limit: int = 10_000_000,
    ) -> None:
        words = program.words if isinstance(program, Program) else program
        size = params.config.program_words
        if len(words) > size:
            raise InputError(f"a program of {len(words)} instructions does not fit {size}")
        self.params = params
        self.program = program if isinstance(program, Program) else None
        self.memory = State(params, hbm)
        self.sequencer = Sequencer(size)
        self._code = [decode(int(word)) for word in words]
        self._code += [Instruction(0)] * (size - len(words))
        self._race_mode, self._hook = races, hook
        self._capacity_on, self._keep, self._limit = capacity, keep_values, limit
        self._where: Where = "halted"
        self._log, self._work = _Log(), 0
        self._reset_units()

    def _reset_units(self) -> None:
        self.memory.clear()
        self.order = Order()
        self.sequencer.clear()
        self.registers = {unit: UnitRegisters(unit) for unit in EXECUTE}
        self._shadow = Shadow(self.memory.sizes())
        self._capacity = Capacity(self.params) if self._capacity_on else None

    def run(self, steps: Iterable[Step] = (), start: int = 0) -> Result:
        """Start the program and run it until it halts, fails, or wants a step that is not there.

        Parameters
        ----------
        steps
            STEPs of the host, in order.
        start
            Program address.

        Raises
        ------
        ProgramError
            The program would deadlock, or depends on timing; `RaceError` for a race.
        """
        if self._where == "waiting":
            raise InputError("the program is waiting for a STEP: give it one with `step`")
        self.order.clear_semaphores()
        if self._capacity:
            self._capacity.start()
        return self._run(list(steps), start)

    def step(self, *steps: Step) -> Result:
        """Give a waiting program further STEPs and go on.

        Raises
        ------
        ProgramError
            As for `run`.
        InputError
            No program waits.
        """
        if self._where != "waiting":
            raise InputError(f"no program is waiting for a STEP: it has {self._where}")
        return self._run(list(steps), None)

    def read(self, place: Range) -> npt.NDArray[np.generic]:
        """Return the content of a place, as a hook sees it in a command's record."""
        memory = self.memory
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "vector": memory.vector_bits,
            "scalars": memory.unit.scalars.view(np.uint32),
            "limits": memory.unit.limits,
            "activations": memory.elements.reshape(-1, memory.elements.shape[-1]),
            "kv": memory.kv.reshape(-1),
            "kv_blocks": np.array([memory.kv_blocks]),
        }
        if place.memory == "hbm":
            return memory.read_hbm(place.start, place.stop - place.start)
        return arrays[place.memory][place.slice]

    def _run(self, steps: list[Step], start: int | None) -> Result:
        self._log, self._work = _Log(), 0
        for step in steps:
            if len(step.columns) > self.params.config.columns:
                raise InputError(
                    f"a step has at most {self.params.config.columns} columns, not "
                    f"{len(step.columns)}"
                )
        try:
            if start is not None:
                self.sequencer.go(start)
            self._where = self._loop(steps)
        except Fault as fault:
            self._fail(fault, "seq", self.sequencer.pc)
        return self._result()

    def _loop(self, steps: list[Step]) -> Where:
        sequencer = self.sequencer
        while True:
            instruction = self._code[sequencer.pc]
            if instruction.mnemonic == "step" and is_legal(instruction):
                if not steps:
                    return "waiting"
                sequencer.take(steps.pop(0))
            self._log.instructions += 1
            self._count()
            if sequencer.execute(instruction):
                continue
            if instruction.mnemonic == "halt":
                self._check_empty()
                if self._capacity:
                    self._capacity.halt(sequencer.pc)
                return "halted"
            if not self._execute(instruction):
                return "error"
            sequencer.go(sequencer.pc + 1)

    def _count(self) -> None:
        """Count an instruction or a command, and refuse a program without an end."""
        self._work += 1
        if self._work > self._limit:
            where = self._name(self.sequencer.pc)
            raise ProgramError(f"no end after {self._limit} instructions and commands, at {where}")

    def _execute(self, i: Instruction) -> bool:
        """Execute an instruction that concerns units or the host; return False after an error."""
        pc, value = self.sequencer.pc, self.sequencer.registers[i.rs]
        if i.mnemonic == "set":
            self._registers(i.unit, i.reg).set(i.reg, value + i.imm)
            if self._capacity:
                self._capacity.set(i.unit, pc)
        elif i.mnemonic == "launch":
            return self._launch(i.unit, LaunchWord.unpack(i.imm), pc)
        elif i.mnemonic == "wait":
            check_semaphores(i.imm)
            self.order.wait(UNITS["seq"], (i.imm,), pc)
            self.order.begin(UNITS["seq"])
            if self._capacity:
                self._capacity.wait(i.imm, pc)
        elif i.mnemonic == "signal":
            check_semaphores(i.imm)
            self.order.begin(UNITS["seq"])
            self._signal(UNITS["seq"], i.imm, pc)
            if self._capacity:
                self._capacity.signal(i.imm)
        elif i.mnemonic == "event":
            self._log.events.append(Event(EventKind.DONE, "seq", i.imm, pc, value))
        return True

    def _registers(self, unit: int, register: int) -> UnitRegisters:
        if unit not in self.registers:
            raise Fault(ErrorCode.UNIT, unit << 8 | register)
        return self.registers[unit]

    def _launch(self, unit: int, launch: LaunchWord, pc: int) -> bool:
        self._registers(unit, 0)
        check_semaphores(*launch.semaphores)
        seq = UNITS["seq"]
        self.order.learn(unit, self.order.at(seq, self.order.number(seq)))
        works: list[Work] = []
        try:
            count, commands = self._commands(unit, launch, pc)
            for number, words in enumerate(commands):
                self._count()
                ends = number + 1 == count
                waits = tuple(s for s, each in launch.waits if each or number == 0)
                signalled = launch.signal is not None and (launch.signal_each or ends)
                signals = (launch.signal,) if signalled and launch.signal is not None else ()
                works.append(self._command(unit, words, pc, waits, signals))
        except Fault as fault:
            self._fail(fault, UNIT_NAMES[unit], pc)
            return False
        if self._capacity:
            self._capacity.launch(unit, pc, works)
        return True

    def _commands(self, unit: int, launch: LaunchWord, pc: int) -> tuple[int, Iterator[Words]]:
        try:
            return self.registers[unit].commands(launch.levels)
        except Fault:  # told when the launch's turn has come
            self.order.wait(unit, tuple(number for number, _ in launch.waits), pc)
            raise

    def _command(
        self, unit: int, words: Words, pc: int, waits: tuple[int, ...], signals: tuple[int, ...]
    ) -> Work:
        """Execute one command; return what it means for queues and streams."""
        self.order.wait(unit, waits, pc)
        number = self.order.begin(unit)
        effects = EXECUTE[unit](self.memory, words, pc)
        self._connect(unit, number, pc, effects)
        self._log.events += effects.tokens
        self._record(
            CommandRecord(
                UNIT_NAMES[unit],
                number,
                pc,
                words,
                tuple(effects.reads),
                tuple(effects.writes),
                waits,
                signals,
                effects.values if self._keep or self._hook else None,
            )
        )
        if effects.fault is not None:
            effects.fault.unit = effects.fault_unit
            raise effects.fault
        for semaphore in signals:
            self._signal(unit, semaphore, pc)
        return Work.of(effects, waits, signals)

    def _connect(self, unit: int, number: int, pc: int, effects: Effects) -> None:
        """Find what comes before a command, and let streams carry it on."""
        if effects.first is not None:
            self.order.learn(unit, effects.first.start)
        known = self.order.known(unit)
        if self._race_mode != "off":
            self._check_races(Access(unit, number, pc), known, effects)
        # A unit fills its stream command after command. Only dma also writes elsewhere, and what
        # it has written may still be under way.
        begun = 0 if unit == UNITS["dma"] else number - 1
        start = self.order.at(unit, begun)
        for product in effects.ended:
            self.order.learn(unit, product.end)
        if effects.product is not None:
            done = 0 if unit == UNITS["dma"] else number
            effects.product.start, effects.product.end = start, self.order.at(unit, done)

    def _check_races(self, who: Access, known: Clock, effects: Effects) -> None:
        for race in self._shadow.check(who, known, effects.reads, effects.writes):
            self._report(race)

    def _signal(self, unit: int, number: int, pc: int) -> None:
        before = len(self.order.overflows)
        self.order.signal(unit, number, pc)
        if self._race_mode != "off" and len(self.order.overflows) > before:
            who = Access(unit, self.order.number(unit), pc)
            place = Range("semaphore", number, number + 1)
            self._report(Race(who, who, "overflow", place))

    def _report(self, race: Race) -> None:
        if self._race_mode == "raise":
            raise RaceError(str(race))
        self._log.races.append(race)

    def _record(self, record: CommandRecord) -> None:
        self._log.commands.append(record)
        if self._hook is not None:
            self._hook(record, self)

    def _fail(self, fault: Fault, unit: str, pc: int) -> None:
        who = fault.unit or unit
        event = Event(EventKind.ERROR, who, int(fault.code), pc, detail=fault.detail)
        self._log.events.append(event)
        self._where = "error"
        self._reset_units()

    def _check_empty(self) -> None:
        """Refuse a program that halts while a stream holds something."""
        m = self.memory
        beats: Sequence[tuple[str, Sequence[Product]]] = (
            ("stream beats of pc {} that no mac command takes", m.fifo),
            ("kv beats of pc {} that no mac command takes", m.kv_beats),
            ("results of pc {} that no drain command takes", m.results),
            ("blocks of pc {} that no drain command takes", m.blocks),
        )
        for text, products in beats:
            if products:
                raise ProgramError(f"the program halts with {text.format(products[0].pc)}")

    def _name(self, pc: int) -> str:
        return f"pc {self.program.where(pc) if self.program else pc}"

    def _result(self) -> Result:
        m, log = self.memory, self._log
        return Result(
            state=self._where,
            pc=self.sequencer.pc,
            events=log.events,
            commands=log.commands,
            races=log.races,
            instructions=log.instructions,
            vector=m.vector_bits,
            scalars=m.unit.scalars.view(np.uint32),
            limits=m.unit.limits,
            activations=m.elements,
            scales=m.scales,
            kv=m.kv,
            hbm=m.hbm,
        )
