"""An interpreter for the sequencer's instructions, and benches for Amaranth's simulator."""

import random
from dataclasses import dataclass, field

import pytest
from amaranth.hdl import ClockDomain, Module, ResetInserter, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin.control.sequencer import Sequencer

MASK = 0xFFFFFFFF
FIELDS = 6
WORDS = {1: 6, 2: 2, 3: 5, 4: 14, 5: 14, 6: 5}
STRIDED = {
    1: (3, 5),
    2: (0,),
    3: (1,),
    4: (2, 3, 4, 8, 10, 11, 13),
    5: (2, 3, 4, 8, 10, 11, 13),
    6: (1, 2),
}
OPCODES = {
    name: number
    for number, name in enumerate(
        (
            *("halt", "addi", "add", "sub", "and", "andi", "shl", "shr", "mul"),
            *("beq", "bne", "blt", "bge", "ldt"),
            *("set", "launch", "wait", "signal", "event", "step"),
        ),
        start=1,
    )
}
USES = {
    **dict.fromkeys(("add", "sub", "and", "mul"), "rd rs rt"),
    **dict.fromkeys(("addi", "andi", "shl", "shr", "ldt"), "rd rs imm"),
    **dict.fromkeys(("beq", "bne", "blt", "bge"), "rs rt imm"),
    **dict.fromkeys(("wait", "signal"), "imm"),
    **{"halt": "", "step": "", "set": "unit reg rs imm", "launch": "unit imm", "event": "rs imm"},
}
PLACES = {"opcode": (0, 8), "rd": (8, 4), "rs": (12, 4), "rt": (16, 4), "unit": (20, 4)}
PLACES |= {"reg": (24, 8), "imm": (32, 32)}


def ins(name, **fields):
    """Return the 64 bits of an instruction."""
    word = OPCODES[name]
    for key, value in fields.items():
        low, bits = PLACES[key]
        word |= (value & ((1 << bits) - 1)) << low
    return word


class StopError(Exception):
    """The interpreter meets an error: code and detail."""


@dataclass
class Trace:
    """What a program did, by kind and in order; the last fault; instructions that ended."""

    items: list = field(default_factory=list)
    events: list = field(default_factory=list)
    signals: list = field(default_factory=list)
    takes: list = field(default_factory=list)
    fault: tuple | None = None
    ended: int = 0
    clocks: int = 0


class Interpreter:
    """The sequencer as docs/isa.md has it; `failing` addresses cannot be read."""

    def __init__(self, size):
        self.size = size
        self.clear()

    def clear(self):
        self.registers, self.table = [0] * 16, []

    def run(self, program, steps=(), start=0, failing=(), limit=100_000):
        trace, steps, pc = Trace(), list(steps), start
        try:
            self._reach(pc)
            while trace.ended < limit:
                if pc in failing:
                    raise StopError(10, 3 << 28 | pc)
                word = program[pc] if pc < len(program) else 0
                if word == OPCODES["halt"]:
                    break
                target = self._one(word, pc, trace, steps)
                trace.ended += 1
                pc = self._reach(target)
        except StopError as stop:
            trace.fault = (*stop.args, pc)
        return trace

    def _reach(self, target):
        if target >= self.size:
            raise StopError(2, target)
        return target

    def _one(self, word, pc, trace, steps):
        get = {name: word >> low & ((1 << bits) - 1) for name, (low, bits) in PLACES.items()}
        names = {number: name for name, number in OPCODES.items()}
        name, imm, unit, reg = names.get(get["opcode"]), get["imm"], get["unit"], get["reg"]
        legal = name is not None and all(
            not get[key] for key in PLACES if key != "opcode" and key not in USES[name].split()
        )
        most = {"shl": 31, "shr": 31, "event": 0xFFFF, "launch": (1 << 26) - 1}
        if not legal or imm > most.get(name, MASK):
            raise StopError(1, get["opcode"])
        r = self.registers
        a, b = r[get["rs"]], r[get["rt"]]
        result = {
            "addi": a + imm,
            "add": a + b,
            "sub": a - b,
            "and": a & b,
            "andi": a & imm,
            "shl": a << (imm & 31),
            "shr": a >> (imm & 31),
            "mul": a * b,
        }.get(name)
        if name == "ldt":
            if imm != 15 and (a >= len(self.table) or imm >= FIELDS):
                raise StopError(3, a)
            result = len(self.table) if imm == 15 else self.table[a][imm]
        if result is not None and get["rd"]:
            r[get["rd"]] = result & MASK
        if name in ("beq", "bne", "blt", "bge"):
            taken = {"beq": a == b, "bne": a != b, "blt": a < b, "bge": a >= b}[name]
            return imm if taken else pc + 1
        if name == "set":
            place = reg % 16
            loop = 1 <= reg // 16 <= 3 and (place == 15 or place in STRIDED.get(unit, ()))
            if unit not in WORDS or not (reg < WORDS[unit] or loop):
                raise StopError(4, unit << 8 | reg)
            trace.items.append((unit, 0, reg, (a + imm) & MASK, pc))
        elif name == "launch":
            if unit not in WORDS:
                raise StopError(4, unit << 8)
            for low in (2, 10, 18):
                if imm >> low & 1 and imm >> low + 1 & 63 > 31:
                    raise StopError(5, imm >> low + 1 & 63)
            trace.items.append((unit, 1, 0, imm, pc))
        elif name in ("wait", "signal"):
            if imm > 31:
                raise StopError(5, imm)
            (trace.takes if name == "wait" else trace.signals).append(imm)
        elif name == "event":
            trace.events.append((imm, pc, a))
        elif name == "step":
            self.table = steps.pop(0)
        return pc + 1


class SequencerBench:
    """A sequencer with a memory, takers and givers that pause at random."""

    def __init__(self, params, *, seed=0, pause=0.0):
        self.params, self.pause, self.random = params, pause, random.Random(seed)
        self.dut, self.reset = Sequencer(params), Signal()
        self.causes = []

    def run(self, jobs):
        """Run each job (a dict for `_job`) and return its trace; a fault is followed by a reset."""
        top, traces = Module(), []
        top.domains.sync = ClockDomain()
        top.submodules.dut = ResetInserter(self.reset)(self.dut)

        async def bench(ctx):
            for job in jobs:
                traces.append(await self._job(ctx, **job))

        simulator = Simulator(top)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
        return traces

    def _steps(self, steps):
        """Return the parts of the steps, the fields of each in any order, some beyond the table."""
        parts = []
        for columns in steps:
            fields = [(c, f, value) for c, row in enumerate(columns) for f, value in enumerate(row)]
            self.random.shuffle(fields)
            fields.append((self.params.config.columns, 0, 0x55555555))
            fields.append((0, FIELDS, 0x66666666))
            parts += [c << 1 | f << 9 | v << 13 for c, f, v in fields]
            parts.append(1 | len(columns) << 13)
        return parts

    async def _job(self, ctx, *, program, steps=(), start=0, failing=(), limit=100_000, ended=None):
        dut, trace, choose = self.dut, Trace(), self.random.random
        parts, pipe, size = self._steps(steps), [None, None], self.params.config.program_words
        items, events = Value.cast(dut.items.payload), dut.events.payload
        offered = False
        ctx.set(dut.start, 1)
        ctx.set(dut.start_pc, start)
        for clock in range(limit):
            at = pipe[1]
            word = program[at] if at is not None and at < len(program) else 0
            bad = at in failing if at is not None else choose() < 0.5
            word = self.random.getrandbits(64) if at is None or bad else word
            ctx.set(dut.fetch.instruction, word)
            ctx.set(dut.fetch.failed, bad)
            for ready in (dut.fetch.address.ready, dut.items.ready, dut.events.ready):
                ctx.set(ready, choose() >= self.pause)
            offered = bool(parts) and (offered or choose() >= self.pause)
            ctx.set(dut.steps.valid, offered)
            if parts:
                ctx.set(Value.cast(dut.steps.payload), parts[0])
            ctx.set(dut.taken, ctx.get(dut.take_valid) & int(choose() >= self.pause))
            if ctx.get(dut.taken):
                assert ctx.get(Value.cast(dut.take)) & 1
                assert not ctx.get(dut.take.use_second)
                trace.takes.append(ctx.get(dut.take.first))
            if ctx.get(dut.items.valid) & ctx.get(dut.items.ready):
                raw = ctx.get(items)
                item = (raw & 15, raw >> 4 & 1, raw >> 5 & 255, raw >> 13 & MASK, raw >> 45)
                trace.items.append(item)
            if ctx.get(dut.events.valid) & ctx.get(dut.events.ready):
                assert ctx.get(Value.cast(events.kind)) == 2
                assert not ctx.get(Value.cast(events.unit)) | ctx.get(events.detail)
                trace.events.append(
                    (ctx.get(events.code), ctx.get(events.pc), ctx.get(events.value))
                )
            if ctx.get(dut.signal_valid):
                trace.signals.append(ctx.get(dut.signal))
            if ctx.get(dut.steps.valid) & ctx.get(dut.steps.ready):
                parts.pop(0)
                offered = False
            accepted = ctx.get(dut.fetch.address.valid) & ctx.get(dut.fetch.address.ready)
            address = ctx.get(dut.fetch.address.payload) % size if accepted else None
            pipe = [address, pipe[0]]
            trace.ended += ctx.get(dut.moved) if clock > 1 else 0
            self.causes.append(ctx.get(Value.cast(dut.cause)))
            if ctx.get(dut.fault_valid):
                fault = (ctx.get(Value.cast(dut.fault.code)), ctx.get(dut.fault.detail))
                trace.fault = (*fault, ctx.get(dut.pc))
            await ctx.tick()
            ctx.set(dut.start, 0)
            trace.clocks = clock
            if clock and not ctx.get(dut.running) and not ctx.get(dut.fault_valid):
                break
            if trace.ended == ended:
                break
        else:
            pytest.fail(f"no end after {limit} clocks: {trace}")
        if trace.fault or ended is not None:
            ctx.set(self.reset, 1)
            await ctx.tick()
            where = ctx.get(dut.pc)
            assert where == (trace.fault[2] if trace.fault else where)
            await ctx.tick()
            ctx.set(self.reset, 0)
            assert ctx.get(dut.pc) == where
            assert not ctx.get(dut.running)
        return trace


class ModelRam(wiring.Component):
    """`pequin.ram.Ram` for Amaranth's simulator."""

    def __init__(self, *, width, depth, name):
        self.width, self.depth, self.name = width, depth, name
        address = range(depth)
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(address),
                "read_data": Out(width),
                "write_en": In(1),
                "write_addr": In(address),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(shape=self.width, depth=self.depth, init=[])
        read, write = words.read_port(), words.write_port()
        m.d.comb += [
            read.en.eq(self.read_en),
            read.addr.eq(self.read_addr),
            self.read_data.eq(read.data),
            write.en.eq(self.write_en),
            write.addr.eq(self.write_addr),
            write.data.eq(self.write_data),
        ]
        return m


def small_params(**changes):
    """Return the parameters of `tiny` with some fields changed."""
    return TileParams(TileConfig.preset("tiny").replace(**changes))


@pytest.fixture(scope="session")
def params():
    """Return `small_params`."""
    return small_params


@pytest.fixture(scope="session")
def instruction():
    """Return `ins`."""
    return ins


@pytest.fixture(scope="session")
def interpreter():
    """Return `Interpreter`."""
    return Interpreter


@pytest.fixture(scope="session")
def sequencer_bench():
    """Return `SequencerBench`."""
    return SequencerBench


@pytest.fixture
def model_ram(monkeypatch):
    """Let the program memory run in Amaranth's simulator."""
    monkeypatch.setattr("pequin.control.program.Ram", ModelRam)
