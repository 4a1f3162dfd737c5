"""The host port: packets on one side; accesses, steps, orders and events on the other."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.host.dispatcher import Dispatcher
from pequin.host.memory import MemoryRequests
from pequin.host.orders import OrderQueue
from pequin.host.rate import RateLimiter
from pequin.host.receiver import PacketReceiver
from pequin.host.sender import PacketSender
from pequin.host.steps import StepBuffer
from pequin.host.types import REQUESTS, HostCause, LinkWord
from pequin.streams import connect_streams
from pequin.tile.types import StepItem, TileAccess, TileAnswer, TileControl, TileEvent


class HostPort(wiring.Component):
    """Carry out the packets of docs/protocol.md.

    *Timing*: nothing but the rate ever holds up `rx`: a packet is dealt with in one clock once it
    has been checked, or waits in a place of its own. The tile sees an order four clocks after the
    last word of its packet. Both directions move `host_bytes_per_clock`.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    rx : In(stream of LinkWord), tx : Out(stream of LinkWord)
        The link.
    accesses : Out(stream of TileAccess), answers : In(stream of TileAnswer)
        Memories; every access has one answer, in order.
    steps : Out(stream of StepItem)
        The STEP that waits.
    control : Out(stream of TileControl)
        Orders.
    events : In(stream of TileEvent)
    stopping : In(1)
        The tile is stopping: its sequencer is in reset. A STEP that waits, or is partly handed
        over, is forgotten when this rises.
    cause : Out(HostCause)
        What the port did in this clock.

    Raises
    ------
    ConfigError
        `host_bytes_per_clock` is above 8, the link's width.
    """

    rx: Any
    tx: Any
    accesses: Any
    answers: Any
    steps: Any
    control: Any
    events: Any
    stopping: Any
    cause: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        rate = params.config.host_bytes_per_clock
        self._rx_rate, self._tx_rate = RateLimiter(rate=rate), RateLimiter(rate=rate)
        super().__init__(
            {
                "rx": In(stream.Signature(LinkWord)),
                "tx": Out(stream.Signature(LinkWord)),
                "accesses": Out(stream.Signature(TileAccess)),
                "answers": In(stream.Signature(TileAnswer)),
                "steps": Out(stream.Signature(StepItem)),
                "control": Out(stream.Signature(TileControl)),
                "events": In(stream.Signature(TileEvent)),
                "stopping": In(1),
                "cause": Out(HostCause, init=HostCause.IDLE),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        columns = self._params.config.columns
        m.submodules.rx_rate, m.submodules.tx_rate = self._rx_rate, self._tx_rate
        m.submodules.receiver = self._receiver = PacketReceiver(columns=columns)
        m.submodules.dispatcher = self._dispatcher = Dispatcher(columns=columns)
        m.submodules.requests = self._requests = MemoryRequests()
        m.submodules.step = self._step = StepBuffer(columns=columns)
        m.submodules.orders = self._orders = OrderQueue(depth=REQUESTS)
        m.submodules.sender = self._sender = PacketSender(self._params)
        connect_streams(m, wiring.flipped(self.rx), self._rx_rate.input)
        connect_streams(m, self._rx_rate.output, self._receiver.input)
        connect_streams(m, self._sender.output, self._tx_rate.input)
        connect_streams(m, self._tx_rate.output, wiring.flipped(self.tx))
        self._elaborate_receiving(m)
        self._elaborate_tile_side(m)
        self._elaborate_answers(m)
        self._elaborate_cause(m)
        return m

    def _elaborate_receiving(self, m: Module) -> None:
        """Join the receiver, the dispatcher and what keeps the packets' content."""
        receiver, dispatcher = self._receiver, self._dispatcher
        requests, step, orders = self._requests, self._step, self._orders
        m.d.comb += [
            dispatcher.header.eq(receiver.header),
            dispatcher.begin.eq(receiver.begin),
            dispatcher.packet.eq(receiver.packet),
            dispatcher.packet_valid.eq(receiver.packet_valid),
            dispatcher.memory_room.eq(requests.room),
            dispatcher.step_room.eq(step.room),
            requests.body.eq(receiver.body),
            requests.body_index.eq(receiver.body_index),
            requests.body_valid.eq(receiver.body_valid & dispatcher.memory_store),
            requests.request.eq(dispatcher.request),
            requests.accept.eq(dispatcher.memory_accept),
            step.body.eq(receiver.body),
            step.body_index.eq(receiver.body_index),
            step.body_valid.eq(
                receiver.body_valid & dispatcher.step_store & (receiver.body_index < step.words)
            ),
            step.count.eq(dispatcher.step_count),
            step.accept.eq(dispatcher.step_accept),
            orders.type.eq(dispatcher.order_type),
            orders.id.eq(dispatcher.order_id),
            orders.pc.eq(dispatcher.order_pc),
            orders.accept.eq(dispatcher.order_accept),
        ]
        connect_streams(m, orders.taken, dispatcher.orders)

    def _elaborate_tile_side(self, m: Module) -> None:
        connect_streams(m, self._requests.accesses, wiring.flipped(self.accesses))
        connect_streams(m, wiring.flipped(self.answers), self._requests.answers)
        connect_streams(m, self._step.steps, wiring.flipped(self.steps))
        connect_streams(m, self._orders.control, wiring.flipped(self.control))
        connect_streams(m, wiring.flipped(self.events), self._sender.events)
        stopped = Signal(name="was_stopping")
        m.d.sync += stopped.eq(self.stopping)
        m.d.comb += self._step.drop.eq(self.stopping & ~stopped)

    def _elaborate_answers(self, m: Module) -> None:
        sender, dispatcher, requests = self._sender, self._dispatcher, self._requests
        connect_streams(m, dispatcher.answers, sender.answers)
        connect_streams(m, dispatcher.dropped, sender.dropped)
        connect_streams(m, requests.results, sender.results)
        m.d.comb += [
            sender.credit.eq(dispatcher.credit),
            sender.credit_set.eq(dispatcher.credit_set),
            sender.credit_raise.eq(dispatcher.credit_raise),
            requests.free.eq(sender.free),
            requests.read_en.eq(sender.read_en),
            requests.read_addr.eq(sender.read_addr),
            sender.read_data.eq(requests.read_data),
        ]

    def _elaborate_cause(self, m: Module) -> None:
        """Tell the cause of a clock one clock later."""
        came, left = Signal(name="word_came"), Signal(name="word_left")
        tile = self._requests.waiting | ~self._step.room | self._orders.waiting
        m.d.comb += [
            came.eq(self.rx.valid & self.rx.ready),
            left.eq(self.tx.valid & self.tx.ready),
        ]
        with m.If(came & left):
            m.d.sync += self.cause.eq(HostCause.BOTH)
        with m.Elif(came):
            m.d.sync += self.cause.eq(HostCause.RX)
        with m.Elif(left):
            m.d.sync += self.cause.eq(HostCause.TX)
        with m.Elif(self.rx.valid | self._sender.output.valid):
            m.d.sync += self.cause.eq(HostCause.LINK)
        with m.Elif(self._sender.starved):
            m.d.sync += self.cause.eq(HostCause.CREDIT)
        with m.Elif(tile):
            m.d.sync += self.cause.eq(HostCause.TILE)
        with m.Else():
            m.d.sync += self.cause.eq(HostCause.IDLE)
