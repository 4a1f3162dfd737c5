"""The KV buffer: where K and V lie, and the streams that are made of them (numpy)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

BEAT = 32
"""Bytes of a beat; also tokens of a granule and elements of a block."""

HEAD = 8
"""Beats of a granule before its payload."""

Transfer = tuple[int, ...]
"""Beat addresses of a transfer: one or two."""


class NoPlaceError(Exception):
    """A write or a command has an address that is misaligned or outside of the buffer.

    Parameters
    ----------
    address
        The address that is told.
    """

    def __init__(self, address: int) -> None:
        super().__init__(f"no place at {address}")
        self.address = address


@dataclass
class KvModel:
    """Content of the buffer.

    Parameters
    ----------
    size
        Beats.
    blocks
        Blocks of a token, as configured; 0 before.
    beats
        uint8 [size, 32].
    """

    size: int
    blocks: int = 0
    beats: npt.NDArray[np.uint8] = field(init=False)
    _element: int = 0
    _granule: int = 0

    def __post_init__(self) -> None:
        """Start with zeros."""
        self.beats = np.zeros((self.size, BEAT), np.uint8)

    def write_key(
        self, address: int, lane: int, elements: npt.NDArray[np.uint8], scale: int
    ) -> None:
        """Store a block of K; `address` is the granule's plus the block's number."""
        granule, block = address // HEAD * HEAD, address % HEAD
        number = lane * self.blocks + block
        if block >= self.blocks or granule + HEAD + number >= self.size:
            raise NoPlaceError(address)
        self.beats[granule + HEAD + number] = elements
        self.beats[granule + number // BEAT, number % BEAT] = scale

    def write_value(self, address: int, lane: int, element: int, scale: int, last: bool) -> None:
        """Store an element of V; `address` is the granule's plus the element's number."""
        if self._element == 0:
            self._granule = address
        row = self._granule + HEAD + BEAT * self.blocks + self._element
        misplaced = self._granule % HEAD != 0 or self._element >= BEAT * self.blocks
        if misplaced or row >= self.size:
            raise NoPlaceError(address)
        self.beats[row, lane] = element
        self.beats[self._granule + self.blocks, lane] = scale
        self._element = 0 if last else self._element + 1

    def keys(self, address: int, step: int, tokens: int, blocks: int) -> list[Transfer]:
        """Return the transfers of a keys command: chunks of a scale beat and pairs of blocks."""
        transfers: list[Transfer] = []
        for granule, left in zip(
            _bases(address, step, -(-tokens // BEAT)), range(tokens, 0, -BEAT), strict=True
        ):
            payload = [granule + HEAD + n for n in range(min(left, BEAT) * blocks)]
            for chunk in range(0, len(payload), BEAT):
                transfers.append((granule + chunk // BEAT,))
                transfers += _pairs(payload[chunk : chunk + BEAT], 2)
        return transfers

    def values(self, address: int, step: int, rows: int, granules: int) -> list[Transfer]:
        """Return the transfers of a values command: for each row a beat of each granule."""
        blocks = -(-rows // BEAT)
        transfers: list[Transfer] = []
        for row in range(rows):
            places = [g + HEAD + BEAT * blocks + row for g in _bases(address, step, granules)]
            transfers += _pairs(places, 2 if step // HEAD % 2 else 1)
        return transfers

    def checked(self, transfers: list[Transfer]) -> tuple[list[Transfer], int | None]:
        """Return the transfers before the first address outside, and that address."""
        for i, transfer in enumerate(transfers):
            for address in transfer:
                if address >= self.size:
                    return transfers[:i], address
        return transfers, None


def misaligned(address: int, step: int, granules: int) -> int | None:
    """Return the first granule's address that is no multiple of 8, if there is one."""
    bases = _bases(address, step, min(granules, 2))
    return next((base for base in bases if base % HEAD), None)


def _bases(address: int, step: int, granules: int) -> list[int]:
    return [(address + i * step) % (1 << 32) for i in range(granules)]


def _pairs(places: list[int], width: int) -> list[Transfer]:
    return [tuple(places[i : i + width]) for i in range(0, len(places), width)]
