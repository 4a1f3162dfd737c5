"""Files of packets that a simulated link plays and records.

A file to play has records of 8 + n bytes, n rounded up to a multiple of 8: the packet's bytes
(u32), the number of packets that must have come from the tile before it goes out (u32), the
packet. A record of no bytes ends the file: the link is done when so many packets have come.

A recorded file has records of 24 + n bytes: the packet's bytes (u32), the number of packets that
had gone to the tile when its first word came (u32), the clocks of its first and last word (u64
each), the packet. Everything is little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pequin.errors import InputError
from pequin_sim.protocol.codec import encode
from pequin_sim.protocol.packets import MEMORY_REQUESTS, MEMORY_TYPES, REQUESTS, Credit, Packet

PLAY = struct.Struct("<II")
RECORD = struct.Struct("<IIQQ")
ALIGNMENT = 8


def play_record(frame: bytes, after: int = 0) -> bytes:
    """Return the record of one packet to play."""
    return PLAY.pack(len(frame), after) + frame + bytes(-len(frame) % ALIGNMENT)


@dataclass(frozen=True)
class Recorded:
    """A packet from the tile.

    Parameters
    ----------
    frame
        Its bytes.
    played
        Packets that had gone to the tile when its first word came.
    begin, end
        Clocks of its first and its last word.
    """

    frame: bytes
    played: int
    begin: int
    end: int


def read_records(data: bytes) -> Iterator[tuple[Recorded, int]]:
    """Yield each complete record in `data` with the offset behind it."""
    at = 0
    while len(data) - at >= RECORD.size:
        size, played, begin, end = RECORD.unpack_from(data, at)
        first = at + RECORD.size
        at = first + size + -size % ALIGNMENT
        if at > len(data):
            return
        yield Recorded(data[first : first + size], played, begin, end), at


class LinkScript:
    """A whole conversation written down before it happens.

    Packets follow each other as fast as the limits of unanswered requests allow; `wait` makes
    those behind it wait for all that is expected.
    """

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._expected = 0
        self._after = 0
        self._id = 0

    @property
    def expected(self) -> int:
        """Packets that the tile will have sent when everything is over."""
        return self._expected

    def add(self, packet: Packet) -> int:
        """Append a packet with the next id; return the id. It is answered but for CREDIT."""
        number, self._id = self._id, self._id + 1 & 0xFFFF
        limit = MEMORY_REQUESTS if packet.TYPE in MEMORY_TYPES else REQUESTS
        frame = encode(replace(packet, id=number))
        after = max(self._after, self._expected - (limit - 1))
        self._records.append(play_record(frame, after))
        self._expected += not isinstance(packet, Credit)
        return number

    def expect(self, events: int) -> None:
        """Say that so many events will come."""
        if events < 0:
            raise InputError(f"events must be at least 0, not {events}")
        self._expected += events

    def wait(self) -> None:
        """Let what follows wait until everything expected has come."""
        self._after = self._expected

    def write(self, path: Path) -> None:
        """Write the file for `+NAME.load=`."""
        path.write_bytes(b"".join([*self._records, PLAY.pack(0, self._expected)]))
