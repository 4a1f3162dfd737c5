"""The table of the step at work: a row for each column."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.tile.types import COUNT_FIELD, TABLE_FIELDS, StepItem

_FIELD_BITS = (TABLE_FIELDS - 1).bit_length()


class StepTable(wiring.Component):
    """Hold the table that the host sent last.

    *Timing*: `exists` is combinational, `value` comes a clock after `column` and `field`. A reset
    empties the table.

    Parameters
    ----------
    columns
        Columns that a step may have.

    Members
    -------
    steps : In(stream of StepItem)
        Parts beyond the last column or field are dropped, and more columns than there are count
        as `columns`.
    load : In(1)
        Take the parts of a step.
    loaded : Out(1)
        The last of them is taken at the end of this clock.
    column : In(32), field : In(32)
    exists : Out(1)
        The step at work has this column and field.
    value : Out(32)

    Raises
    ------
    ConfigError
        There is no column.
    """

    steps: Any
    load: Any
    loaded: Any
    column: Any
    field: Any
    exists: Any
    value: Any

    def __init__(self, *, columns: int) -> None:
        if columns < 1:
            raise ConfigError(f"a step's table must have at least one column, not {columns}")
        self._columns = columns
        super().__init__(
            {
                "steps": In(stream.Signature(StepItem)),
                "load": In(1),
                "loaded": Out(1),
                "column": In(32),
                "field": In(32),
                "exists": Out(1),
                "value": Out(32),
            }
        )

    @property
    def columns(self) -> int:
        """Columns that a step may have."""
        return self._columns

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        depth = self._columns << _FIELD_BITS
        rows: Any = memory.Memory(shape=32, depth=depth, init=[])
        m.submodules.rows = rows
        write, read = rows.write_port(), rows.read_port()
        part = self.steps.payload
        count = Signal(range(self._columns + 1))
        counts, counted = Signal(name="counts"), Signal(name="counted")
        fits = (part.column < self._columns) & (part.field < TABLE_FIELDS)
        m.d.comb += [
            self.steps.ready.eq(self.load),
            self.loaded.eq(self.load & self.steps.valid & part.commit),
            write.addr.eq(Cat(part.field[:_FIELD_BITS], part.column)),
            write.data.eq(part.value),
            write.en.eq(self.load & self.steps.valid & ~part.commit & fits),
            counts.eq(self.field == COUNT_FIELD),
            self.exists.eq(counts | ((self.field < TABLE_FIELDS) & (self.column < count))),
            read.addr.eq(Cat(self.field[:_FIELD_BITS], self.column)),
            self.value.eq(Mux(counted, count, read.data)),
        ]
        m.d.sync += counted.eq(counts)
        with m.If(self.loaded):
            m.d.sync += count.eq(Mux(part.value < self._columns, part.value, self._columns))
        return m
