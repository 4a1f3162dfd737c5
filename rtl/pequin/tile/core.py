"""The tile but for its host port: everything between the host's accesses and the units."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.control.command_queue import CommandQueue
from pequin.control.program import ProgramMemory
from pequin.control.semaphores import Semaphores
from pequin.control.sequencer import Sequencer
from pequin.harness.pauses import PauseControl
from pequin.host.types import HostCause
from pequin.kv.buffer import KvBuffer
from pequin.mac.array import MacArray
from pequin.move.dma import DmaUnit
from pequin.move.stream_engine import StreamEngine
from pequin.move.weight_fifo import WeightFifo
from pequin.streams import connect_streams
from pequin.tile.arbiter import AccessArbiter
from pequin.tile.counters import TileCounters, counter_names
from pequin.tile.dispatch import dispatch_items, share_semaphores, share_stream_commands
from pequin.tile.events import EventMerge
from pequin.tile.guard import ReadGuard
from pequin.tile.hbm_ports import connect_with_pauses
from pequin.tile.inside import ActivationAccess, ScalarAccess
from pequin.tile.mac_commands import MacCommands
from pequin.tile.memory import tile_memory
from pequin.tile.registers import Registers
from pequin.tile.router import HostRouter
from pequin.tile.stop import Starter
from pequin.tile.supervisor import Supervisor
from pequin.tile.types import (
    COMMAND_WORDS,
    STAMP_BITS,
    StepItem,
    TileAccess,
    TileAnswer,
    TileControl,
    TileEvent,
    UnitId,
)
from pequin.tile.vector_commands import VectorCommands
from pequin.tile.weights import WeightSelect
from pequin.vector import VectorUnit
from pequin.vector.unit import LaneCause

__all__ = ["TileCore", "counter_names"]

QUEUED = tuple(COMMAND_WORDS)
"""The units that have a command queue."""

STATE_BITS = 5
"""Bits of `TileCore.state`."""


class TileCore(wiring.Component):
    """Sequencer, units, memories and HBM channel of a tile.

    Parameters
    ----------
    params
        The tile's parameters.
    hbm_pauses
        Test only: random pauses between the channel and the tile's ports.

    Members
    -------
    accesses : In(stream of TileAccess), answers : Out(stream of TileAnswer)
        Memories, in order.
    steps : In(stream of StepItem)
    control : In(stream of TileControl)
    events : Out(stream of TileEvent)
    state : Out(5)
        Bit 0 the sequencer runs, 1 the tile is stopping, 2 units have work, 3 the sequencer waits
        for a STEP, 4 an error has stopped the tile since the last START.
    flip_hbm, flip_kv, flip_fifo, flip_program : In(2)
        Error injection: bits 0 and 1 of the words read from HBM, or written to the SRAMs, are
        inverted.
    hbm_pauses : In(PauseControl)
        With the parameter of that name.
    host_cause : In(HostCause)
        What the host port did in this clock, to be counted.
    """

    accesses: Any
    answers: Any
    steps: Any
    control: Any
    events: Any
    state: Any
    flip_hbm: Any
    flip_kv: Any
    flip_fifo: Any
    flip_program: Any
    hbm_pauses: Any
    host_cause: Any

    def __init__(self, params: TileParams, *, hbm_pauses: bool = False) -> None:
        self._params, self._pauses = params, hbm_pauses
        super().__init__(
            {
                "accesses": In(stream.Signature(TileAccess)),
                "answers": Out(stream.Signature(TileAnswer)),
                "steps": In(stream.Signature(StepItem)),
                "control": In(stream.Signature(TileControl)),
                "events": Out(stream.Signature(TileEvent)),
                "state": Out(STATE_BITS),
                "host_cause": In(HostCause, init=HostCause.IDLE),
                **{name: In(2) for name in self.flips},
                **({"hbm_pauses": In(PauseControl)} if hbm_pauses else {}),
            }
        )

    flips = ("flip_hbm", "flip_kv", "flip_fifo", "flip_program")

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def controls(self) -> tuple[str, ...]:
        """Ports that are no streams and that a testbench drives."""
        return (*self.flips, *(("hbm_pauses",) if self._pauses else ()))

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._freeze, self._clear = Signal(name="freeze"), Signal(name="clear")
        self._clear_counters = Signal(name="clear_counters")
        self._stamp = Signal(STAMP_BITS, name="stamp")
        m.d.sync += self._stamp.eq(self._stamp + 1)
        self._elaborate_units(m)
        self._elaborate_control(m)
        self._elaborate_commands(m)
        self._elaborate_weights(m)
        self._elaborate_vector(m)
        self._elaborate_registers(m)
        self._elaborate_hbm(m)
        self._elaborate_host(m)
        self._elaborate_supervisor(m)
        self._elaborate_events(m)
        self._elaborate_state(m)
        self._elaborate_counters(m)
        return m

    def _elaborate_units(self, m: Module) -> None:
        """Create the units; all of them are cleared after a stop."""
        p = self._params
        clear = ResetInserter(self._clear)
        self._mac = MacArray(p, peek=True)
        self._stream, self._dma, self._kv = StreamEngine(p), DmaUnit(p), KvBuffer(p)
        self._fifo, self._vector = WeightFifo(p), VectorUnit(p, peek=True)
        self._weights, self._arbiter = WeightSelect(), AccessArbiter(p)
        self._mac_commands, self._vector_commands = MacCommands(p), VectorCommands(p)
        self._activations, self._scalars = ActivationAccess(p), ScalarAccess(p)
        for name in (
            *("mac", "stream", "dma", "kv", "fifo", "weights", "arbiter"),
            *("mac_commands", "vector_commands", "activations", "scalars"),
        ):
            m.submodules[name] = clear(getattr(self, f"_{name}"))
        # Not `vector`: inside the unit that is a signal, which Verilator calls hidden.
        m.submodules.vector_unit = clear(self._vector)

    def _elaborate_control(self, m: Module) -> None:
        """Sequencer, program and queues; they are held in reset while the tile stops."""
        p = self._params
        halt = ResetInserter(self._freeze)
        self._start = Signal(name="start")
        m.submodules.starter = self._starter = Starter()
        connect_streams(m, wiring.flipped(self.control), self._starter.control)
        m.d.comb += [
            self._start.eq(self._starter.start),
            self._clear_counters.eq(self._starter.clear_counters),
        ]
        self._sequencer, self._semaphores = Sequencer(p), Semaphores()
        m.submodules.sequencer = halt(self._sequencer)
        m.submodules.semaphores = ResetInserter(self._start)(self._semaphores)
        m.submodules.program = self._program = ProgramMemory(p)
        self._queues = {unit: CommandQueue(unit, p) for unit in QUEUED}
        for unit, queue in self._queues.items():
            m.submodules[f"queue_{unit.name.lower()}"] = halt(queue)
        sequencer = self._sequencer
        connect_streams(m, wiring.flipped(self.steps), sequencer.steps)
        wiring.connect(m, sequencer.fetch, self._program.fetch)
        m.d.comb += [
            sequencer.start.eq(self._start),
            sequencer.start_pc.eq(self._starter.start_pc),
            self._program.flip.eq(self.flip_program),
        ]
        dispatch_items(m, sequencer, self._queues)
        share_semaphores(m, self._semaphores, (sequencer, *self._queues.values()))

    def _elaborate_commands(self, m: Module) -> None:
        """Join queues and units, and completions and queues."""
        mac, vector = self._mac_commands, self._vector_commands
        sinks = {
            UnitId.MAC: (mac.command, mac.done),
            UnitId.KV: (self._kv.command, self._kv.done),
            UnitId.VECTOR: (vector.vector, vector.done[0]),
            UnitId.DRAIN: (vector.drain, vector.done[1]),
            UnitId.DMA: (self._dma.command, self._dma.done),
        }
        for unit, (sink, done) in sinks.items():
            connect_streams(m, self._queues[unit].command, sink)
            m.d.comb += self._queues[unit].done.eq(done)
        queue, engine = self._queues[UnitId.STREAM], self._stream
        m.d.comb += queue.done.eq(engine.done)
        share_stream_commands(
            m, queue.command, engine.command, self._weights.beats, clear=self._freeze
        )

    def _elaborate_weights(self, m: Module) -> None:
        """Join HBM, FIFO, KV buffer and MAC array."""
        mac, weights = self._mac, self._weights
        connect_streams(m, self._stream.output, self._fifo.input)
        connect_streams(m, self._fifo.output, weights.fifo)
        connect_streams(m, self._kv.output, weights.kv)
        connect_streams(m, weights.output, mac.weights)
        connect_streams(m, self._mac_commands.mac, mac.command)
        connect_streams(m, self._mac_commands.source, weights.source)
        connect_streams(m, mac.status, self._mac_commands.status)
        connect_streams(m, mac.selected, self._mac_commands.selected)
        m.d.comb += [
            weights.kv_last.eq(self._kv.output_last),
            self._stream.room.eq(self._fifo.room),
            self._fifo.flip.eq(self.flip_fifo),
            self._kv.flip.eq(self.flip_kv),
        ]

    def _elaborate_vector(self, m: Module) -> None:
        """Join the vector unit with its commands, operands and results."""
        vector, commands, dma = self._vector, self._vector_commands, self._dma
        connect_streams(m, commands.vector_out, vector.commands)
        connect_streams(m, commands.drain_out, vector.drain_commands)
        connect_streams(m, vector.responses, commands.responses)
        connect_streams(m, self._mac.results, vector.results)
        connect_streams(m, dma.blocks, vector.blocks)
        connect_streams(m, vector.activations, self._activations.vector)
        connect_streams(m, self._activations.output, self._mac.activations)
        connect_streams(m, vector.kv, self._kv.writes)
        connect_streams(m, dma.access, self._arbiter.dma)
        connect_streams(m, self._arbiter.output, vector.access)
        connect_streams(m, dma.kv_request, self._kv.dma_request)
        connect_streams(m, self._kv.dma_data, dma.kv_data)
        m.d.comb += [
            dma.written.eq(vector.access.ready),
            dma.token_blocks.eq(self._kv.token_blocks),
            self._activations.busy.eq(self._queues[UnitId.MAC].pending),
            self._activations.peeked.eq(self._mac.peeked),
            self._mac.peek.eq(self._activations.peek),
            self._mac.peek_address.eq(self._activations.peek_address),
            self._mac.peek_column.eq(self._activations.peek_column),
            vector.peek_index.eq(self._scalars.peek_index),
            self._scalars.peeked.eq(vector.peeked),
        ]

    def _elaborate_registers(self, m: Module) -> None:
        counters = len(counter_names())
        m.submodules.registers = self._registers = Registers(self._params, counters=counters)

    def _elaborate_hbm(self, m: Module) -> None:
        """Join the channel; guards stand before the units that may be cleared."""
        m.submodules.hbm = self._hbm = tile_memory(self._params)
        self._guards = []
        for number, (name, unit) in enumerate((("stream", self._stream), ("dma", self._dma))):
            guard = ReadGuard()
            m.submodules[f"{name}_guard"] = guard
            wiring.connect(m, unit.port, guard.unit)
            m.d.comb += guard.close.eq(self._freeze)
            self._connect_port(m, name, guard.port, self._hbm.port[number])
            self._guards.append(guard)
        m.d.comb += [
            self._hbm.flip.eq(self.flip_hbm),
            self._hbm.clear.eq(self._clear_counters),
            self._hbm.hold.eq(self._registers.hold),
        ]

    def _connect_port(self, m: Module, name: str, unit: Any, channel: Any) -> None:
        """Join a unit with the channel; for tests, with random pauses of the answers."""
        if self._pauses:
            connect_with_pauses(m, name, unit, channel, control=self.hbm_pauses, start=self._start)
        else:
            wiring.connect(m, unit, channel)

    def _elaborate_host(self, m: Module) -> None:
        """Join the host's accesses with the memories."""
        beats = self._registers.beats
        m.submodules.router = router = HostRouter(self._params, registers=beats)
        connect_streams(m, wiring.flipped(self.accesses), router.accesses)
        connect_streams(m, router.answers, wiring.flipped(self.answers))
        connect_streams(m, router.vector, self._arbiter.host)
        connect_streams(m, self._vector.access_data, router.vector_data)
        self._connect_port(m, "host", router.hbm, self._hbm.port[2])
        for name, memory in (
            ("kv", self._kv),
            ("program", self._program),
            ("activations", self._activations),
            ("scalars", self._scalars),
            ("registers", self._registers),
        ):
            connect_streams(m, getattr(router, f"{name}_access"), memory.access)
            connect_streams(m, memory.answer, getattr(router, f"{name}_answer"))
        m.d.comb += [
            router.clear.eq(self._clear),
            self._hbm.refresh.eq(self._registers.refresh),
        ]

    def _elaborate_supervisor(self, m: Module) -> None:
        """Gather what the units tell; the first fault stops the tile."""
        m.submodules.supervisor = self._supervisor = supervisor = Supervisor()
        sequencer, queues = self._sequencer, self._queues
        vector = self._vector_commands
        faults = {
            UnitId.SEQ: (sequencer.fault, sequencer.fault_valid),
            UnitId.MAC: (self._mac_commands.fault, self._mac_commands.fault_valid),
            UnitId.STREAM: (self._stream.fault, self._stream.fault_valid),
            UnitId.KV: (self._kv.fault, self._kv.fault_valid),
            UnitId.VECTOR: (vector.fault[0], vector.fault_valid[0]),
            UnitId.DRAIN: (vector.fault[1], vector.fault_valid[1]),
            UnitId.DMA: (self._dma.fault, self._dma.fault_valid),
        }
        for unit, (fault, valid) in faults.items():
            report, user = supervisor.report[unit.value], queues.get(unit, sequencer)
            m.d.comb += [report.fault.eq(fault), report.fault_valid.eq(valid)]
            if user is not sequencer:
                with m.If(user.fault_valid):
                    m.d.comb += [report.fault.eq(user.fault), report.fault_valid.eq(1)]
            for name in ("pc", "signal_pc", "pending", "waiting", "waiting_for", "moved"):
                m.d.comb += getattr(report, name).eq(getattr(user, name))
        semaphores = self._semaphores
        arrived = [g.port.read_data.valid & g.port.read_data.ready for g in self._guards]
        lanes_busy = self._vector.cause == LaneCause.BUSY
        m.d.comb += [
            supervisor.fifo_fault.eq(self._fifo.fault),
            supervisor.fifo_fault_valid.eq(self._fifo.fault_valid),
            supervisor.overflow.eq(semaphores.overflow),
            supervisor.overflow_unit.eq(semaphores.overflow_unit),
            supervisor.overflow_number.eq(semaphores.overflow_number),
            supervisor.stop.eq(self._starter.stop),
            supervisor.stop_valid.eq(self._starter.stop_valid),
            supervisor.moved.eq(Cat(*arrived, self._mac.beats, lanes_busy).any()),
            supervisor.limit.eq(self._registers.watchdog),
            supervisor.drained.eq(Cat(guard.idle for guard in self._guards).all()),
            self._freeze.eq(supervisor.freeze),
            self._clear.eq(supervisor.clear),
        ]

    def _elaborate_events(self, m: Module) -> None:
        m.submodules.merge = merge = EventMerge(sources=5)
        for number, source in enumerate(
            (
                self._supervisor.event,
                self._mac_commands.tokens,
                self._vector_commands.tokens,
                self._sequencer.events,
                self._starter.refusal,
            )
        ):
            connect_streams(m, source, merge.source[number])
        connect_streams(m, merge.output, wiring.flipped(self.events))
        m.d.comb += [merge.stamp.eq(self._stamp), self._supervisor.held_up.eq(merge.blocked)]

    def _elaborate_state(self, m: Module) -> None:
        """Tell the host what the tile is doing."""
        sequencer, supervisor = self._sequencer, self._supervisor
        failed = Signal()
        with m.If(self._start):
            m.d.sync += failed.eq(0)
        with m.Elif(self._freeze):
            m.d.sync += failed.eq(1)
        last = supervisor.last
        waiting = Cat(sequencer.waiting, *(queue.waiting for queue in self._queues.values()))
        m.d.comb += [
            self.state.eq(
                Cat(
                    sequencer.running,
                    self._freeze,
                    supervisor.pending,
                    sequencer.stepping,
                    failed,
                )
            ),
            self._starter.running.eq(sequencer.running),
            self._starter.pending.eq(supervisor.pending),
            self._starter.frozen.eq(self._freeze),
        ]
        words = (
            self.state,
            sequencer.pc,
            Cat(last.fault.code.as_value(), last.unit.as_value()),
            last.pc,
            last.fault.detail,
            self._stamp[:32],
            self._stamp[32:],
            waiting,
        )
        m.d.comb += [self._registers.status[i].eq(word) for i, word in enumerate(words)]
        m.d.comb += [
            self._registers.semaphores[i].eq(count)
            for i, count in enumerate(self._semaphores.counts)
        ]

    def _elaborate_counters(self, m: Module) -> None:
        m.submodules.counters = counters = TileCounters()
        causes = {
            "seq": self._sequencer.cause,
            "mac": self._mac.cause,
            "stream": self._stream.cause,
            "kv": self._kv.cause,
            "vector": self._vector.cause,
            "dma": self._dma.cause,
            "host": self.host_cause,
        }
        for unit, queue in self._queues.items():
            causes[f"queue.{unit.name.lower()}"] = queue.cause
        for group, cause in causes.items():
            m.d.comb += getattr(counters, f"cause_{group.replace('.', '_')}").eq(cause)
        m.d.comb += [
            counters.mac_beats.eq(self._mac.beats),
            counters.clear.eq(self._clear_counters),
            counters.hold.eq(self._registers.hold),
            *(given.eq(c) for given, c in zip(counters.hbm_causes, self._hbm.causes, strict=True)),
            *(given.eq(c) for given, c in zip(counters.hbm_events, self._hbm.events, strict=True)),
            *(
                given.eq(c)
                for given, c in zip(self._registers.counter, counters.count, strict=True)
            ),
        ]
