"""Numbers and payloads of the packet protocol; docs/protocol.md says what they mean."""

from amaranth.lib import data, enum

MAGIC = 0x5150
"""Bytes 0 and 1 of a packet: `PQ`, least significant byte first."""

VERSION = 1
"""Byte 2 of a packet."""

WORD_BYTES = 8
"""Bytes of a link word."""

CRC_BYTES = 4
"""Bytes of the checksum that ends a packet."""

HEADER_BYTES = 16
"""Bytes before a packet's body: the header proper and the argument, a word each."""

MAX_BEATS = 64
"""Most beats of a WRITE, a READ or a DATA packet."""

MEMORY_REQUESTS = 4
"""READ and WRITE packets that may be unanswered."""

REQUESTS = 16
"""Other packets that may be unanswered."""

COLUMN_BYTES = 24
"""Bytes of one column of a STEP: six words of 32 bits."""


class PacketType(enum.Enum, shape=8):
    """Byte 3 of a packet; bit 7 is set in those that the tile sends."""

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


class NakCode(enum.Enum, shape=8):
    """Why a packet was refused."""

    NONE = 0
    SYNC = 1
    VERSION = 2
    LENGTH = 3
    CRC = 4
    TYPE = 5
    FIELD = 6
    BUSY = 7
    OVERRUN = 8
    MEMORY = 9


class HostCause(enum.Enum, shape=3):
    """What the port did in a clock; the first that applies.

    BOTH, RX, TX: a word came, a word left. LINK: a word waits for the rate or for the other side.
    CREDIT: a packet waits for credit. TILE: the tile has not yet taken or answered something.
    """

    BOTH = 0
    RX = 1
    TX = 2
    LINK = 3
    CREDIT = 4
    TILE = 5
    IDLE = 6


class LinkWord(data.Struct):
    """Up to eight bytes of a packet, the first one in bits [7:0].

    `count` is the number of bytes, 8 but in the last word; `last` ends the packet. Bytes beyond
    `count` are ignored.
    """

    data: 64
    count: 4
    last: 1


class PacketHeader(data.Struct):
    """The first word of a packet; `length` is that of the body (bytes)."""

    magic: 16
    version: 8
    type: 8
    id: 16
    length: 16


class MemoryArgument(data.Struct):
    """The argument of READ, WRITE and DATA."""

    memory: 8
    zero: 8
    beats: 16
    address: 32


class Packet(data.Struct):
    """A packet that was received: header, argument, and the reason why it is refused."""

    header: PacketHeader
    argument: 64
    refusal: NakCode
    bytes: 16


class NakArgument(data.Struct):
    """The argument of NAK.

    `error` and `beat` belong to MEMORY: the tile's error code and the first beat that has one.
    `detail`: LENGTH the bytes received, OVERRUN the packets dropped.
    """

    code: NakCode
    error: 8
    beat: 16
    detail: 32


class AnswerKind(enum.Enum, shape=2):
    """What the dispatcher answers with."""

    ACK = 0
    NAK = 1
    WELCOME = 2


class Answer(data.Struct):
    """An answer to a packet that is no memory request; `type` is that of the packet."""

    kind: AnswerKind
    id: 16
    type: 8
    code: NakCode
    detail: 16


class MemoryRequest(data.Struct):
    """A READ or WRITE that was accepted."""

    id: 16
    write: 1
    memory: 4
    beats: 7
    address: 32


class MemoryResult(data.Struct):
    """A READ or WRITE whose accesses have all been answered."""

    id: 16
    write: 1
    memory: 4
    beats: 7
    address: 32
    error: 8
    beat: 7


class Dropped(data.Struct):
    """Packets that could not even be refused: the id of the first one, and how many."""

    id: 16
    count: 16
