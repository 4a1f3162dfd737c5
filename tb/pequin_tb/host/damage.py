"""Ways in which a packet can arrive damaged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pequin_sim.protocol import seal
from pequin_sim.protocol.codec import CRC_BYTES, HEADER
from pequin_sim.protocol.packets import PacketType

Change = Callable[[bytes, np.random.Generator], bytes]


def _keep(frame: bytes, rng: np.random.Generator) -> bytes:
    return frame


def _flip(frame: bytes, rng: np.random.Generator) -> bytes:
    """Invert up to three bits anywhere."""
    raw = bytearray(frame)
    for bit in rng.integers(0, 8 * len(frame), int(rng.integers(1, 4))):
        raw[bit // 8] ^= 1 << bit % 8
    return bytes(raw)


def _flip_head(frame: bytes, rng: np.random.Generator) -> bytes:
    """Invert a bit of the first two words."""
    raw = bytearray(frame)
    bit = int(rng.integers(0, 8 * HEADER.size))
    raw[bit // 8] ^= 1 << bit % 8
    return bytes(raw)


def _cut(frame: bytes, rng: np.random.Generator) -> bytes:
    """Lose the end."""
    return frame[: int(rng.integers(1, len(frame)))]


def _extend(frame: bytes, rng: np.random.Generator) -> bytes:
    """Have something behind the end: the mark between two packets is lost."""
    return frame + (frame if rng.random() < 0.5 else rng.bytes(int(rng.integers(1, 40))))


def _lose_word(frame: bytes, rng: np.random.Generator) -> bytes:
    """Lose eight bytes inside."""
    at = 8 * int(rng.integers(0, len(frame) // 8))
    return frame[:at] + frame[at + 8 :]


def _garbage(frame: bytes, rng: np.random.Generator) -> bytes:
    return rng.bytes(int(rng.integers(1, 100)))


def _very_long(frame: bytes, rng: np.random.Generator) -> bytes:
    """Be longer than any packet."""
    return frame + rng.bytes(int(rng.integers(2100, 5000)))


def _resealed(frame: bytes, rng: np.random.Generator) -> bytes:
    """Change a byte of type, argument or length and give it the right checksum."""
    raw = bytearray(frame[:-CRC_BYTES])
    kind, number = raw[3], int.from_bytes(raw[4:6], "little")
    argument, body = raw[8:16], bytes(raw[16:])
    choice = int(rng.integers(4))
    if choice == 0:
        kind = int(rng.choice([*range(0x07, 0x10), *range(0x7F, 0x90), 0xFF]))
        kind = kind if kind not in (PacketType.CREDIT, PacketType.STEP) else 0
    elif choice == 1:
        argument[int(rng.integers(0, 4))] ^= 1 << int(rng.integers(8))
    elif choice == 2:
        body = body[: 8 * int(rng.integers(0, len(body) // 8))]
    else:
        return seal(kind, number, bytes(argument), body, version=int(rng.integers(2, 256)))
    return seal(kind, number, bytes(argument), body)


def _step(frame: bytes, rng: np.random.Generator) -> bytes:
    """Be a STEP with a wrong number of columns."""
    count = int(rng.choice([0, 3, 17, 65, 255, 256]))
    return seal(
        PacketType.STEP,
        int.from_bytes(frame[4:6], "little"),
        count.to_bytes(8, "little"),
        bytes(24 * int(rng.integers(0, 4))),
    )


def _reserved(frame: bytes, rng: np.random.Generator) -> bytes:
    """Have something where there must be zeros."""
    kind = rng.choice([PacketType.START, PacketType.STOP, PacketType.CLEAR, PacketType.HELLO])
    argument = bytearray(8)
    argument[int(rng.integers(4, 8))] = int(rng.integers(1, 256))
    return seal(int(kind), int.from_bytes(frame[4:6], "little"), bytes(argument))


CHANGES: tuple[Change, ...] = (
    _keep,
    _flip,
    _flip_head,
    _cut,
    _extend,
    _lose_word,
    _garbage,
    _very_long,
    _resealed,
    _step,
    _reserved,
)
"""Each returns what arrives in place of a WRITE."""


def damage(frame: bytes, rng: np.random.Generator) -> bytes:
    """Return what becomes of a WRITE, at least one byte."""
    return CHANGES[int(rng.integers(len(CHANGES)))](frame, rng)
