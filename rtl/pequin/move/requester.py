"""Cuts ranges of HBM into read requests."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.types import HbmRequest
from pequin.move.types import CHUNK_BEATS, COUNT_BITS, check_power_of_two, read_range


class ReadRequester(wiring.Component):
    """Request ranges one after the other in chunks of at most `chunk` beats.

    *Timing*: a request shows two clocks after its range was accepted; one request per clock, also
    across ranges. A request is made in the clock of `asked` and stays until it is taken.

    Parameters
    ----------
    chunk
        Beats of a request at most; a power of two.

    Members
    -------
    ranges : In(stream of read_range())
    request : Out(stream of HbmRequest)
    room : In
        Beats that may be asked for; a chunk waits until it fits as a whole.
    asked : Out
        Beats of the request that is made in this clock, 0 without one.
    active : Out(1)
        A range is not wholly asked for.
    stop : In(1)
        Make no more requests.

    Raises
    ------
    ConfigError
        `chunk` is no power of two from 1 to 64.
    """

    ranges: Any
    request: Any
    room: Any
    asked: Any
    active: Any
    stop: Any

    def __init__(self, *, chunk: int) -> None:
        check_power_of_two("chunk", chunk, 1, CHUNK_BEATS)
        self._chunk = chunk
        super().__init__(
            {
                "ranges": In(stream.Signature(read_range())),
                "request": Out(stream.Signature(HbmRequest)),
                "room": In(range(chunk + 1)),
                "asked": Out(range(chunk + 1)),
                "active": Out(1),
                "stop": In(1),
            }
        )

    @property
    def chunk(self) -> int:
        """Beats of a request at most."""
        return self._chunk

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        address, left = Signal(32), Signal(COUNT_BITS)
        length = Signal(range(self._chunk + 1))
        last, make = Signal(), Signal()
        request = self.request
        m.d.comb += [
            last.eq(left <= self._chunk),
            length.eq(Mux(last, left, self._chunk)),
            make.eq(
                self.active & ~self.stop & (self.room >= length) & (~request.valid | request.ready)
            ),
            self.asked.eq(Mux(make, length, 0)),
            self.ranges.ready.eq(~self.active | (make & last)),
        ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(make):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.address.eq(address),
                request.payload.length.eq(length),
                address.eq(address + length),
                left.eq(left - length),
            ]
        with m.If(self.ranges.ready):
            m.d.sync += [
                self.active.eq(self.ranges.valid),
                address.eq(self.ranges.payload.address),
                left.eq(self.ranges.payload.beats),
            ]
        return m
