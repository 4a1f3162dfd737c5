"""READ and WRITE packets against the tile's memories."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.host.types import MAX_BEATS, MEMORY_REQUESTS, MemoryRequest, MemoryResult
from pequin.tile.types import BEAT_BITS, ErrorCode, Memory, TileAccess, TileAnswer

BEAT_WORDS = BEAT_BITS // 64
"""Link words of a beat."""

SLOT_WORDS = MAX_BEATS * BEAT_WORDS
"""Link words of the longest body."""


class RequestIssuer(wiring.Component):
    """Turn requests into accesses; the beats of a WRITE come from a RAM of link words.

    *Timing*: a beat every four clocks for a WRITE, the rate at which they come in; every clock
    for a READ.

    Members
    -------
    requests : In(stream of MemoryRequest)
    started : Out(stream of MemoryRequest)
        The same requests, each before its first access.
    accesses : Out(stream of TileAccess)
    read_en : Out(1), read_addr : Out, read_data : In(64)
        The RAM; the n-th request has slot n modulo `MEMORY_REQUESTS`.
    """

    requests: Any
    started: Any
    accesses: Any
    read_en: Any
    read_addr: Any
    read_data: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "requests": In(stream.Signature(MemoryRequest)),
                "started": Out(stream.Signature(MemoryRequest)),
                "accesses": Out(stream.Signature(TileAccess)),
                "read_en": Out(1),
                "read_addr": Out(range(MEMORY_REQUESTS * SLOT_WORDS)),
                "read_data": In(64),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        request: Any = Signal(MemoryRequest)
        slot = Signal(range(MEMORY_REQUESTS))
        word = Signal(range(SLOT_WORDS + 1))
        held, filled = Signal(), Signal(range(BEAT_WORDS))
        earlier = Signal(BEAT_BITS - 64)
        access = self.accesses.payload
        taken, last = Signal(), Signal()
        m.d.comb += [
            self.started.payload.eq(self.requests.payload),
            self.read_addr.eq(Cat(word[: SLOT_WORDS.bit_length() - 1], slot)),
            access.memory.eq(Memory(request.memory)),
            access.write.eq(request.write),
            access.address.eq(request.address),
            access.data.eq(Mux(request.write, Cat(earlier, self.read_data), 0)),
            taken.eq(self.accesses.valid & self.accesses.ready),
            last.eq(request.beats == 1),
        ]
        with m.If(taken):
            m.d.sync += [
                request.address.eq(request.address + 1),
                request.beats.eq(request.beats - 1),
            ]
        with m.FSM(name="issuer"):
            with m.State("IDLE"):
                m.d.comb += [
                    self.started.valid.eq(self.requests.valid),
                    self.requests.ready.eq(self.started.ready),
                ]
                m.d.sync += [request.eq(self.requests.payload), word.eq(0), filled.eq(0)]
                m.d.sync += held.eq(0)
                with m.If(self.requests.valid & self.started.ready):
                    with m.If(self.requests.payload.write):
                        m.next = "WRITE"
                    with m.Else():
                        m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.accesses.valid.eq(1)
                with m.If(taken & last):
                    m.d.sync += slot.eq(slot + 1)
                    m.next = "IDLE"
            with m.State("WRITE"):
                complete = Signal()
                m.d.comb += [
                    complete.eq(held & (filled == BEAT_WORDS - 1)),
                    self.accesses.valid.eq(complete),
                    self.read_en.eq(~held | ~complete | taken),
                ]
                with m.If(self.read_en):
                    m.d.sync += [held.eq(1), word.eq(word + 1)]
                    with m.If(held):
                        m.d.sync += [
                            earlier.eq(Cat(earlier[64:], self.read_data)),
                            filled.eq(filled + 1),
                        ]
                with m.If(taken & last):
                    m.d.sync += slot.eq(slot + 1)
                    m.next = "IDLE"
        return m


class ResultCollector(wiring.Component):
    """Gather the answers to a request's accesses; data go to a RAM of link words.

    *Timing*: takes a beat every four clocks for a READ, the rate at which they go out.

    Members
    -------
    started : In(stream of MemoryRequest)
    answers : In(stream of TileAnswer)
    results : Out(stream of MemoryResult)
    write_en : Out(1), write_addr : Out, write_data : Out(64)
        The RAM; slots as for `RequestIssuer`.
    busy : Out(1)
        A request is at work.
    """

    started: Any
    answers: Any
    results: Any
    write_en: Any
    write_addr: Any
    write_data: Any
    busy: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "started": In(stream.Signature(MemoryRequest)),
                "answers": In(stream.Signature(TileAnswer)),
                "results": Out(stream.Signature(MemoryResult)),
                "write_en": Out(1),
                "write_addr": Out(range(MEMORY_REQUESTS * SLOT_WORDS)),
                "write_data": Out(64),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        request: Any = Signal(MemoryRequest)
        result, busy = self.results.payload, Signal()
        slot, missing = Signal(range(MEMORY_REQUESTS)), Signal(range(MAX_BEATS + 1))
        words, beat = Signal(BEAT_BITS), Signal(range(MAX_BEATS))
        left = Signal(range(BEAT_WORDS + 1))
        address = Signal(SLOT_WORDS.bit_length() - 1)
        error: Any = Signal(ErrorCode)
        error_beat, came = Signal(range(MAX_BEATS)), Signal()
        m.d.comb += [
            self.started.ready.eq(~busy),
            self.answers.ready.eq(busy & (missing != 0) & (left <= 1)),
            came.eq(self.answers.valid & self.answers.ready),
            self.write_en.eq(left != 0),
            self.write_addr.eq(Cat(address, slot)),
            self.write_data.eq(words[:64]),
            self.results.valid.eq(busy & (missing == 0) & (left == 0)),
            *(
                getattr(result, name).eq(getattr(request, name))
                for name in ("id", "write", "memory", "beats", "address")
            ),
            result.error.eq(error.as_value()),
            result.beat.eq(error_beat),
        ]
        with m.If(left != 0):
            m.d.sync += [left.eq(left - 1), address.eq(address + 1), words.eq(words[64:])]
        with m.If(came):
            m.d.sync += [
                beat.eq(beat + 1),
                missing.eq(missing - 1),
                words.eq(self.answers.payload.data),
            ]
            with m.If(~request.write):
                m.d.sync += left.eq(BEAT_WORDS)
            with m.If(error == ErrorCode.NONE):
                m.d.sync += [error.eq(self.answers.payload.error), error_beat.eq(beat)]
        with m.If(~busy):
            m.d.sync += [
                busy.eq(self.started.valid),
                request.eq(self.started.payload),
                missing.eq(self.started.payload.beats),
                beat.eq(0),
                address.eq(0),
                error.eq(ErrorCode.NONE),
            ]
        with m.If(self.results.valid & self.results.ready):
            m.d.sync += [busy.eq(0), slot.eq(slot + 1)]
        m.d.comb += self.busy.eq(busy)
        return m


class MemoryRequests(wiring.Component):
    """Places for READ and WRITE packets: their beats, their accesses, their results.

    *Timing*: requests are carried out in order; the accesses of one follow those of the one
    before without waiting for answers.

    Members
    -------
    room : Out(1)
        There is a place for another request.
    body : In(64), body_index : In, body_valid : In(1)
        A word of the next request's beats; to be given only while there is room.
    request : In(MemoryRequest), accept : In(1)
        Pulse: the next request, whose beats are complete.
    accesses : Out(stream of TileAccess), answers : In(stream of TileAnswer)
    results : Out(stream of MemoryResult)
    free : In(1)
        Pulse: the oldest result and its data are no longer needed.
    read_en : In(1), read_addr : In, read_data : Out(64)
        Data of READ requests; data come a clock later. The n-th result has slot n modulo
        `MEMORY_REQUESTS`, from word slot * 256 on.
    waiting : Out(1)
        A request has not been answered by the tile.
    """

    room: Any
    body: Any
    body_index: Any
    body_valid: Any
    request: Any
    accept: Any
    accesses: Any
    answers: Any
    results: Any
    free: Any
    read_en: Any
    read_addr: Any
    read_data: Any
    waiting: Any

    def __init__(self) -> None:
        address = range(MEMORY_REQUESTS * SLOT_WORDS)
        super().__init__(
            {
                "room": Out(1),
                "body": In(64),
                "body_index": In(range(SLOT_WORDS)),
                "body_valid": In(1),
                "request": In(MemoryRequest),
                "accept": In(1),
                "accesses": Out(stream.Signature(TileAccess)),
                "answers": In(stream.Signature(TileAnswer)),
                "results": Out(stream.Signature(MemoryResult)),
                "free": In(1),
                "read_en": In(1),
                "read_addr": In(address),
                "read_data": Out(64),
                "waiting": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.issuer = issuer = RequestIssuer()
        m.submodules.collector = collector = ResultCollector()
        slot, used = Signal(range(MEMORY_REQUESTS)), Signal(range(MEMORY_REQUESTS + 1))
        m.d.comb += self.room.eq(used != MEMORY_REQUESTS)
        m.d.sync += [used.eq(used + self.accept - self.free), slot.eq(slot + self.accept)]

        into, out = self._ram(m, "writes")
        m.d.comb += [
            into.addr.eq(Cat(self.body_index, slot)),
            into.data.eq(self.body),
            into.en.eq(self.body_valid),
            out.addr.eq(issuer.read_addr),
            out.en.eq(issuer.read_en),
            issuer.read_data.eq(out.data),
        ]
        into, out = self._ram(m, "reads")
        m.d.comb += [
            into.addr.eq(collector.write_addr),
            into.data.eq(collector.write_data),
            into.en.eq(collector.write_en),
            out.addr.eq(self.read_addr),
            out.en.eq(self.read_en),
            self.read_data.eq(out.data),
        ]
        self._elaborate_queues(m, issuer, collector)
        wiring.connect(m, issuer.accesses, wiring.flipped(self.accesses))
        wiring.connect(m, wiring.flipped(self.answers), collector.answers)
        return m

    def _ram(self, m: Module, name: str) -> tuple[Any, Any]:
        """Add a memory with a slot for each request; return its write and its read port."""
        ram: Any = memory.Memory(shape=64, depth=MEMORY_REQUESTS * SLOT_WORDS, init=[])
        m.submodules[name] = ram
        return ram.write_port(), ram.read_port()

    def _elaborate_queues(self, m: Module, issuer: Any, collector: Any) -> None:
        """Queues between the stages; none can overflow, there are only so many places."""
        bits, result_bits = MemoryRequest.as_shape().size, MemoryResult.as_shape().size
        m.submodules.accepted = accepted = fifo.SyncFIFO(width=bits, depth=MEMORY_REQUESTS)
        m.submodules.flying = flying = fifo.SyncFIFO(width=bits, depth=MEMORY_REQUESTS)
        m.submodules.done = done = fifo.SyncFIFO(width=result_bits, depth=MEMORY_REQUESTS)
        m.d.comb += [
            accepted.w_data.eq(Value.cast(self.request)),
            accepted.w_en.eq(self.accept),
            *_pop(accepted, issuer.requests),
            *_push(issuer.started, flying),
            *_pop(flying, collector.started),
            *_push(collector.results, done),
            *_pop(done, self.results),
            self.waiting.eq(accepted.r_rdy | flying.r_rdy | collector.busy),
        ]


def _pop(queue: Any, sink: Any) -> list[Any]:
    return [
        Value.cast(sink.payload).eq(queue.r_data),
        sink.valid.eq(queue.r_rdy),
        queue.r_en.eq(sink.ready),
    ]


def _push(source: Any, queue: Any) -> list[Any]:
    return [
        queue.w_data.eq(Value.cast(source.payload)),
        queue.w_en.eq(source.valid),
        source.ready.eq(queue.w_rdy),
    ]
