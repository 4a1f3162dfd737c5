"""One STEP between the link and the sequencer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.tile.types import COUNT_FIELD, TABLE_FIELDS, StepItem

COLUMN_WORDS = TABLE_FIELDS // 2
"""Link words of a column: two fields each."""


class StepBuffer(wiring.Component):
    """Hold one STEP and hand it to the sequencer field by field.

    *Timing*: two fields in three clocks.

    Parameters
    ----------
    columns
        Most columns of a STEP.

    Members
    -------
    room : Out(1)
        No STEP is held.
    body : In(64), body_index : In, body_valid : In(1)
        A word of the next STEP's columns; to be given only while there is room.
    accept : In(1), count : In
        Pulse: the STEP is complete and has this many columns, at least 1.
    steps : Out(stream of StepItem)
    drop : In(1)
        Forget the STEP, even one that is partly handed over; the sequencer must be in reset.

    Raises
    ------
    ConfigError
        There is no column.
    """

    room: Any
    body: Any
    body_index: Any
    body_valid: Any
    accept: Any
    count: Any
    steps: Any
    drop: Any

    def __init__(self, *, columns: int) -> None:
        if columns < 1:
            raise ConfigError(f"a STEP buffer's columns must be at least 1, not {columns}")
        self._columns = columns
        super().__init__(
            {
                "room": Out(1),
                "body": In(64),
                "body_index": In(range(columns * COLUMN_WORDS)),
                "body_valid": In(1),
                "accept": In(1),
                "count": In(range(columns + 1)),
                "steps": Out(stream.Signature(StepItem)),
                "drop": In(1),
            }
        )

    @property
    def columns(self) -> int:
        """Most columns of a STEP."""
        return self._columns

    @property
    def words(self) -> int:
        """Link words of the largest STEP."""
        return self._columns * COLUMN_WORDS

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        words = self.words
        ram: Any = memory.Memory(shape=64, depth=words, init=[])
        m.submodules.words = ram
        into, out = ram.write_port(), ram.read_port()
        word, count = Signal(range(words + 1)), Signal.like(self.count)
        column, field = Signal(range(self._columns + 1)), Signal(range(TABLE_FIELDS))
        item, taken, fetch = self.steps.payload, Signal(), Signal()
        m.d.comb += [
            into.addr.eq(self.body_index),
            into.data.eq(self.body),
            into.en.eq(self.body_valid),
            out.addr.eq(word),
            out.en.eq(fetch),
            taken.eq(self.steps.valid & self.steps.ready),
            item.column.eq(column),
            item.field.eq(field),
            item.value.eq(Mux(field[0], out.data[32:], out.data[:32])),
        ]
        with m.FSM(name="steps"):
            with m.State("EMPTY"):
                m.d.comb += self.room.eq(1)
                m.d.sync += [word.eq(0), column.eq(0), field.eq(0), count.eq(self.count)]
                with m.If(self.accept):
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += fetch.eq(1)
                m.d.sync += word.eq(word + 1)
                m.next = "FIELD"
                self._drop(m)
            with m.State("FIELD"):
                m.d.comb += self.steps.valid.eq(1)
                with m.If(taken):
                    m.d.sync += field.eq(field + 1)
                    with m.If(field == TABLE_FIELDS - 1):
                        m.d.sync += [field.eq(0), column.eq(column + 1)]
                    with m.If((field == TABLE_FIELDS - 1) & (column + 1 == count)):
                        m.next = "COMMIT"
                    with m.Elif(field[0]):
                        m.next = "FETCH"
                self._drop(m)
            with m.State("COMMIT"):
                m.d.comb += [
                    self.steps.valid.eq(1),
                    item.commit.eq(1),
                    item.column.eq(0),
                    item.field.eq(COUNT_FIELD),
                    item.value.eq(count),
                ]
                with m.If(taken):
                    m.next = "EMPTY"
                self._drop(m)
        return m

    def _drop(self, m: Module) -> None:
        with m.If(self.drop):
            m.next = "EMPTY"
