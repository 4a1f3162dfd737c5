"""Commands in flight: what they still have to write, how they went, in which order they end."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.fp32.types import registered
from pequin.vector.check import checked_command
from pequin.vector.types import TAG_BITS, Quantize, Reduce, Status

ENTRIES = 4
"""Commands of one queue in flight."""

_PARTS = ("rows", "blocks", "scalars")


def part_event() -> data.StructLayout:
    """Return an event of one part of a command: it ended, or met a condition."""
    return data.StructLayout({"valid": 1, "entry": range(ENTRIES)})


class Scoreboard(wiring.Component):
    """Track commands from start to end, in order.

    *Timing*: a started command can end a clock later at the earliest; one command ends per clock.
    `hazard` belongs to the `command` of a clock ago; it must not have changed when it starts, nor
    may another have started in the clock before.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    command : In(checked_command)
        The command that waits to start.
    start : In(1)
        Start it now; `free` must be 1.
    free : Out(1)
        There is room for another command.
    hazard : Out(1)
        The command reads what an earlier one in flight has yet to write.
    entry : Out(range(ENTRIES))
        Number that the started command gets.
    rows, blocks, values, scalars : In(part_event)
        A command's last row, quantized block, element of V or scalar has been written.
    not_finite, overflow : In(part_event)
        A command met the condition.
    ended : Out(stream of tag and status)
    """

    command: Any
    start: Any
    free: Any
    hazard: Any
    entry: Any
    ended: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        events = (*_PARTS, "values", "not_finite", "not_finite_scalar", "overflow")
        done = data.StructLayout({"tag": TAG_BITS, "status": Status})
        super().__init__(
            {
                "command": In(checked_command(params)),
                "start": In(1),
                "free": Out(1),
                "hazard": Out(1),
                "entry": Out(range(ENTRIES)),
                **{name: In(part_event()) for name in events},
                "ended": Out(stream.Signature(done)),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        head, tail = Signal(range(ENTRIES)), Signal(range(ENTRIES))
        ready, hazards = Signal(ENTRIES), []
        tags = [Signal(TAG_BITS, name=f"tag_{i}") for i in range(ENTRIES)]
        statuses = [Signal(Status, name=f"status_{i}") for i in range(ENTRIES)]
        live = Signal(ENTRIES)
        for i in range(ENTRIES):
            pending = self._entry(m, i, tags[i], statuses[i], live, tail)
            hazards.append(self._hazard(m, i, live[i], tail))
            m.d.comb += ready[i].eq(live[i] & ~pending)
        m.d.comb += [
            self.entry.eq(tail),
            self.free.eq(~live.bit_select(tail, 1)),
            self.ended.valid.eq(ready.bit_select(head, 1)),
        ]
        hazard = hazards[0]
        for term in hazards[1:]:
            hazard = hazard | term
        m.d.comb += self.hazard.eq(hazard)
        with m.If(self.start):
            m.d.sync += [tail.eq(tail + 1), live.bit_select(tail, 1).eq(1)]
        with m.Switch(head):
            for i in range(ENTRIES):
                with m.Case(i):
                    m.d.comb += [
                        self.ended.payload.tag.eq(tags[i]),
                        self.ended.payload.status.eq(statuses[i]),
                    ]
                    with m.If(self.ended.valid & self.ended.ready):
                        m.d.sync += [head.eq(head + 1), live[i].eq(0)]
        return m

    def _entry(
        self, m: Module, i: int, tag: Signal, status: Signal, live: Signal, tail: Signal
    ) -> Value:
        """Describe entry `i`; return whether a part of it is missing."""
        parts = {name: Signal(name=f"{name}_{i}") for name in _PARTS}
        command, inner = self.command, self.command.command
        for name, part in (*parts.items(), ("values", parts["blocks"])):
            event = self[name]
            with m.If(event.valid & (event.entry == i)):
                m.d.sync += part.eq(0)
        for name, flag in (
            ("not_finite", status.not_finite),
            ("not_finite_scalar", status.not_finite),
            ("overflow", status.overflow),
        ):
            event = self[name]
            with m.If(event.valid & (event.entry == i)):
                m.d.sync += flag.eq(1)
        good = ~command.status.as_value().any()
        with m.If(self.start & (tail == i)):
            m.d.sync += [
                tag.eq(inner.tag),
                status.eq(command.status),
                parts["rows"].eq(good & command.rows),
                parts["blocks"].eq(good & command.rows & (inner.quantize != Quantize.NONE)),
                parts["scalars"].eq(good & command.writes_scalars),
            ]
        return parts["rows"] | parts["blocks"] | parts["scalars"]

    def __getitem__(self, name: str) -> data.View:
        view = getattr(self, name)
        assert isinstance(view, data.View)
        return view

    def _hazard(self, m: Module, i: int, live: Value, tail: Signal) -> Value:
        """Compare the waiting command's reads with the writes of entry `i`."""
        command, inner = self.command, self.command.command
        low, high = (
            Signal.like(inner.dst, name=f"low_{i}"),
            Signal.like(inner.dst, name=f"high_{i}"),
        )
        stores, scalars = Signal(name=f"stores_{i}"), Signal(name=f"writes_scalars_{i}")
        reduces = Signal(name=f"reduces_{i}")
        with m.If(self.start & (tail == i)):
            good = ~command.status.as_value().any()
            m.d.sync += [
                low.eq(inner.dst),
                high.eq(command.dst_end),
                stores.eq(good & command.rows & inner.store),
                scalars.eq(good & command.writes_scalars),
                reduces.eq(good & command.writes_scalars & command.rows),
            ]
        meets_a = command.reads_a & (inner.a <= high) & (command.a_end >= low)
        meets_b = command.reads_b & (inner.b <= high) & (command.b_end >= low)
        memory = stores & command.rows & (meets_a | meets_b)
        # A scalar command would overtake a reduction, which reads and writes scalars at its end.
        overtakes = reduces & ~command.rows
        meets = memory | (scalars & command.reads_scalars) | overtakes
        return live & registered(m, f"meets_{i}", meets)


assert Reduce.NONE.value == 0
