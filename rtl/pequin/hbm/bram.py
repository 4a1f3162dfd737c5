"""The channel's request interface over on-chip memory, for FPGAs without HBM."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.hbm.select import first_of, one_hot_mux
from pequin.hbm.types import BEAT_BITS, HbmError, HbmPort, HbmReadBeat, HbmRequest
from pequin.ram import Ram

READ_SLOTS = 4
"""Read beats that a port may have waiting or on their way."""


class BramChannel(wiring.Component):
    """Beats in block RAM behind the same ports as `HbmChannel`.

    *Timing*: one beat a clock in total. A lone read's data is on `read_data` 3 clocks after the
    clock in which its request was accepted. A write is acknowledged after its last beat is stored.
    Ports take turns beat by beat. There is no ECC: block RAM of an FPGA has its own.

    Parameters
    ----------
    requesters
        Ports.
    beats
        Size of the memory (beats); requests past it are refused.
    name
        Of the `Ram`, for its plusargs.

    Members
    -------
    port
        As `HbmChannel.port`.
    read, written, refused
        A beat is read, or stored, in this clock; a request is refused.
    full
        Nothing moves in this clock because a port does not take its data.

    Raises
    ------
    ConfigError
        A parameter is too small or too large.
    """

    def __init__(self, *, requesters: int, beats: int, name: str = "bram") -> None:
        if not 1 <= requesters <= 4:
            raise ConfigError(f"requesters must be 1 to 4, not {requesters}")
        if not 2 <= beats <= 1 << 20:
            raise ConfigError(f"beats must be 2 to 1048576, not {beats}")
        self._requesters = requesters
        self._beats = beats
        self._name = name
        super().__init__(
            {
                "port": In(HbmPort()).array(requesters),
                **{name: Out(1) for name in ("read", "written", "refused", "full")},
            }
        )

    @property
    def requesters(self) -> int:
        """Ports."""
        return self._requesters

    @property
    def beats(self) -> int:
        """Size of the memory (beats)."""
        return self._beats

    def elaborate(self, platform: object) -> Module:
        """Build the ports, the turn and the memory."""
        m = Module()
        m.submodules.ram = ram = Ram(width=BEAT_BITS, depth=self._beats, name=self._name)
        ports = []
        for q in range(self._requesters):
            ports.append(_Port(self._beats))
            m.submodules[f"port{q}"] = ports[q]
            wiring.connect(m, wiring.flipped(self.port[q]), ports[q].port)
        wants = Cat(port.want for port in ports)
        grant = Signal(self._requesters)
        turn = Signal(range(self._requesters))
        for first in range(self._requesters):
            order = [(first + i) % self._requesters for i in range(self._requesters)]
            chosen = first_of(m, [wants[q] for q in order], f"turn{first}")
            with m.If(turn == first):
                m.d.comb += grant.eq(Cat(chosen[order.index(q)] for q in range(len(order))))
        # One beat arrives at a time: what is refused is made zero once, for all ports.
        refused = Signal()
        m.d.sync += refused.eq(self.refused)
        data = Mux(refused, 0, ram.read_data)
        for q, port in enumerate(ports):
            with m.If(grant[q]):
                m.d.sync += turn.eq((q + 1) % self._requesters)
            m.d.comb += [port.grant.eq(grant[q]), port.data.eq(data)]
        address = one_hot_mux(grant, [port.address for port in ports])
        m.d.comb += [
            ram.read_addr.eq(address),
            ram.write_addr.eq(address),
            self.read.eq((grant & Cat(port.reading for port in ports)).any()),
            self.written.eq((grant & Cat(port.writing for port in ports)).any()),
            self.refused.eq((grant & Cat(port.refusing for port in ports)).any()),
            self.full.eq(~grant.any() & Cat(port.full for port in ports).any()),
            ram.read_en.eq(self.read),
            ram.write_en.eq(self.written),
            ram.write_data.eq(one_hot_mux(grant, [port.port.write_data.payload for port in ports])),
        ]
        return m


class _Port(wiring.Component):
    """One port: the request in progress, its read beats, its acknowledges."""

    def __init__(self, beats: int) -> None:
        self._beats = beats
        super().__init__(
            {
                "port": In(HbmPort()),
                "want": Out(1),
                "grant": In(1),
                "reading": Out(1),
                "writing": Out(1),
                "refusing": Out(1),
                "full": Out(1),
                "address": Out(range(beats)),
                "data": In(BEAT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = self.port
        valid, write, bad, left = Signal(), Signal(), Signal(), Signal(16)
        m.submodules.beats = beats = fifo.SyncFIFO(
            width=HbmReadBeat.as_shape().size, depth=READ_SLOTS
        )
        m.submodules.acks = acks = fifo.SyncFIFO(width=2, depth=2)
        arriving, arriving_bad, arriving_last = Signal(), Signal(), Signal()
        last = Signal()
        room = (beats.level + arriving) < READ_SLOTS
        has_data = port.write_data.valid | ~left.any()
        m.d.comb += [
            last.eq((left <= 1) | (bad & ~write)),
            self.want.eq(valid & Mux(write, has_data & (acks.w_rdy | ~last), room)),
            self.reading.eq(~write & ~bad),
            self.writing.eq(write & ~bad),
            self.refusing.eq(bad & last),
            self.full.eq(valid & ~write & ~room),
            port.write_data.ready.eq(self.grant & write & left.any()),
            port.request.ready.eq(~valid | (self.grant & last)),
        ]
        m.d.sync += [
            arriving.eq(self.grant & ~write),
            arriving_bad.eq(bad),
            arriving_last.eq(last),
        ]
        with m.If(self.grant):
            m.d.sync += [left.eq(left - 1), self.address.eq(self.address + 1)]
        with m.If(port.request.ready):
            m.d.sync += [
                valid.eq(port.request.valid),
                write.eq(port.request.payload.write),
                left.eq(port.request.payload.length),
                self.address.eq(port.request.payload.address),
                bad.eq(self._is_bad(port.request.payload)),
            ]
        error = Mux(arriving_bad, HbmError.ADDRESS, HbmError.OK)
        m.d.comb += [
            beats.w_en.eq(arriving),
            beats.w_data.eq(Cat(self.data, error, arriving_last)),
            beats.r_en.eq(port.read_data.ready),
            port.read_data.valid.eq(beats.r_rdy),
            Value.cast(port.read_data.payload).eq(beats.r_data),
            acks.w_en.eq(self.grant & write & last),
            acks.w_data.eq(Mux(bad, HbmError.ADDRESS, HbmError.OK)),
            acks.r_en.eq(port.write_ack.ready),
            port.write_ack.valid.eq(acks.r_rdy),
            Value.cast(port.write_ack.payload).eq(acks.r_data),
        ]
        return m

    def _is_bad(self, request: HbmRequest) -> Value:
        """Return whether a request is empty or reaches past the memory."""
        end = Cat(request.address, 0) + request.length
        return ~request.length.any() | (end > self._beats)
