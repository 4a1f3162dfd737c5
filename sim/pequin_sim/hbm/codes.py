"""Golden model of the SECDED code: what check bits a store must hold.

docs/hbm.md, "ECC": check bit j of a 64-bit word is the parity of the data bits whose column has
bit j set; the columns are the bytes with three ones in ascending order, then those with five.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

BEAT_BYTES = 32


def columns() -> list[int]:
    """Return the 64 columns of the check matrix."""
    found: list[int] = []
    for ones in (3, 5):
        bytes_ = [sum(1 << b for b in bits) for bits in itertools.combinations(range(8), ones)]
        found += sorted(bytes_)
    return found[:64]


def _tables() -> npt.NDArray[np.uint8]:
    """Return the check bits of each byte value at each place of a word: [8, 256]."""
    table = np.zeros((8, 256), np.uint8)
    matrix = columns()
    for place in range(8):
        for value in range(256):
            for bit in range(8):
                if value >> bit & 1:
                    table[place, value] ^= matrix[8 * place + bit]
    return table


def check_bytes(beats: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the check bytes of beats: uint8 [n, 32] to uint8 [n, 4], word 0 first."""
    words = beats.reshape(-1, 4, 8)
    table = _tables()
    parts = [table[place][words[:, :, place]] for place in range(8)]
    result: npt.NDArray[np.uint8] = np.bitwise_xor.reduce(parts)
    return result
