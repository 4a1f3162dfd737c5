"""How the sequencer, the command queues and the stream engine are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Module, Signal, Value

from pequin.control.command_queue import CommandQueue
from pequin.control.semaphores import Semaphores
from pequin.control.sequencer import Sequencer
from pequin.tile.types import UnitId


def dispatch_items(m: Module, sequencer: Sequencer, queues: Mapping[UnitId, CommandQueue]) -> None:
    """Hand each item of the sequencer to the queue of its unit."""
    ready = Signal(name="item_ready")
    m.d.comb += sequencer.items.ready.eq(ready)
    for unit, queue in queues.items():
        chosen = sequencer.items.payload.unit == unit
        m.d.comb += [
            queue.items.payload.eq(sequencer.items.payload.item),
            queue.items.valid.eq(sequencer.items.valid & chosen),
        ]
        with m.If(chosen):
            m.d.comb += ready.eq(queue.items.ready)


def share_semaphores(
    m: Module, semaphores: Semaphores, users: Sequence[Sequencer | CommandQueue]
) -> None:
    """Let the users, in the order of `UnitId`, take and signal semaphores."""
    for number, user in enumerate(users):
        m.d.comb += [
            semaphores.take[number].eq(user.take),
            semaphores.take_valid[number].eq(user.take_valid),
            user.taken.eq(semaphores.taken[number]),
            user.lacks.eq(semaphores.lacks[number]),
            semaphores.signal[number].eq(user.signal),
            semaphores.signal_valid[number].eq(user.signal_valid),
        ]


def share_stream_commands(m: Module, source: Any, engine: Any, beats: Any, *, clear: Value) -> None:
    """Hand each `stream` command to the engine, after its count of beats went to `beats`.

    Parameters
    ----------
    m
        Module that receives the connection.
    source, engine
        Streams of the command's words: from the queue, to the stream engine.
    beats
        Stream to the weights' switch.
    clear
        Forget that the count of the current command was told.
    """
    told = Signal(name="beats_told")
    m.d.comb += [
        engine.payload.eq(source.payload),
        beats.payload.eq(source.payload[1]),
        beats.valid.eq(source.valid & ~told),
        engine.valid.eq(source.valid & told),
        source.ready.eq(engine.ready & told),
    ]
    m.d.sync += told.eq((told | (beats.valid & beats.ready)) & ~(engine.valid & engine.ready))
    with m.If(clear):
        m.d.sync += told.eq(0)
