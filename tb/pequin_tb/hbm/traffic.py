"""Random traffic that makes the channel's ports meet in the same rows, banks and beats."""

from __future__ import annotations

import random
from collections.abc import Iterator

STORE_BEATS = (64 << 20) // 32
HOT_CHUNKS = (0, 1, 2, 24, 29, 192, 193, 777, 1000, 1024, 30000, 32767)
"""Chunks that all ports use: neighbours, several rows of one bank, the end of the store."""


def random_requests(
    port: int, count: int, seed: int, *, bad_share: float = 0.02, store_beats: int = STORE_BEATS
) -> Iterator[tuple[int, int, int, int]]:
    """Yield random reads and writes of 1 to 140 beats, and some that must be refused.

    Parameters
    ----------
    port, seed
        Choose the sequence.
    count
        Requests.
    bad_share
        Share of requests of length zero or past the end of the store.
    store_beats
        Size of the store (beats); at least 256.
    """
    rng = random.Random(f"{seed}/{port}")
    for _ in range(count):
        write = rng.randrange(2)
        kind = rng.random()
        if kind < bad_share / 2:
            yield write, rng.randrange(store_beats), 0, 0
            continue
        if kind < bad_share:
            yield write, store_beats - rng.randrange(3), rng.randrange(4, 9), 0
            continue
        length = 1 if rng.random() < 0.6 else rng.randrange(2, 9)
        if rng.random() < 0.02:
            length = rng.randrange(60, 140)
        if rng.random() < 0.5:
            address = rng.choice(HOT_CHUNKS) * 64 % store_beats + rng.randrange(64)
        else:
            address = rng.randrange(store_beats)
        yield write, min(address, store_beats - length), length, 0
