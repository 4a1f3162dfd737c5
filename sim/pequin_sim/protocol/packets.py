"""The packets between host and tile as data; docs/protocol.md is their contract.

Nothing here comes from the hardware's sources: a test holds the numbers together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from pequin.errors import InputError

VERSION = 1
"""Version of the protocol."""

BEAT_BYTES = 32
"""Bytes of a beat."""

MAX_BEATS = 64
"""Most beats of a WRITE, a READ or a DATA packet."""

MAX_COLUMNS = 255
"""Most columns of a STEP in the format; a tile takes as many as its preset has."""

MEMORY_REQUESTS = 4
"""READ and WRITE packets that may be unanswered."""

REQUESTS = 16
"""Other packets that may be unanswered."""


class PacketType(IntEnum):
    """Byte 3 of a packet."""

    HELLO = 0x01
    WRITE = 0x02
    READ = 0x03
    START = 0x04
    STOP = 0x05
    CLEAR = 0x06
    STEP = 0x07
    CREDIT = 0x08
    WELCOME = 0x81
    ACK = 0x82
    DATA = 0x83
    NAK = 0x84
    EVENT = 0x85


class Rule(IntEnum):
    """What a bad packet breaks; the codes of NAK."""

    SYNC = 1
    VERSION = 2
    LENGTH = 3
    CRC = 4
    TYPE = 5
    FIELD = 6
    BUSY = 7
    OVERRUN = 8
    MEMORY = 9


class MemoryId(IntEnum):
    """Memories of a tile."""

    HBM = 0
    VECTOR = 1
    KV = 2
    PROGRAM = 3
    ACTIVATIONS = 4
    SCALARS = 5
    REGISTERS = 6


class EventKind(IntEnum):
    """Kinds of events."""

    TOKEN = 1
    DONE = 2
    ERROR = 3


ACCESS_ERROR = 15
"""Error code of the tile for a memory or an address that does not exist."""


class ProtocolError(InputError):
    """A packet breaks a rule.

    Parameters
    ----------
    rule
        Which one.
    message
        What is wrong, with the numbers.
    """

    def __init__(self, rule: Rule, message: str) -> None:
        super().__init__(f"{rule.name.lower()}: {message}")
        self.rule = rule


@dataclass(frozen=True, kw_only=True)
class Packet:
    """What all packets have: the number that joins request and answer, 16 bits."""

    TYPE: ClassVar[PacketType]
    id: int = 0


@dataclass(frozen=True, kw_only=True)
class Hello(Packet):
    """First packet of a host: from now on the tile may send `credit` bytes."""

    TYPE = PacketType.HELLO
    credit: int


@dataclass(frozen=True, kw_only=True)
class Write(Packet):
    """Write whole beats (bytes, a multiple of 32) from a beat address on."""

    TYPE = PacketType.WRITE
    memory: int
    address: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Read(Packet):
    """Read `beats` beats from a beat address on."""

    TYPE = PacketType.READ
    memory: int
    address: int
    beats: int


@dataclass(frozen=True, kw_only=True)
class Start(Packet):
    """Start the program at an instruction."""

    TYPE = PacketType.START
    pc: int = 0


@dataclass(frozen=True, kw_only=True)
class Stop(Packet):
    """Stop the tile."""

    TYPE = PacketType.STOP


@dataclass(frozen=True, kw_only=True)
class Clear(Packet):
    """Set the counters to zero."""

    TYPE = PacketType.CLEAR


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a STEP: the fields of docs/isa.md, "Step table", 32 bits each."""

    slot: int = 0
    token: int = 0
    position: int = 0
    start: int = 0
    flags: int = 0
    kv_base: int = 0


@dataclass(frozen=True, kw_only=True)
class Step(Packet):
    """One step of the program."""

    TYPE = PacketType.STEP
    columns: tuple[Column, ...]


@dataclass(frozen=True, kw_only=True)
class Credit(Packet):
    """The tile may send until it has sent `total` bytes since reset, modulo 2**32."""

    TYPE = PacketType.CREDIT
    total: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a tile says about itself in WELCOME.

    The rate of the link is `rate_numerator` / `rate_denominator` bytes per clock.
    """

    columns: int
    act_blocks: int
    lanes: int
    scalars: int
    vector_elements: int
    kv_beats: int
    program_words: int
    fifo_beats: int
    store_bytes: int
    rate_numerator: int
    rate_denominator: int


@dataclass(frozen=True, kw_only=True)
class Welcome(Packet):
    """Answer to HELLO: limits, bytes sent before this packet, sizes."""

    TYPE = PacketType.WELCOME
    memory_requests: int
    requests: int
    max_beats: int
    sent: int
    sizes: Sizes


@dataclass(frozen=True, kw_only=True)
class Ack(Packet):
    """A request of type `request` was carried out (WRITE), taken or accepted."""

    TYPE = PacketType.ACK
    request: int


@dataclass(frozen=True, kw_only=True)
class Data(Packet):
    """Answer to READ: the beats, in bytes."""

    TYPE = PacketType.DATA
    memory: int
    address: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Nak(Packet):
    """Refusal of the packet `id`.

    `error` and `beat` belong to MEMORY, `detail` to LENGTH (bytes received) and OVERRUN (packets
    dropped).
    """

    TYPE = PacketType.NAK
    code: Rule
    error: int = 0
    beat: int = 0
    detail: int = 0


@dataclass(frozen=True, kw_only=True)
class Event(Packet):
    """Event of the tile; `stamp` in clocks since reset. Its `id` counts the events."""

    TYPE = PacketType.EVENT
    kind: EventKind
    unit: int = 0
    code: int = 0
    pc: int = 0
    value: int = 0
    detail: int = 0
    stamp: int = 0


REQUEST_TYPES = frozenset(kind for kind in PacketType if kind < 0x80)
"""Types that a host sends."""

MEMORY_TYPES = frozenset({PacketType.WRITE, PacketType.READ})
"""Requests that need one of the `MEMORY_REQUESTS` places."""
