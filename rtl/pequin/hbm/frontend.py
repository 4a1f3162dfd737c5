"""One requester's entrance: requests cut into pieces that stay in one chunk."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.address import AddressMap
from pequin.hbm.config import HbmConfig
from pequin.hbm.types import HbmRequest


def piece_layout(config: HbmConfig) -> data.StructLayout:
    """Return the layout of a piece of a request.

    A piece of a read goes up to the end of its chunk, a piece of a write is one beat.

    `bad` marks a request that is refused; its piece is one error response.
    """
    return data.StructLayout(
        {
            "write": 1,
            "bad": 1,
            "tag": config.tag_bits,
            "pair": config.pair_bits,
            "beat": config.beat_bits,
            "end": config.beat_bits,
            "last": 1,
            "takes_data": 1,
        }
    )


class FrontEnd(wiring.Component):
    """Take requests, refuse bad ones, and offer pieces.

    *Timing*: a request is offered in the clock after it was accepted; two are held, so that single
    beats flow at one a clock and `ready` is a register.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    request
        Requests.
    piece, piece_valid, take
        The piece offered, and whether it is taken in this clock.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        super().__init__(
            {
                "request": In(stream.Signature(HbmRequest)),
                "piece": Out(piece_layout(config)),
                "piece_valid": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the two request registers and the cutter."""
        m = Module()
        config = self._config
        held, held_bad, held_valid = Signal(HbmRequest), Signal(), Signal()
        address = Signal(config.tag_bits + config.beat_bits)
        left = Signal(16)
        write, bad, valid = Signal(), Signal(), Signal()
        pair = Signal(config.pair_bits)
        m.d.comb += [self.request.ready.eq(~held_valid), self.piece_valid.eq(valid)]

        beat = address[: config.beat_bits]
        past = Signal(17)
        m.d.comb += past.eq(beat + left)
        in_chunk = past <= config.geometry.chunk_beats
        single = write | bad
        count = Signal(16)
        m.d.comb += [
            self.piece.write.eq(write),
            self.piece.bad.eq(bad),
            self.piece.tag.eq(address[config.beat_bits :]),
            self.piece.pair.eq(pair),
            self.piece.beat.eq(beat),
            self.piece.end.eq(
                Mux(single, beat, Mux(in_chunk, past - 1, config.geometry.chunk_beats - 1))
            ),
            self.piece.last.eq(Mux(single, (left <= 1) | (bad & ~write), in_chunk)),
            self.piece.takes_data.eq(write & left.any()),
            count.eq(self.piece.end - beat + 1),
        ]

        load = Signal()
        fresh, fresh_bad = Signal(HbmRequest), Signal()
        arriving = self.request.valid & self.request.ready
        done = self.take & self.piece.last
        m.d.comb += [
            load.eq(~valid | done),
            fresh.eq(Mux(held_valid, held.as_value(), self.request.payload.as_value())),
            fresh_bad.eq(Mux(held_valid, held_bad, self._is_bad(self.request.payload))),
        ]
        next_address = Signal.like(address)
        m.d.comb += next_address.eq(Mux(load, fresh.address, address + count))
        next_pair = AddressMap(config).pair(next_address[config.beat_bits :])
        with m.If(load | self.take):
            m.d.sync += [address.eq(next_address), pair.eq(next_pair)]
        with m.If(load):
            m.d.sync += [
                valid.eq(held_valid | arriving),
                left.eq(fresh.length),
                write.eq(fresh.write),
                bad.eq(fresh_bad),
                held_valid.eq(0),
            ]
        with m.Else():
            with m.If(self.take):
                m.d.sync += left.eq(left - count)
            with m.If(arriving):
                m.d.sync += [
                    held.eq(self.request.payload),
                    held_bad.eq(self._is_bad(self.request.payload)),
                    held_valid.eq(1),
                ]
        return m

    def _is_bad(self, request: data.View) -> Value:
        """Return whether a request is empty or reaches past the store."""
        end = Cat(request.address, 0) + request.length
        return ~request.length.any() | (end > self._config.geometry.store_beats)
