"""From the words of `vector` and `drain` commands to the vector unit, and its answers back."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.tile.types import ErrorCode, EventKind, TileEvent, UnitFault, UnitId, unit_words
from pequin.vector.types import ResponseKind, vector_command, vector_response

FIELDS: dict[str, tuple[int, int, int]] = {
    "op": (0, 0, 4),
    "function": (0, 4, 2),
    "factor": (0, 6, 2),
    "source": (0, 8, 2),
    "store": (0, 10, 1),
    "quantize": (0, 11, 2),
    "paired": (0, 13, 1),
    "limits": (0, 14, 1),
    "reduce": (0, 15, 2),
    "start": (0, 17, 1),
    "rank": (0, 18, 3),
    "use_s1": (0, 21, 1),
    "use_s2": (0, 22, 1),
    "minus_s2": (0, 23, 1),
    "use_multiplier": (0, 24, 1),
    "use_addend": (0, 25, 1),
    "finish": (0, 26, 2),
    "distance": (0, 28, 3),
    "length": (1, 0, 16),
    "vectors": (1, 16, 8),
    "a": (2, 0, 32),
    "b": (3, 0, 32),
    "dst": (4, 0, 32),
    "a_stride": (5, 0, 32),
    "b_stride": (6, 0, 32),
    "dst_stride": (7, 0, 32),
    "s1": (8, 0, 8),
    "s2": (8, 8, 8),
    "s3": (8, 16, 8),
    "out": (8, 24, 8),
    "multiplier": (9, 0, 8),
    "addend": (9, 8, 8),
    "per_vector": (9, 16, 5),
    "lane": (9, 21, 5),
    "column": (10, 0, 8),
    "column_step": (10, 8, 8),
    "address": (11, 0, 24),
    "address_step": (12, 0, 24),
    "immediate": (13, 0, 32),
}
"""Place of each field of a `vector_command`: word, lowest bit, bits (docs/isa.md)."""

IN_FLIGHT = 31
"""Commands of a queue that may be in the vector unit."""

_RANGE = 1 << 2
"""The bit of `range` in a vector unit's status."""


class VectorCommands(wiring.Component):
    """Hand commands of both queues to the vector unit; turn its responses into completions.

    A field that a preset's sizes cannot hold is refused, whether the operation uses it or not;
    that is told when all commands of the queue before it have completed.

    *Timing*: a command comes out two clocks after it was accepted; each queue accepts one every
    three clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    vector, drain : In(stream of unit_words)
        Commands of the memory and of the drain queue.
    vector_out, drain_out : Out(stream of vector_command)
    responses : In(stream of vector_response)
    tokens : Out(stream of TileEvent)
    done : Out(1).array(2), fault : Out(UnitFault).array(2), fault_valid : Out(1).array(2)
        For the memory and for the drain queue.
    """

    vector: Any
    drain: Any
    vector_out: Any
    drain_out: Any
    responses: Any
    tokens: Any
    done: Any
    fault: Any
    fault_valid: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "vector": In(stream.Signature(unit_words(UnitId.VECTOR))),
                "drain": In(stream.Signature(unit_words(UnitId.DRAIN))),
                "vector_out": Out(stream.Signature(vector_command(params))),
                "drain_out": Out(stream.Signature(vector_command(params))),
                "responses": In(stream.Signature(vector_response())),
                "tokens": Out(stream.Signature(TileEvent)),
                "done": Out(1).array(2),
                "fault": Out(UnitFault).array(2),
                "fault_valid": Out(1).array(2),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        ended = self._respond(m)
        too_wide = [
            self._issue(m, self.vector, self.vector_out, ended[0], "vector"),
            self._issue(m, self.drain, self.drain_out, ended[1], "drain"),
        ]
        status = self.responses.payload.status.as_value()
        for queue in range(2):
            failed = ended[queue] & status.any()
            m.d.sync += [
                self.done[queue].eq(ended[queue]),
                self.fault_valid[queue].eq(failed | too_wide[queue]),
                self.fault[queue].code.eq(ErrorCode.VECTOR),
                self.fault[queue].detail.eq(Mux(failed, status, _RANGE)),
            ]
        return m

    def _respond(self, m: Module) -> list[Value]:
        """Make tokens of results; return for each queue whether a command ends in this clock."""
        response, event = self.responses.payload, self.tokens.payload
        result = response.kind == ResponseKind.RESULT
        m.d.comb += [
            event.kind.eq(EventKind.TOKEN),
            event.unit.eq(Mux(response.queue, UnitId.DRAIN, UnitId.VECTOR)),
            event.code[:8].eq(response.rank),
            event.code[8:].eq(response.vector),
            event.value.eq(response.index),
            event.detail.eq(response.value),
            self.tokens.valid.eq(self.responses.valid & result),
            self.responses.ready.eq(self.tokens.ready | ~result),
        ]
        return [self.responses.valid & ~result & (response.queue == queue) for queue in range(2)]

    def _issue(self, m: Module, source: Any, sink: Any, ended: Value, name: str) -> Value:
        """Return a signal that tells that a command does not fit the preset."""
        words = Signal.like(source.payload, name=f"{name}_words")
        held, checked, bad = (Signal(name=f"{name}_{n}") for n in ("held", "checked", "bad"))
        refused = Signal(name=f"{name}_refused")
        in_flight = Signal(range(IN_FLIGHT + 1), name=f"{name}_in_flight")
        m.d.sync += in_flight.eq(in_flight + (sink.valid & sink.ready) - ended)
        m.d.comb += [
            source.ready.eq(~held),
            sink.valid.eq(checked & ~bad),
            *self._decoded(words, sink.payload),
            refused.eq(checked & bad & (in_flight == 0)),
        ]
        with m.If(~held):
            m.d.sync += [words.eq(source.payload), held.eq(source.valid)]
        with m.Elif(~checked):
            m.d.sync += [checked.eq(1), bad.eq(self._excess(words, sink.payload))]
        with m.Elif(Mux(bad, refused, sink.ready)):
            m.d.sync += [held.eq(0), checked.eq(0)]
        return refused

    def _decoded(self, words: Any, command: Any) -> list[Any]:
        fields = []
        for name, (word, low, width) in FIELDS.items():
            target = Value.cast(command[name])
            fields.append(target.eq(words[word][low : low + min(width, len(target))]))
        return [*fields, command.tag.eq(0)]

    def _excess(self, words: Any, command: Any) -> Value:
        """Return whether some field has bits that the preset's field has not."""
        rests = []
        for name, (word, low, width) in FIELDS.items():
            kept = len(Value.cast(command[name]))
            if kept < width:
                rests.append(words[word][low + kept : low + width].any())
        return Cat(rests).any() if rests else Const(0, 1)
