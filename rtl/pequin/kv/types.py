"""Payloads between the parts of the KV buffer, and where a beat lies."""

from amaranth.hdl import Value
from amaranth.lib import data, enum

from pequin.config import BEAT_BYTES, BLOCK, TileParams
from pequin.hbm.types import BEAT_BITS
from pequin.tile.types import ErrorCode

BANKS = 2

GRANULE_ALIGN = 8
"""A granule begins at a multiple of this many beats; payload begins this far inside."""

TOKENS = BLOCK
"""Tokens of a granule."""

MAX_TOKEN_BLOCKS = 7
"""Most blocks of a token: their scale beats and that of V fill the head of a granule."""

MAX_ROWS = MAX_TOKEN_BLOCKS * BLOCK
"""Largest head dimension."""


class KvKind(enum.Enum, shape=2):
    """What a command of the KV buffer does."""

    KEYS = 0
    VALUES = 1
    CONFIGURE = 2


class KvCause(enum.Enum, shape=3):
    """What the KV buffer's reader did in a clock.

    BUSY: payload beats were read. SCALE: a scale beat was read. BANK: a bank served a write or an
    access. WRITES: a command waits for writes that came before it. OUTPUT: the MAC array takes no
    more. SETUP: a command's first address is worked out. IDLE: there is no command, or the reader
    has stopped with a fault.
    """

    BUSY = 0
    SCALE = 1
    BANK = 2
    WRITES = 3
    OUTPUT = 4
    SETUP = 5
    IDLE = 6


def bank_of(address: Value) -> Value:
    """Return the bank of a beat: neighbours of an even pair differ, and granules side by side."""
    return address[0] ^ address[3]


def row_of(address: Value) -> Value:
    """Return the beat's place in its bank."""
    return address[1:]


def address_bits(params: TileParams) -> int:
    """Return the width of a beat address inside the buffer."""
    return (params.config.kv_beats - 1).bit_length()


def bank_write(params: TileParams) -> data.StructLayout:
    """Return a write to one bank: the bytes of `data` that `mask` has, at place `row`."""
    return data.StructLayout(
        {"row": address_bits(params) - 1, "mask": BEAT_BYTES, "data": BEAT_BITS}
    )


def kv_read() -> data.StructLayout:
    """Return one clock's reading.

    error, detail
        Not `ErrorCode.NONE`: nothing is read; the fault to be told in its turn.
    none
        Nothing is read: the end of a command that reads nothing.
    addresses, two
        One beat, or two that lie in different banks.
    scale
        It is a scale beat.
    last
        The command's last one.
    """
    return data.StructLayout(
        {
            "error": ErrorCode,
            "detail": 32,
            "none": 1,
            "addresses": data.ArrayLayout(32, 2),
            "two": 1,
            "scale": 1,
            "last": 1,
        }
    )
