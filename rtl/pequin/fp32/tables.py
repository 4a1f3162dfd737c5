"""Tables of the special functions: a value and a slope for each of 1,024 segments.

Computed with integers and `decimal`, so that the bits do not depend on a machine's mathematics
library.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from decimal import Decimal, localcontext

INDEX_BITS = 10
"""Bits that choose a segment of a function's reduced range."""

FRACTION_BITS = 26
"""Fraction bits of a value; 1.0 is 2**26."""

VALUE_BITS = FRACTION_BITS + 1
"""Bits of a segment's first value, which is below 2."""

SLOPE_BITS = 17
"""Bits of a segment's rise or fall, in units of 2**-26."""

_Real = Callable[[Decimal], Decimal]


def _chords(function: _Real) -> list[tuple[int, int]]:
    """Return value and absolute slope of each chord over [0, 1]."""
    with localcontext() as context:
        context.prec = 40
        count = 1 << INDEX_BITS
        one = Decimal(1 << FRACTION_BITS)
        points = [_nearest(function(Decimal(i) / count) * one) for i in range(count + 1)]
        return [(low, abs(high - low)) for low, high in itertools.pairwise(points)]


def _nearest(x: Decimal) -> int:
    return int((x + Decimal("0.5")).to_integral_value(rounding="ROUND_FLOOR"))


@functools.lru_cache(maxsize=1)
def exp2_table() -> tuple[tuple[int, int], ...]:
    """Chords of 2**x for x from 0 to 1; rising."""
    return tuple(_chords(lambda x: Decimal(2) ** x))


@functools.lru_cache(maxsize=1)
def reciprocal_table() -> tuple[tuple[int, int], ...]:
    """Chords of 1 / (1 + x) for x from 0 to 1; falling."""
    return tuple(_chords(lambda x: 1 / (1 + x)))


@functools.lru_cache(maxsize=2)
def rsqrt_table(odd: bool) -> tuple[tuple[int, int], ...]:
    """Chords of 1 / sqrt(1 + x), or of 1 / sqrt(2 + 2 x) when `odd`; falling."""
    base = 2 if odd else 1
    return tuple(_chords(lambda x: 1 / (base * (1 + x)).sqrt()))
