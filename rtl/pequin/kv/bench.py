"""The KV buffer behind one script, so that the order of its inputs is known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.counters import CauseCounters, cause_counts
from pequin.hbm.types import BEAT_BITS, CHECK_BITS
from pequin.kv.buffer import KvBuffer
from pequin.kv.types import KvCause
from pequin.mac.types import weight_beats
from pequin.streams import StreamFifo, connect_streams
from pequin.tile.types import UnitFault, UnitId, beat_access, beat_answer, unit_words
from pequin.vector.types import kv_write

EVENTS = 256
"""Completions and faults that wait to be recorded."""

_STORED = 5
"""Clocks from the acceptance of a host's write to its storing, when nothing is in its way."""


class StepKind(enum.Enum, shape=2):
    """Which input an item of the script goes to."""

    WRITE = 0
    COMMAND = 1
    DMA = 2
    ACCESS = 3


def kv_script() -> data.StructLayout:
    """Return an item of the script.

    barrier
        Wait until commands, DMA requests and accesses before it are completed.
    kind : StepKind
    write, command, access
        The item for that input; a DMA request is `access.address`.
    flip
        With an access: errors injected into its write, and into others until the next access.
    """
    return data.StructLayout(
        {
            "barrier": 1,
            "kind": StepKind,
            "write": kv_write(),
            "command": unit_words(UnitId.KV),
            "access": beat_access(),
            "flip": BEAT_BITS + CHECK_BITS,
        }
    )


def kv_transfer() -> data.StructLayout:
    """Return a recorded transfer: the beats and whether it ends its command."""
    return data.StructLayout({"transfer": weight_beats(), "last": 1})


class KvBench(wiring.Component):
    """`KvBuffer` whose inputs take one script in order; for `StreamBench`.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    script : In(stream of kv_script())
    output : Out(stream of kv_transfer())
    dma_data, answer : Out(stream of beat_answer())
    completions : Out(stream of 1 bit), faults : Out(stream of UnitFault)
    counts : Out(cause_counts(KvCause)), beats : Out(32), repairs : Out(32)
    broken : Out(1)
        An output changed what it had offered.
    """

    script: Any
    output: Any
    dma_data: Any
    answer: Any
    completions: Any
    faults: Any
    counts: Any
    beats: Any
    repairs: Any
    broken: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "script": In(stream.Signature(kv_script())),
                "output": Out(stream.Signature(kv_transfer())),
                "dma_data": Out(stream.Signature(beat_answer())),
                "answer": Out(stream.Signature(beat_answer())),
                "completions": Out(stream.Signature(1)),
                "faults": Out(stream.Signature(UnitFault)),
                "counts": Out(cause_counts(KvCause)),
                "beats": Out(32),
                "repairs": Out(32),
                "broken": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.kv = kv = KvBuffer(self._params)
        m.submodules.counters = counters = CauseCounters(KvCause)
        m.submodules.ended = ended = StreamFifo(1, depth=EVENTS)
        m.submodules.failed = failed = StreamFifo(UnitFault, depth=EVENTS)
        self._dispatch(m, kv)
        connect_streams(m, kv.dma_data, self.dma_data)
        connect_streams(m, kv.answer, self.answer)
        connect_streams(m, ended.output, self.completions)
        connect_streams(m, failed.output, self.faults)
        m.d.comb += [
            self.output.payload.transfer.eq(kv.output.payload),
            self.output.payload.last.eq(kv.output_last),
            self.output.valid.eq(kv.output.valid),
            kv.output.ready.eq(self.output.ready),
            ended.input.payload.eq(1),
            ended.input.valid.eq(kv.done),
            failed.input.payload.eq(kv.fault),
            failed.input.valid.eq(kv.fault_valid),
            counters.cause.eq(kv.cause),
            self.counts.eq(counters.counts),
        ]
        m.d.sync += [
            self.beats.eq(self.beats + kv.beats),
            self.repairs.eq(self.repairs + kv.repaired[0] + kv.repaired[1]),
        ]
        self._watch(m)
        return m

    def _dispatch(self, m: Module, kv: Any) -> None:
        script = self.script
        given = script.payload
        commands, reads, accesses = (
            Signal(16, name=name) for name in ("commands", "reads", "accesses")
        )
        idle, allowed = Signal(), Signal()
        flips = [Signal.like(given.flip, name=f"flip_{i}") for i in range(_STORED)]
        m.d.comb += [
            idle.eq((commands | reads | accesses) == 0),
            allowed.eq(script.valid & (~given.barrier | idle)),
            kv.writes.payload.eq(given.write),
            kv.command.payload.eq(given.command),
            kv.dma_request.payload.eq(given.access.address),
            kv.access.payload.eq(given.access),
            kv.flip.eq(flips[-1]),
        ]
        inputs = {
            StepKind.WRITE: kv.writes,
            StepKind.COMMAND: kv.command,
            StepKind.DMA: kv.dma_request,
            StepKind.ACCESS: kv.access,
        }
        for kind, sink in inputs.items():
            with m.If(given.kind == kind):
                m.d.comb += [sink.valid.eq(allowed), script.ready.eq(allowed & sink.ready)]
        passed = {kind: sink.valid & sink.ready for kind, sink in inputs.items()}
        m.d.sync += [
            commands.eq(commands + passed[StepKind.COMMAND] - (kv.done | kv.fault_valid)),
            reads.eq(reads + passed[StepKind.DMA] - (kv.dma_data.valid & kv.dma_data.ready)),
            accesses.eq(accesses + passed[StepKind.ACCESS] - (kv.answer.valid & kv.answer.ready)),
            flips[0].eq(Mux(passed[StepKind.ACCESS], given.flip, flips[0])),
            *(after.eq(before) for before, after in pairwise(flips)),
        ]

    def _watch(self, m: Module) -> None:
        """Check that an offer stays until it is taken."""
        for name in ("output", "dma_data", "answer"):
            offered = getattr(self, name)
            waited = Signal(name=f"{name}_waited")
            before = Signal(len(Value.cast(offered.payload)), name=f"{name}_before")
            now = Value.cast(offered.payload)
            m.d.sync += [waited.eq(offered.valid & ~offered.ready), before.eq(now)]
            with m.If(waited & (~offered.valid | (before != now))):
                m.d.sync += self.broken.eq(1)
