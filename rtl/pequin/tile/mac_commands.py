"""From the words of a `mac` command to the array, and from the array's ends to completions."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.mac.types import WeightFormat, mac_command, mac_status, selected_entry
from pequin.tile.types import ErrorCode, EventKind, TileEvent, UnitFault, UnitId, unit_words

IN_FLIGHT = 16
"""Commands between the queue and their completion."""


class MacCommands(wiring.Component):
    """Check `mac` commands, hand them to the array, and tell when they have completed.

    A command of the top-k sink that emits its registers completes after the last entry has
    become an event, so that a later DONE event comes after its tokens. A command that is refused
    is told when all before it have completed.

    *Timing*: a command reaches `mac` three clocks after it was accepted; one is accepted every
    four clocks.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    command : In(stream of unit_words(UnitId.MAC))
    mac : Out(stream of mac_command(params))
    source : Out(stream of 1 bit)
        For each command, 1 when its weights come from the KV buffer. It comes before the command.
    status : In(stream of mac_status(params))
    selected : In(stream of selected_entry(params))
    tokens : Out(stream of TileEvent)
    done : Out(1)
    fault : Out(UnitFault), fault_valid : Out(1)
    """

    command: Any
    mac: Any
    source: Any
    status: Any
    selected: Any
    tokens: Any
    done: Any
    fault: Any
    fault_valid: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "command": In(stream.Signature(unit_words(UnitId.MAC))),
                "mac": Out(stream.Signature(mac_command(params))),
                "source": Out(stream.Signature(1)),
                "status": In(stream.Signature(mac_status(params))),
                "selected": In(stream.Signature(selected_entry(params))),
                "tokens": Out(stream.Signature(TileEvent)),
                "done": Out(1),
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        refused, refused_word = Signal(), Signal(32)
        m.submodules.emitting = emitting = fifo.SyncFIFO(width=1, depth=IN_FLIGHT)
        self._issue(m, emitting, refused, refused_word)
        emitted = Signal()
        self._complete(m, emitting, emitted, refused, refused_word)
        self._tell_tokens(m, emitted)
        return m

    def _issue(self, m: Module, emitting: Any, refused: Signal, refused_word: Signal) -> None:
        words = Signal.like(self.command.payload)
        held, checked, bad = Signal(), Signal(), Signal()
        source_sent = Signal()
        m.d.comb += [
            self.command.ready.eq(~held),
            self._decoded(words),
            self.source.payload.eq(words[0][7]),
            self.source.valid.eq(checked & ~bad & ~source_sent),
            self.mac.valid.eq(checked & ~bad & source_sent & emitting.w_rdy),
            emitting.w_data.eq(words[0][4] & words[0][6]),
            emitting.w_en.eq(self.mac.valid & self.mac.ready),
        ]
        m.d.sync += refused.eq(0)
        with m.If(~held):
            m.d.sync += [words.eq(self.command.payload), held.eq(self.command.valid)]
        with m.Elif(~checked):
            m.d.sync += [checked.eq(1), bad.eq(self._impossible(words)), source_sent.eq(0)]
        with m.Elif(bad), m.If(~emitting.r_rdy):
            m.d.sync += [refused.eq(1), refused_word.eq(words[0])]
            m.d.sync += [held.eq(0), checked.eq(0)]
        with m.Else():
            with m.If(self.source.ready):
                m.d.sync += source_sent.eq(1)
            with m.If(self.mac.valid & self.mac.ready):
                m.d.sync += [held.eq(0), checked.eq(0)]

    def _decoded(self, words: Any) -> list[Any]:
        """Return the assignments of the array's command."""
        command = self.mac.payload
        bits = ("two_planes", "scaled", "paired")
        values: dict[str, Value] = {name: words[0][1 + i] for i, name in enumerate(bits)}
        values |= {"select_first": words[0][5], "select_last": words[0][6]}
        names = ("last_block", "last_row", "first_row", "last_vector", "base")
        values |= {name: words[1 + i] for i, name in enumerate(names)}
        return [
            command.format.as_value().eq(words[0][0]),
            command.sink.as_value().eq(words[0][4]),
            *(command[name].eq(value[: len(command[name])]) for name, value in values.items()),
        ]

    def _impossible(self, words: Any) -> Value:
        """Return whether the array cannot execute a command."""
        c = self._params.config
        paired = words[0][3]
        last_block, last_row, first_row, last_vector, base = (words[i] for i in range(1, 6))
        columns = Mux(paired, c.columns // 2, c.columns)
        blocks = Mux(paired, last_block >> 1, last_block)
        return Cat(
            (words[0][0] == WeightFormat.MXINT8.value) & words[0][1],
            last_block >= self._params.max_blocks,
            last_row[:32] + first_row >= 1 << c.index_bits,
            last_vector >= columns,
            base + blocks >= c.act_blocks,
        ).any()

    def _complete(
        self, m: Module, emitting: Any, emitted: Signal, refused: Signal, refused_word: Signal
    ) -> None:
        errors = self.status.payload.errors.as_value()
        m.d.comb += [
            self.status.ready.eq(emitting.r_rdy & (~emitting.r_data | emitted)),
            emitting.r_en.eq(self.status.valid & self.status.ready),
        ]
        with m.If(self.selected.valid & self.selected.ready & self.selected.payload.last):
            m.d.sync += emitted.eq(1)
        with m.Elif(emitting.r_en & emitting.r_data):
            m.d.sync += emitted.eq(0)
        failed = emitting.r_en & errors.any()
        row = self.status.payload.error_row
        detail = Mux(failed, Cat(errors, Const(0, 5), row)[:32], refused_word)
        m.d.sync += [
            self.done.eq(emitting.r_en),
            self.fault_valid.eq(failed | refused),
            self.fault.code.eq(Mux(failed, ErrorCode.MAC, ErrorCode.COMMAND)),
            self.fault.detail.eq(detail),
        ]

    def _tell_tokens(self, m: Module, emitted: Signal) -> None:
        # Entries of the next command wait until the command of the last ones has completed.
        entry, event = self.selected.payload, self.tokens.payload
        m.d.comb += [
            event.kind.eq(EventKind.TOKEN),
            event.unit.eq(UnitId.MAC),
            event.code[:8].eq(entry.rank),
            event.code[8:].eq(entry.vector),
            event.value.eq(entry.index),
            event.detail.eq(entry.value),
            self.tokens.valid.eq(self.selected.valid & entry.valid & ~emitted),
            self.selected.ready.eq((self.tokens.ready | ~entry.valid) & ~emitted),
        ]
