"""CRC-32C (Castagnoli): polynomial 0x1EDC6F41, bits reflected, ones before and after."""

from __future__ import annotations

_REFLECTED = 0x82F63B78


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_REFLECTED if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


_TABLE = _table()


def crc32c(data: bytes, before: int = 0) -> int:
    """Return the checksum of `data`; `before` is that of the bytes that come before."""
    value = before ^ 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF
