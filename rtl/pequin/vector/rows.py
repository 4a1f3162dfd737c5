"""Layouts of what the issue hands on: rows, scalar operations, limits, drain requests."""

from __future__ import annotations

from amaranth.lib import data

from pequin.config import TileParams
from pequin.vector.types import (
    LENGTH_BITS,
    VECTORS_BITS,
    Source,
    address_bits,
    row_layout,
    scalar_bits,
)

COMMAND_FIELDS = (
    "tag",
    "op",
    "function",
    "factor",
    "distance",
    "minus_s2",
    "store",
    "reduce",
    "start",
    "quantize",
    "paired",
    "lane",
    "out",
    "use_multiplier",
    "use_addend",
    "multiplier",
    "addend",
    "finish",
)
"""Fields that a row takes from its command."""

SCALAR_FIELDS = (
    "queue",
    "entry",
    "tag",
    "vector",
    "out",
    "use_multiplier",
    "use_addend",
    "multiplier",
    "addend",
    "finish",
    "end",
)
"""Fields of a row's control that an operation on a scalar register has too."""


def issued_row(params: TileParams) -> data.StructLayout:
    """Return a row as it is issued, before scalars and masks are looked up.

    row
        Control; `s1`, `s2`, `s3`, `mask` and `live` are not set yet.
    a, b, reads_a, reads_b
        Operands' element addresses in vector memory.
    source
        Where operand a comes from.
    use_s1, use_s2, s1, s2, s3
        Scalar registers to read.
    left
        Elements of the vector from this row on, at least 1 unless the row only fills a block.
    limits
        Mask by the limits of the row's vector.
    block_first, value_first, entry_last
        First row of a block of 32, of a vector of V; last row of a pass that ends in an arg-max
        entry.
    granule_last
        Last row of the 32 elements that operand a's source offers.
    lock
        The next row must follow without a row of the other queue between.
    gap
        The next clock must issue nothing.
    """
    address, scalar = address_bits(params), scalar_bits(params)
    return data.StructLayout(
        {
            "row": row_layout(params),
            "a": address,
            "b": address,
            "reads_a": 1,
            "reads_b": 1,
            "source": Source,
            "use_s1": 1,
            "use_s2": 1,
            "s1": scalar,
            "s2": scalar,
            "s3": scalar,
            "left": LENGTH_BITS + 1,
            "limits": 1,
            "block_first": 1,
            "value_first": 1,
            "entry_last": 1,
            "granule_last": 1,
            "lock": 1,
            "gap": 1,
        }
    )


def scalar_operation(params: TileParams) -> data.StructLayout:
    """Return an operation on one scalar register, for the scalar pipeline."""
    scalar = scalar_bits(params)
    row = row_layout(params).members
    fields = {name: row[name] for name in SCALAR_FIELDS}
    return data.StructLayout({**fields, "immediate": 32, "use_immediate": 1, "s1": scalar})


def limits_write() -> data.StructLayout:
    """Return a write to the table of limits."""
    return data.StructLayout({"valid": 1, "index": VECTORS_BITS, "start": 16, "end": 16})


def fill_request() -> data.StructLayout:
    """Return what the drain buffer must collect for one command."""
    return data.StructLayout({"vectors": VECTORS_BITS, "length": LENGTH_BITS})
