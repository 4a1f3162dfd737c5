"""Payloads and signatures of the HBM channel's ports and of its command bus."""

from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out, Signature

from pequin.config import BEAT_BYTES

BEAT_BITS = 8 * BEAT_BYTES
"""Bits of a beat."""

CHECK_BITS = 32
"""ECC check bits of a beat: 8 for each 64-bit word."""


class HbmError(enum.Enum, shape=2):
    """Outcome of a request or of one beat."""

    OK = 0
    ADDRESS = 1
    """The length is zero or the request reaches past the backing store."""
    ECC = 2
    """A double-bit error; the data is replaced with zeros."""


class RefreshMode(enum.Enum, shape=2):
    """Refresh policy, a run-time input of the channel."""

    NONE = 0
    ALL_BANK = 1
    PER_BANK = 2


class RowKind(enum.Enum, shape=3):
    """Commands of the row bus."""

    NOP = 0
    ACT = 1
    PRE = 2
    PRE_ALL = 3
    REF_BANK = 4
    REF_ALL = 5


class ColKind(enum.Enum, shape=2):
    """Commands of the column bus."""

    NOP = 0
    RD = 1
    WR = 2


class RowCommand(data.Struct):
    """One command of the row bus."""

    kind: RowKind
    group: 3
    bank: 3
    row: 16


class ColCommand(data.Struct):
    """One command of the column bus; `column` counts bursts of the open row."""

    kind: ColKind
    group: 3
    bank: 3
    column: 6


class HbmRequest(data.Struct):
    """`length` beats from beat address `address` on, to read or to write."""

    address: 32
    length: 16
    write: 1


class HbmReadBeat(data.Struct):
    """One beat of read data; `last` marks the last one of its request."""

    data: BEAT_BITS
    error: HbmError
    last: 1


class HbmWriteAck(data.Struct):
    """A write request is visible to every read accepted from now on, or was refused."""

    error: HbmError


class HbmPort(Signature):
    """One requester's port, seen from the requester.

    Members
    -------
    request
        Requests, served in order within the port.
    write_data
        The beats of the write requests, in order; taken as fast as the write queue has room.
    read_data
        The beats of the read requests, in order.
    write_ack
        One for each write request, in order.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "request": Out(stream.Signature(HbmRequest)),
                "write_data": Out(stream.Signature(BEAT_BITS)),
                "read_data": In(stream.Signature(HbmReadBeat)),
                "write_ack": In(stream.Signature(HbmWriteAck)),
            }
        )
