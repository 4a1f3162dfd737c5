"""Packets to bytes and back."""

from __future__ import annotations

import struct
from dataclasses import astuple
from typing import Any

from pequin.errors import InputError
from pequin_sim.protocol.crc import crc32c
from pequin_sim.protocol.packets import (
    BEAT_BYTES,
    MAX_BEATS,
    MAX_COLUMNS,
    REQUEST_TYPES,
    VERSION,
    Ack,
    Clear,
    Column,
    Credit,
    Data,
    Event,
    EventKind,
    Hello,
    MemoryId,
    Nak,
    Packet,
    PacketType,
    ProtocolError,
    Read,
    Rule,
    Sizes,
    Start,
    Step,
    Stop,
    Welcome,
    Write,
)

MAGIC = b"PQ"
"""First bytes of every packet."""

HEADER = struct.Struct("<2sBBHH8s")
"""Magic, version, type, id, bytes of the body, argument."""

CRC_BYTES = 4
"""Bytes of the checksum."""

WORD_BYTES = 8
"""A body is a whole number of these."""

COLUMN_BYTES = 24
"""Bytes of a column in a STEP."""

FRAME_BYTES = HEADER.size + CRC_BYTES
"""Bytes of a packet without a body."""

MAX_BODY = max(MAX_BEATS * BEAT_BYTES, MAX_COLUMNS * COLUMN_BYTES)
"""Bytes of the longest body."""

MAX_PACKET = FRAME_BYTES + MAX_BODY
"""Bytes of the longest packet."""

_PLACE, _WORD, _PC = struct.Struct("<BBHI"), struct.Struct("<II"), struct.Struct("<HHI")
_NAK, _EVENT, _EVENT_BODY = struct.Struct("<BBHI"), struct.Struct("<BBHI"), struct.Struct("<IIQ")
_WELCOME, _SIZES = struct.Struct("<BBHI"), struct.Struct("<9IHH")
_COLUMN = struct.Struct("<6I")


def seal(
    kind: int, number: int, argument: bytes, body: bytes = b"", version: int = VERSION
) -> bytes:
    """Return a packet around any argument (8 bytes) and body, its checksum right."""
    head = HEADER.pack(MAGIC, version, kind, number, len(body), argument)
    return head + body + crc32c(head + body).to_bytes(CRC_BYTES, "little")


def encode(packet: Packet) -> bytes:
    """Return the bytes of a packet.

    Raises
    ------
    InputError
        A field does not fit.
    """
    try:
        argument, body = _content(packet)
        return seal(packet.TYPE, packet.id, argument, body)
    except struct.error as error:
        raise InputError(f"a field of {packet!r} does not fit its place: {error}") from None


def _content(packet: Packet) -> tuple[bytes, bytes]:
    """Return argument and body."""
    match packet:
        case Hello():
            return _WORD.pack(packet.credit, 0), b""
        case Credit():
            return _WORD.pack(packet.total, 0), b""
        case Write() | Data():
            return _encode_beats(packet)
        case Read():
            _check_beats(packet.beats)
            return _PLACE.pack(packet.memory, 0, packet.beats, packet.address), b""
        case Start():
            return _PC.pack(packet.pc, 0, 0), b""
        case Stop() | Clear():
            return bytes(8), b""
        case Step():
            return _encode_step(packet)
        case Welcome():
            limits = (packet.memory_requests, packet.requests, packet.max_beats, packet.sent)
            return _WELCOME.pack(*limits), _SIZES.pack(*astuple(packet.sizes))
        case Ack():
            return _WORD.pack(packet.request, 0), b""
        case Nak():
            return _NAK.pack(packet.code, packet.error, packet.beat, packet.detail), b""
        case Event():
            argument = _EVENT.pack(packet.kind, packet.unit, packet.code, packet.pc)
            return argument, _EVENT_BODY.pack(packet.value, packet.detail, packet.stamp)
    raise InputError(f"{packet!r} is no packet")


def _encode_beats(packet: Write | Data) -> tuple[bytes, bytes]:
    beats, rest = divmod(len(packet.data), BEAT_BYTES)
    if rest:
        raise InputError(
            f"data must be whole beats of {BEAT_BYTES} bytes, not {len(packet.data)} bytes"
        )
    _check_beats(beats)
    return _PLACE.pack(packet.memory, 0, beats, packet.address), packet.data


def _check_beats(beats: int) -> None:
    if not 1 <= beats <= MAX_BEATS:
        raise InputError(f"a packet moves 1 to {MAX_BEATS} beats, not {beats}")


def _encode_step(packet: Step) -> tuple[bytes, bytes]:
    if not 1 <= len(packet.columns) <= MAX_COLUMNS:
        raise InputError(f"a STEP has 1 to {MAX_COLUMNS} columns, not {len(packet.columns)}")
    body = b"".join(_COLUMN.pack(*astuple(column)) for column in packet.columns)
    return _WORD.pack(len(packet.columns), 0), body


def decode(frame: bytes) -> Packet:
    """Return the packet in `frame`, which holds nothing else.

    Raises
    ------
    ProtocolError
        A rule is broken; of several the one that comes first in docs/protocol.md.
    """
    kind, number, argument, body = unseal(frame)
    return _decode_content(kind, number, argument, body)


def unseal(frame: bytes) -> tuple[int, int, bytes, bytes]:
    """Return type, id, argument and body after checking all that does not depend on the type.

    Raises
    ------
    ProtocolError
        SYNC, VERSION, LENGTH or CRC.
    """
    head = frame[: HEADER.size].ljust(HEADER.size, b"\0")
    if len(frame) < WORD_BYTES:  # too short to be looked into
        raise ProtocolError(Rule.SYNC, f"{len(frame)} bytes are no packet")
    magic, version, kind, number, length, argument = HEADER.unpack(head)
    if magic != MAGIC:
        raise ProtocolError(Rule.SYNC, f"a packet begins with {MAGIC.hex()}, not {magic.hex()}")
    if version != VERSION:
        raise ProtocolError(Rule.VERSION, f"the version is {VERSION}, not {version}")
    if length % WORD_BYTES or len(frame) != FRAME_BYTES + length:
        raise ProtocolError(
            Rule.LENGTH,
            f"a body of {length} bytes makes {FRAME_BYTES + length} bytes (a multiple of 8 and "
            f"{FRAME_BYTES}), not {len(frame)}",
        )
    found, wanted = crc32c(frame[:-CRC_BYTES]), int.from_bytes(frame[-CRC_BYTES:], "little")
    if found != wanted:
        raise ProtocolError(Rule.CRC, f"the checksum is {found:08x}, not {wanted:08x}")
    return kind, number, argument, frame[HEADER.size : -CRC_BYTES]


def _decode_content(kind: int, number: int, argument: bytes, body: bytes) -> Packet:
    decoders = {
        PacketType.WRITE: _decode_beats,
        PacketType.DATA: _decode_beats,
        PacketType.READ: _decode_read,
        PacketType.STEP: _decode_step,
        PacketType.WELCOME: _decode_welcome,
        PacketType.EVENT: _decode_event,
    }
    try:
        known = PacketType(kind)
    except ValueError:
        raise ProtocolError(Rule.TYPE, f"there is no type {kind:#04x}") from None
    if known in decoders:
        return decoders[known](known, number, argument, body)
    packet = _decode_short(known, number, argument)
    _check_length(known, body, 0)
    return packet


def _decode_short(kind: PacketType, number: int, argument: bytes) -> Packet:
    low, high = _WORD.unpack(argument)
    if kind == PacketType.NAK:
        code, error, beat, detail = _NAK.unpack(argument)
        _check_field(kind, code in set(Rule), f"code {code}")
        return Nak(id=number, code=Rule(code), error=error, beat=beat, detail=detail)
    _check_field(kind, high == 0, "bytes that must be zero")
    if kind == PacketType.HELLO:
        return Hello(id=number, credit=low)
    if kind == PacketType.CREDIT:
        return Credit(id=number, total=low)
    if kind == PacketType.START:
        _check_field(kind, low <= 0xFFFF, f"program counter {low}")
        return Start(id=number, pc=low)
    if kind == PacketType.ACK:
        _check_field(kind, low in REQUEST_TYPES, f"request type {low}")
        return Ack(id=number, request=low)
    _check_field(kind, low == 0, "bytes that must be zero")
    return Stop(id=number) if kind == PacketType.STOP else Clear(id=number)


def _decode_place(kind: PacketType, argument: bytes) -> tuple[int, int, int]:
    memory, zero, beats, address = _PLACE.unpack(argument)
    _check_field(kind, zero == 0, "a byte that must be zero")
    _check_field(kind, 1 <= beats <= MAX_BEATS, f"{beats} beats")
    return memory, beats, address


def _check_memory(memory: int) -> None:
    if memory not in set(MemoryId):
        raise ProtocolError(Rule.MEMORY, f"there is no memory {memory}")


def _decode_beats(kind: PacketType, number: int, argument: bytes, body: bytes) -> Packet:
    memory, beats, address = _decode_place(kind, argument)
    _check_length(kind, body, beats * BEAT_BYTES)
    _check_memory(memory)
    packet = Write if kind == PacketType.WRITE else Data
    return packet(id=number, memory=memory, address=address, data=body)


def _decode_read(kind: PacketType, number: int, argument: bytes, body: bytes) -> Packet:
    memory, beats, address = _decode_place(kind, argument)
    _check_length(kind, body, 0)
    _check_memory(memory)
    return Read(id=number, memory=memory, address=address, beats=beats)


def _decode_step(kind: PacketType, number: int, argument: bytes, body: bytes) -> Packet:
    count, zero = _WORD.unpack(argument)
    _check_field(kind, zero == 0, "bytes that must be zero")
    _check_field(kind, 1 <= count <= MAX_COLUMNS, f"{count} columns")
    _check_length(kind, body, count * COLUMN_BYTES)
    names = Column.__dataclass_fields__
    columns = [Column(**dict(zip(names, row, strict=True))) for row in _COLUMN.iter_unpack(body)]
    return Step(id=number, columns=tuple(columns))


def _decode_welcome(kind: PacketType, number: int, argument: bytes, body: bytes) -> Packet:
    memory_requests, requests, max_beats, sent = _WELCOME.unpack(argument)
    _check_length(kind, body, _SIZES.size)
    sizes = Sizes(**dict(zip(Sizes.__dataclass_fields__, _SIZES.unpack(body), strict=True)))
    _check_field(kind, sizes.rate_denominator > 0, "a rate with denominator 0")
    return Welcome(
        id=number,
        memory_requests=memory_requests,
        requests=requests,
        max_beats=max_beats,
        sent=sent,
        sizes=sizes,
    )


def _decode_event(kind: PacketType, number: int, argument: bytes, body: bytes) -> Packet:
    event, unit, code, pc = _EVENT.unpack(argument)
    _check_field(kind, event in set(EventKind), f"event kind {event}")
    _check_length(kind, body, _EVENT_BODY.size)
    value, detail, stamp = _EVENT_BODY.unpack(body)
    fields: dict[str, Any] = {"unit": unit, "code": code, "pc": pc}
    fields |= {"value": value, "detail": detail, "stamp": stamp}
    return Event(id=number, kind=EventKind(event), **fields)


def _check_field(kind: PacketType, good: bool, what: str) -> None:
    if not good:
        raise ProtocolError(Rule.FIELD, f"{kind.name} with {what}")


def _check_length(kind: PacketType, body: bytes, wanted: int) -> None:
    if len(body) != wanted:
        raise ProtocolError(
            Rule.LENGTH, f"the body of {kind.name} must have {wanted} bytes, not {len(body)}"
        )


def judge(frame: bytes, *, columns: int) -> Rule | None:
    """Return the rule by which a tile refuses a frame at once, or None.

    Parameters
    ----------
    frame
        What came between two ends of packets.
    columns
        Columns of the tile.
    """
    try:
        kind, _, _, _ = unseal(frame)
        if kind not in REQUEST_TYPES:
            return Rule.TYPE
        packet = decode(frame)
    except ProtocolError as error:
        # A STEP too long for the tile is refused by its columns first, as by the format.
        if error.rule == Rule.LENGTH and _too_many_columns(frame, columns):
            return Rule.FIELD
        return error.rule
    if isinstance(packet, Step) and len(packet.columns) > columns:
        return Rule.FIELD
    return None


def _too_many_columns(frame: bytes, columns: int) -> bool:
    try:
        kind, _, argument, _ = unseal(frame)
    except ProtocolError:
        return False
    return kind == PacketType.STEP and argument[0] > columns
