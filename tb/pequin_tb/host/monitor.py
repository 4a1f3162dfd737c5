"""Check a recorded conversation against the rules of docs/protocol.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pequin_sim.protocol import (
    Ack,
    Credit,
    Data,
    Event,
    Hello,
    Nak,
    Packet,
    ProtocolError,
    Read,
    Recorded,
    Rule,
    Welcome,
    decode,
    judge,
)

FRAME_ID = slice(4, 6)
"""Where a packet has its id."""


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Parameters
    ----------
    rule
        `damage` a packet from the tile does not decode; `credit` it sent more than was granted;
        `answer` a packet has no answer, or a wrong one, or more than one; `event` the ids of events
        have a gap; `stamp` an event is older than the one before.
    detail
        Where and what.
    """

    rule: str
    detail: str


def frame_id(frame: bytes) -> int:
    """Return the id that a tile reads in a frame, whatever the frame is."""
    return int.from_bytes(frame[FRAME_ID], "little") if len(frame) >= 8 else 0


def check_link(
    played: Sequence[bytes], recorded: Sequence[Recorded], *, columns: int, complete: bool = True
) -> list[Violation]:
    """Return what a tile did wrong.

    Parameters
    ----------
    played
        All frames that went to the tile, good or bad, in order.
    recorded
        All packets that came.
    columns
        Columns of the tile.
    complete
        Everything has been answered by now.
    """
    found: list[Violation] = []
    packets: list[Packet] = []
    for number, record in enumerate(recorded):
        try:
            packets.append(decode(record.frame))
        except ProtocolError as error:
            found.append(Violation("damage", f"packet {number} from the tile: {error}"))
    found += _check_answers(played, packets, columns, complete)
    found += _check_events(packets)
    if not found:  # the books need every packet
        found += _check_credit(played, recorded, packets)
    return found


def _expected(frame: bytes, columns: int) -> tuple[int, str] | None:
    """Return id and kind of the answer that is due, None for CREDIT."""
    rule = judge(frame, columns=columns)
    if rule is not None:
        return frame_id(frame), rule.name
    packet = decode(frame)
    if isinstance(packet, Credit):
        return None
    if isinstance(packet, Hello):
        return packet.id, "WELCOME"
    if isinstance(packet, Read):
        return packet.id, f"DATA {packet.memory} {packet.address} {packet.beats}"
    return packet.id, f"ACK {packet.TYPE}"


def _check_answers(
    played: Sequence[bytes], packets: Sequence[Packet], columns: int, complete: bool
) -> list[Violation]:
    due: Counter[tuple[int, str]] = Counter()
    for frame in played:
        expected = _expected(frame, columns)
        if expected is not None:
            due[expected] += 1
    found = []
    dropped = 0
    for packet in packets:
        key = _key(packet)
        if key is None:
            continue
        if isinstance(packet, Nak) and packet.code == Rule.OVERRUN:
            dropped += packet.detail
            continue
        if due[key]:
            due[key] -= 1
            continue
        # A good request may be refused for what only the tile knows.
        alike = [other for other in due if other[0] == packet.id and due[other]]
        if isinstance(packet, Nak) and packet.code in (Rule.BUSY, Rule.MEMORY) and alike:
            due[alike[0]] -= 1
            continue
        found.append(Violation("answer", f"nobody asked for {packet!r}"))
    missing = sum(due.values())
    if complete and missing != dropped:
        left = [key for key in due if due[key]]
        found.append(
            Violation(
                "answer", f"{missing} answers are missing, {dropped} were dropped: {left[:5]}"
            )
        )
    return found


def _key(packet: Packet) -> tuple[int, str] | None:
    match packet:
        case Welcome():
            return packet.id, "WELCOME"
        case Data():
            return packet.id, f"DATA {packet.memory} {packet.address} {len(packet.data) // 32}"
        case Ack():
            return packet.id, f"ACK {packet.request}"
        case Nak():
            return packet.id, packet.code.name
    return None


def _check_events(packets: Sequence[Packet]) -> list[Violation]:
    found = []
    events = [packet for packet in packets if isinstance(packet, Event)]
    for before, after in pairwise(events):
        if after.id != (before.id + 1) & 0xFFFF:
            found.append(Violation("event", f"event {after.id} comes after {before.id}"))
        if after.stamp < before.stamp:
            found.append(Violation("stamp", f"event {after.id} has an older stamp"))
    return found


def _check_credit(
    played: Sequence[bytes], recorded: Sequence[Recorded], packets: Sequence[Packet]
) -> list[Violation]:
    """Check that no packet began before the grants that had gone out covered it.

    A grant counts as soon as it has gone out; the tile knows it a few clocks later.
    """
    sent_at_welcome = {p.id: p.sent for p in packets if isinstance(p, Welcome)}
    limits = [0]
    for frame in played:
        limits.append(limits[-1])
        try:
            packet = decode(frame)
        except ProtocolError:
            continue
        if isinstance(packet, Hello) and packet.id in sent_at_welcome:
            limits[-1] = sent_at_welcome[packet.id] + packet.credit
        elif isinstance(packet, Credit):
            limits[-1] = max(limits[-1], packet.total)
    found, sent = [], 0
    for number, record in enumerate(recorded):
        sent += len(record.frame)
        limit = limits[min(record.played, len(played))]
        if sent > limit:
            found.append(
                Violation("credit", f"packet {number}: {sent} bytes were sent, {limit} granted")
            )
    return found
