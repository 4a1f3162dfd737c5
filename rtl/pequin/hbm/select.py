"""Small selection circuits: first of many, and one-hot multiplexers."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Module, Signal, Value


def first_of(m: Module, requests: Sequence[Value], name: str) -> Signal:
    """Return a one-hot choice of the lowest set request.

    Parameters
    ----------
    m
        Module that gets the logic.
    requests
        One-bit values, highest priority first.
    name
        Name of the one-hot signal.
    """
    chosen = Signal(len(requests), name=name)
    vector = Signal(len(requests), name=f"{name}_requests")
    m.d.comb += vector.eq(Cat(requests))
    m.d.comb += chosen.eq(vector & (~vector + 1)[: len(requests)])
    return chosen


def indexed(values: Sequence[Value], index: Value) -> Value:
    """Return the value of an index; indices past the end give the last one.

    Every code of the index is covered, which keeps the generated case statements complete.
    """
    padded = [*values, *[values[-1]] * ((1 << len(index)) - len(values))]
    chosen: Value = Array(padded)[index]
    return chosen


def one_hot_mux(choice: Value, values: Sequence[Value]) -> Value:
    """Return the value whose choice bit is set, or zero when none is."""
    width = max(len(Value.cast(value)) for value in values)
    terms = [Value.cast(value) & choice[i].replicate(width) for i, value in enumerate(values)]
    while len(terms) > 1:
        joined = [a | b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = joined + terms[2 * len(joined) :]
    return terms[0][:width]
