"""Packets out of a stream of bytes that may be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pequin_sim.protocol.codec import (
    FRAME_BYTES,
    HEADER,
    MAGIC,
    MAX_BODY,
    WORD_BYTES,
    decode,
    unseal,
)
from pequin_sim.protocol.packets import VERSION, Packet, ProtocolError, Rule


@dataclass(frozen=True)
class Damage:
    """Bytes that are no packet.

    Parameters
    ----------
    offset
        Place of the first one in the stream (bytes).
    length
        How many were skipped.
    rule
        What was wrong with the first one.
    """

    offset: int
    length: int
    rule: Rule


class StreamDecoder:
    """Find packets in a stream without marks where they end, and find back after damage.

    A packet is what has the right magic, version, length and checksum. From anything else one byte
    is skipped, and the search goes on; so a good packet is lost only when damage pretends to be
    the beginning of another good one.

    A packet with a good checksum and a bad field is skipped as a whole, as a `Damage` too.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._offset = 0
        self._damage: tuple[int, Rule] | None = None

    def feed(self, data: bytes) -> list[Packet | Damage]:
        """Take more bytes; return what has been found, in order."""
        self._buffer += data
        return list(self._scan(end=False))

    def finish(self) -> list[Packet | Damage]:
        """Return what is left when no more bytes will come."""
        found = list(self._scan(end=True))
        if self._damage is not None:
            found.append(self._close_damage())
        return found

    def _scan(self, *, end: bool) -> Iterator[Packet | Damage]:
        while True:
            size = self._packet_size()
            if isinstance(size, Rule):
                self._skip(1, size)
                self._skip_to_magic()
                continue
            if size > len(self._buffer):
                if not end or not self._buffer:
                    return
                self._skip(1, Rule.LENGTH)
                continue
            frame = bytes(self._buffer[:size])
            try:
                unseal(frame)
            except ProtocolError as error:
                self._skip(1, error.rule)
                self._skip_to_magic()
                continue
            if self._damage is not None:
                yield self._close_damage()
            yield self._take(frame)

    def _take(self, frame: bytes) -> Packet | Damage:
        offset = self._offset
        self._drop(len(frame))
        try:
            return decode(frame)
        except ProtocolError as error:
            return Damage(offset, len(frame), error.rule)

    def _packet_size(self) -> int | Rule:
        """Return the bytes of the packet that begins here, as far as can be told."""
        head = self._buffer[: HEADER.size]
        if not MAGIC.startswith(head[: len(MAGIC)]):
            return Rule.SYNC
        if len(head) > len(MAGIC) and head[len(MAGIC)] != VERSION:
            return Rule.VERSION
        if len(head) < WORD_BYTES:
            return WORD_BYTES
        length = int.from_bytes(head[6:8], "little")
        if length % WORD_BYTES or length > MAX_BODY:
            return Rule.LENGTH
        return FRAME_BYTES + length

    def _skip(self, count: int, rule: Rule) -> None:
        if self._damage is None:
            self._damage = self._offset, rule
        self._drop(count)

    def _skip_to_magic(self) -> None:
        found = self._buffer.find(MAGIC[0])
        self._drop(len(self._buffer) if found < 0 else found)

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._offset += count

    def _close_damage(self) -> Damage:
        assert self._damage is not None
        (offset, rule), self._damage = self._damage, None
        return Damage(offset, self._offset - offset, rule)
