"""Small arithmetic helpers for Amaranth expressions."""

from collections.abc import Sequence

from amaranth.hdl import Value


def balanced_sum(terms: Sequence[Value]) -> Value:
    """Return the exact sum of `terms` as a balanced tree.

    Python's `sum()` builds a chain whose width grows with every term.
    """
    level = list(terms)
    while len(level) > 1:
        odd = [level[-1]] if len(level) % 2 else []
        level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + odd
    return level[0]
