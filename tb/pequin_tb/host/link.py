"""Drive a tile through the mailbox of a `pequin.harness.link_bench.LinkBench`.

Python wakes when a packet arrives, never per clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
from cocotb.triggers import Event as Flag
from cocotb.triggers import SimTimeoutError, ValueChange, with_timeout

from pequin_sim.protocol import (
    Ack,
    Answered,
    Clear,
    Column,
    Credit,
    Data,
    Event,
    EventKind,
    HostSession,
    Nak,
    Packet,
    Read,
    Recorded,
    Start,
    Step,
    Stop,
    Unasked,
    Welcome,
    Write,
    play_record,
    read_records,
)
from pequin_sim.protocol.packets import BEAT_BYTES, MAX_BEATS
from pequin_tb.job import clock_period_ns

Beats = npt.NDArray[np.uint8]
"""uint8 [beats, 32]"""


class LinkTimeout(AssertionError):  # noqa: N818 - cocotb counts assertions as failures
    """Something did not come in time; the message names it."""


class RequestRefused(RuntimeError):  # noqa: N818
    """The tile answered with a NAK.

    Parameters
    ----------
    request
        What was asked for.
    nak
        The answer.
    """

    def __init__(self, request: Packet, nak: Nak) -> None:
        super().__init__(f"{_short(request)} was refused: {nak}")
        self.request, self.nak = request, nak


class TileLink:
    """The host's side of a link.

    Parameters
    ----------
    dut
        The bench; its clock runs and it is out of reset.
    play, record
        The files that the mailbox plays (`+link.live=1`) and records.
    session
        The books; a new one by default.
    timeout_clocks
        Longest time for an answer.

    Attributes
    ----------
    posted, frames
        Everything that was put on the link, and everything that came.
    events
        All events so far.
    strays, unasked
        Refusals and answers for packets that were put on the link by `post`.
    """

    def __init__(
        self,
        dut: Any,
        *,
        play: Path,
        record: Path,
        session: HostSession | None = None,
        timeout_clocks: int = 200_000,
    ) -> None:
        self._dut = dut
        self._play, self._record = play.open("ab"), record.open("rb")
        self.session = session or HostSession()
        self._timeout = timeout_clocks
        self.posted: list[bytes] = []
        self._unread = b""
        self._waiting: dict[int, tuple[Flag, list[Packet]]] = {}
        self._changed = Flag()
        self.frames: list[Recorded] = []
        self.events: list[Event] = []
        self._taken = 0
        self.strays: list[Nak] = []
        self.unasked: list[Packet] = []
        self._reader = cocotb.start_soon(self._read_packets())

    def close(self) -> None:
        """Stop listening and close the files."""
        self._reader.cancel()
        self._play.close()
        self._record.close()

    # Sending.

    def post(self, *frames: bytes) -> None:
        """Put bytes on the link, each argument as one packet, whatever they are."""
        self._play.write(b"".join(play_record(frame) for frame in frames))
        self._play.flush()
        self.posted += frames
        self._dut.posted.value = len(self.posted)

    def send(self, packet: Packet) -> Packet:
        """Put a request on the link, without waiting; return it with its id."""
        numbered, frame = self.session.request(packet)
        if not isinstance(numbered, Credit):
            self._waiting[numbered.id] = (Flag(), [])
        self.post(frame)
        return numbered

    async def answer(self, request: Packet, *, timeout_clocks: int | None = None) -> Packet:
        """Wait for the answer to a request that was sent; a NAK is returned like any other."""
        flag, answers = self._waiting[request.id]
        await self._wait(flag, f"an answer to {_short(request)}", timeout_clocks)
        del self._waiting[request.id]
        return answers[0]

    async def request(self, packet: Packet, *, timeout_clocks: int | None = None) -> Packet:
        """Send a request when the limits allow it; return its answer.

        Raises
        ------
        RequestRefused
            It is a NAK.
        LinkTimeout
            There is none.
        """
        await self._room(packet)
        numbered = self.send(packet)
        return self._accept(numbered, await self.answer(numbered, timeout_clocks=timeout_clocks))

    def grant(self, total: int) -> None:
        """Let the tile send until it has sent `total` bytes since reset."""
        self.post(self.session.request(Credit(total=total))[1])

    # What a host does.

    async def open(self) -> Welcome:
        """Say HELLO; the tile may send from now on."""
        request, frame = self.session.hello()
        self._waiting[request.id] = (Flag(), [])
        self.post(frame)
        answer = self._accept(request, await self.answer(request))
        assert isinstance(answer, Welcome)
        return answer

    async def write(self, memory: int, address: int, data: Beats | bytes) -> None:
        """Write beats from a beat address on; returns when all are written."""
        raw = data if isinstance(data, bytes) else np.ascontiguousarray(data, np.uint8).tobytes()
        size = MAX_BEATS * BEAT_BYTES
        await self._each(
            [
                Write(memory=memory, address=address + at // BEAT_BYTES, data=raw[at : at + size])
                for at in range(0, len(raw), size)
            ]
        )

    async def read(self, memory: int, address: int, beats: int) -> Beats:
        """Return beats from a beat address on, uint8 [beats, 32]."""
        answers = await self._each(
            [
                Read(memory=memory, address=address + at, beats=min(MAX_BEATS, beats - at))
                for at in range(0, beats, MAX_BEATS)
            ]
        )
        raw = b"".join(answer.data for answer in answers if isinstance(answer, Data))
        return np.frombuffer(raw, np.uint8).reshape(beats, BEAT_BYTES)

    async def start(self, pc: int = 0) -> None:
        """Start the program; returns when the tile has taken the order."""
        await self.request(Start(pc=pc))

    async def stop(self) -> None:
        """Stop the tile; its ERROR event comes later."""
        await self.request(Stop())

    async def clear(self) -> None:
        """Set the counters to zero."""
        await self.request(Clear())

    async def step(self, columns: Sequence[Column]) -> None:
        """Send a STEP; returns when the port holds it."""
        await self.request(Step(columns=tuple(columns)))

    async def wait_event(
        self, kind: EventKind | None = None, *, timeout_clocks: int | None = None
    ) -> Event:
        """Return the next event that nobody has taken, or the next one of a kind.

        Events before it are skipped. An ERROR ends the wait for another kind.

        Raises
        ------
        LinkTimeout
            None came in time.
        RuntimeError
            The tile reported an error.
        """
        found: list[Event] = []

        def look() -> bool:
            while self._taken < len(self.events) and not found:
                event = self.events[self._taken]
                self._taken += 1
                if kind is None or event.kind == kind:
                    found.append(event)
                elif event.kind == EventKind.ERROR:
                    raise RuntimeError(f"the tile stopped: {event}")
            return bool(found)

        what = "an event" if kind is None else f"an event {kind.name}"
        await self.until(look, what, timeout_clocks=timeout_clocks)
        return found[0]

    async def until(
        self, reached: Callable[[], bool], what: str, *, timeout_clocks: int | None = None
    ) -> None:
        """Wait until something is true that only a packet can change."""
        while not reached():
            self._changed.clear()
            await self._wait(self._changed, what, timeout_clocks)

    # Inside.

    async def _each(self, packets: Sequence[Packet]) -> list[Packet]:
        """Send requests as densely as the limits allow; return their answers."""
        sent: list[Packet] = []
        answers: list[Packet] = []
        for packet in packets:
            while not self.session.has_room(packet) and len(answers) < len(sent):
                oldest = sent[len(answers)]
                answers.append(self._accept(oldest, await self.answer(oldest)))
            await self._room(packet)
            sent.append(self.send(packet))
        for request in sent[len(answers) :]:
            answers.append(self._accept(request, await self.answer(request)))
        return answers

    async def _room(self, packet: Packet) -> None:
        await self.until(
            lambda: self.session.has_room(packet), f"room for {_short(packet)} among the requests"
        )

    def _accept(self, request: Packet, answer: Packet) -> Packet:
        if isinstance(answer, Nak):
            raise RequestRefused(request, answer)
        assert isinstance(answer, (Ack, Data, Welcome))
        return answer

    async def _wait(self, flag: Flag, what: str, timeout_clocks: int | None) -> None:
        if flag.is_set():
            return
        clocks = self._timeout if timeout_clocks is None else timeout_clocks
        try:
            await with_timeout(flag.wait(), clocks * clock_period_ns(), "ns")
        except SimTimeoutError:
            raise LinkTimeout(
                f"{what} did not come in {clocks} clocks: of {len(self.posted)} packets "
                f"{int(self._dut.played.value)} have gone out, {len(self.frames)} have come, "
                f"{len(self.session.pending)} requests are open"
            ) from None

    async def _read_packets(self) -> None:
        while True:
            await ValueChange(self._dut.arrived)
            self._unread += self._record.read()
            used = 0
            for recorded, behind in read_records(self._unread):
                used = behind
                self._receive(recorded)
            self._unread = self._unread[used:]
            renewal = self.session.renewal()
            if renewal is not None:
                self.post(renewal)
            self._changed.set()

    def _receive(self, recorded: Recorded) -> None:
        self.frames.append(recorded)
        match self.session.receive(recorded.frame):
            case Event() as event:
                self.events.append(event)
            case Nak() as nak:
                self.strays.append(nak)
            case Unasked(packet):
                self.unasked.append(packet)
            case Answered(request, answer):
                flag, answers = self._waiting[request.id]
                answers.append(answer)
                flag.set()


def _short(packet: Packet) -> str:
    """Return a packet without its data."""
    fields = {
        name: f"{len(value)} long" if isinstance(value, (bytes, tuple)) else value
        for name, value in vars(packet).items()
    }
    return f"{type(packet).__name__.upper()} {fields}"
