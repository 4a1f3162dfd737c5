"""The host's side of the protocol: ids, limits of unanswered requests, credit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pequin.errors import InputError
from pequin_sim.protocol.codec import BEAT_BYTES, FRAME_BYTES, decode, encode
from pequin_sim.protocol.packets import (
    MAX_BEATS,
    MEMORY_REQUESTS,
    MEMORY_TYPES,
    REQUESTS,
    Ack,
    Credit,
    Data,
    Event,
    Hello,
    Nak,
    Packet,
    PacketType,
    Read,
    Welcome,
)

ANSWERS: dict[PacketType, type[Packet]] = {
    PacketType.HELLO: Welcome,
    PacketType.READ: Data,
}
"""Answers other than ACK and NAK."""


@dataclass(frozen=True)
class Answered:
    """A request with its answer."""

    request: Packet
    answer: Packet


@dataclass(frozen=True)
class Unasked:
    """An answer to a packet that went out beside the session."""

    answer: Packet


class SessionError(RuntimeError):
    """The tile broke the protocol."""


class HostSession:
    """Keep the books of a connection; bytes go in and come out, nothing waits here.

    Parameters
    ----------
    window
        Bytes that the tile may have on their way to the host. More than a DATA packet of
        `MAX_BEATS`, if the credit is to be renewed; twice as much keeps the link busy.
    automatic
        Renew the credit by itself.
    strict
        Refuse answers to packets that this session did not send.

    Raises
    ------
    InputError
        The window is so small that the tile could wait forever.
    """

    def __init__(
        self, *, window: int = 1 << 16, automatic: bool = True, strict: bool = True
    ) -> None:
        self._window, self._automatic, self._strict = window, automatic, strict
        spare = window - FRAME_BYTES - MAX_BEATS * BEAT_BYTES
        if automatic and spare < 1:
            raise InputError(
                f"the window must be above {window - spare} bytes, the longest packet, not {window}"
            )
        # What is left when no renewal is due still holds the longest packet.
        self._threshold = min(spare, window // 2)
        self._next_id = 0
        self._pending: dict[int, Packet] = {}
        self._next_event: int | None = None
        self._received = 0
        self._granted = 0
        self.welcome: Welcome | None = None

    @property
    def received(self) -> int:
        """Bytes that have come from the tile, as the tile counts them, modulo 2**32."""
        return self._received & 0xFFFFFFFF

    @property
    def pending(self) -> tuple[Packet, ...]:
        """Requests that have no answer, the oldest first."""
        return tuple(self._pending.values())

    def has_room(self, packet: Packet) -> bool:
        """Return whether the limits allow another packet of this type now."""
        if isinstance(packet, Credit):
            return True
        is_memory = packet.TYPE in MEMORY_TYPES
        alike = sum((p.TYPE in MEMORY_TYPES) == is_memory for p in self._pending.values())
        return alike < (MEMORY_REQUESTS if is_memory else REQUESTS)

    def hello(self) -> tuple[Packet, bytes]:
        """Return the packet that opens the connection."""
        return self.request(Hello(credit=self._window))

    def request(self, packet: Packet) -> tuple[Packet, bytes]:
        """Return the packet with an id of its own, and its bytes."""
        while self._next_id in self._pending:
            self._next_id = self._next_id + 1 & 0xFFFF
        numbered = replace(packet, id=self._next_id)
        frame = encode(numbered)
        self._next_id = self._next_id + 1 & 0xFFFF
        if isinstance(numbered, Credit):
            self._granted = numbered.total
        else:
            self._pending[numbered.id] = numbered
        return numbered, frame

    def renewal(self) -> bytes | None:
        """Return a CREDIT when enough of the window has been used."""
        if not self._automatic or self.welcome is None:
            return None
        total = self._received + self._window & 0xFFFFFFFF
        if (total - self._granted & 0xFFFFFFFF) < self._threshold:
            return None
        return self.request(Credit(total=total))[1]

    def receive(self, frame: bytes) -> Answered | Unasked | Event | Nak:
        """Take a packet from the tile.

        Returns
        -------
        Answered, Unasked, Event or Nak
            A NAK alone belongs to a packet that this session did not send, or that came damaged.

        Raises
        ------
        ProtocolError
            It is damaged.
        SessionError
            It does not fit what was sent.
        """
        self._received += len(frame)
        packet = decode(frame)
        if isinstance(packet, Event):
            return self._event(packet)
        request = self._pending.get(packet.id)
        if isinstance(packet, Nak):
            if request is None:
                return packet
            del self._pending[packet.id]
            return Answered(request, packet)
        if request is None and not self._strict:
            return Unasked(packet)
        if request is None:
            raise SessionError(f"{packet!r} answers no request")
        self._check_answer(request, packet)
        del self._pending[packet.id]
        if isinstance(packet, Welcome):
            self.welcome = packet
            self._received = packet.sent + len(frame)
            self._granted = packet.sent + self._window & 0xFFFFFFFF
        return Answered(request, packet)

    def forget(self, packet: Packet) -> None:
        """Give up waiting for an answer."""
        self._pending.pop(packet.id, None)

    def _event(self, event: Event) -> Event:
        if self._next_event is not None and event.id != self._next_event:
            raise SessionError(f"event {event.id} comes where {self._next_event} is due")
        self._next_event = event.id + 1 & 0xFFFF
        return event

    def _check_answer(self, request: Packet, answer: Packet) -> None:
        wanted = ANSWERS.get(request.TYPE, Ack)
        fits = isinstance(answer, wanted)
        if isinstance(answer, Ack):
            fits = fits and answer.request == request.TYPE
        if isinstance(answer, Data) and isinstance(request, Read):
            fits = fits and (answer.memory, answer.address, len(answer.data)) == (
                request.memory,
                request.address,
                BEAT_BYTES * request.beats,
            )
        if not fits:
            raise SessionError(f"{answer!r} is no answer to {request!r}")
