"""The array's control: commands and beats in, one issued clock after the other out."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.formats import E8M0
from pequin.mac.types import (
    BEAT_BITS,
    CHUNK_BLOCKS,
    GROUPS,
    Cause,
    IssueTag,
    Sink,
    WeightFormat,
    mac_command,
)


def _foresight() -> data.StructLayout:
    """Return what is known of a clock before it begins.

    scales: a scale beat is next. two: both beats of a pair may be taken. ends_one, ends_two:
    taking one, or two, ends the row. final: the row group is the command's last.
    """
    return data.StructLayout({"scales": 1, "two": 1, "ends_one": 1, "ends_two": 1, "final": 1})


class Feeder(wiring.Component):
    """Walk through a command's planes and rows and hand out its beats.

    Per clock it takes one scale beat, or one payload beat, or (paired) both beats of an even
    and an odd block. A pair that a chunk, a row's odd end or a late beat has split is taken one
    block at a time.

    Timing: everything at `tag`, `even_beat` and `odd_beat` is registered; `address` is one
    clock earlier, so that an activation buffer's output meets them. The last beat of a row group
    waits for `may_end`. A new command starts in the clock after the last beat of the one before.

    Parameters
    ----------
    params
        Widths of the command.

    Members
    -------
    command : In(stream of mac_command(params))
    head, level, take
        To `BeatWindow`.
    may_end : In(1).array(2)
        By the command's `Sink`: a row group may end in this clock.
    address : Out(range(act_blocks))
    tag : Out(IssueTag(params))
    even_beat, odd_beat : Out(256)
        Beats for the even and the odd columns.
    cause : Out(Cause)
        What this clock is spent on.
    beats : Out(2)
        Payload beats taken in this clock.
    """

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "command": In(stream.Signature(mac_command(params))),
                "head": In(BEAT_BITS).array(2),
                "level": In(2),
                "take": Out(2),
                "may_end": In(1).array(len(Sink)),
                "address": Out(range(params.config.act_blocks)),
                "tag": Out(IssueTag(params)),
                "even_beat": Out(BEAT_BITS),
                "odd_beat": Out(BEAT_BITS),
                "cause": Out(Cause),
                "beats": Out(2),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._declare()
        self._decide(m)
        self._advance_position(m)
        self._advance_chunk(m)
        self._emit_tag(m)
        self._accept_command(m)
        self._foresee(m)
        self._explain(m)
        return m

    def _declare(self) -> None:
        """Create the state: command, position in the row, position in the chunk, and foresight."""
        self._active = Signal()
        self._current = Signal(mac_command(self._params), name="current")
        self._block = Signal(range(self._params.max_blocks))
        self._left = Signal(range(self._params.max_blocks), name="left")
        self._plane = Signal()
        self._row = Signal(self._params.config.index_bits)
        self._chunk_left = Signal(range(CHUNK_BLOCKS + 1))
        # The padding keeps a window at the last scale inside the signal.
        self._scales = Signal(BEAT_BITS + 8 * (2 * GROUPS - 1))
        self._scale_at = Signal(range(CHUNK_BLOCKS))
        self._foreseen: Any = Signal(_foresight(), name="foreseen")
        self._is_int8 = Signal(name="is_int8")
        self._want_payload, self._two = Signal(name="want_payload"), Signal(name="two")
        self._take_scales = Signal(name="take_scales")
        self._take_payload = Signal(name="take_payload")
        self._row_done, self._command_done = Signal(name="row_done"), Signal(name="command_done")

    def _decide(self, m: Module) -> None:
        """Choose what to take in this clock, from what was foreseen."""
        now, seen = self._current, self._foreseen
        here, may_end = Signal(), Signal()
        m.d.comb += [
            self._is_int8.eq(now.format == WeightFormat.MXINT8),
            here.eq(self._active & (self.level != 0)),
            may_end.eq(Mux(now.sink == Sink.TOP_K, self.may_end[1], self.may_end[0])),
            self._two.eq(seen.two & (self.level == 2)),
            self._row_done.eq(Mux(self._two, seen.ends_two, seen.ends_one)),
            self._want_payload.eq(here & ~seen.scales),
            self._take_scales.eq(here & seen.scales),
            self._take_payload.eq(self._want_payload & (~self._row_done | may_end)),
            self._command_done.eq(self._take_payload & self._row_done & seen.final),
            self.beats.eq(Mux(self._take_payload, 1 + self._two, 0)),
            self.take.eq(self.beats | self._take_scales),
        ]

    def _advance_position(self, m: Module) -> None:
        """Count blocks, planes and rows."""
        now = self._current
        plane_done = Signal()
        m.d.comb += plane_done.eq(self._left == self._two)
        with m.If(self._take_payload):
            m.d.sync += [
                self._block.eq(Mux(plane_done, 0, self._block + 1 + self._two)),
                self._left.eq(Mux(plane_done, now.last_block, self._left - 1 - self._two)),
                self._plane.eq(self._plane ^ (plane_done & now.two_planes)),
            ]
            with m.If(self._row_done):
                row_step = Mux(self._is_int8, 1, 2)
                m.d.sync += self._row.eq(Mux(self._foreseen.final, 0, self._row + row_step))

    def _foresee(self, m: Module) -> None:
        """Settle for the next clock what can be taken and what that will end.

        All possible positions are looked at side by side, and the one that comes true is chosen:
        what is taken depends on few signals, and these on registers.
        """
        now = self._current
        after_scales = self._seen(
            now,
            even=~self._block[0],
            left=(self._left == 0, self._left == 1),
            chunk=(0, 0),
            last_plane=self._plane == now.two_planes,
        )
        with m.If(self._take_scales):
            self._keep(m, after_scales)
        with m.If(self._take_payload):
            with m.If(self._two):
                self._keep(m, self._seen_after(2))
            with m.Else():
                self._keep(m, self._seen_after(1))
            with m.If(self._row_done):
                m.d.sync += self._foreseen.final.eq(self._next_is_final())
        with m.If(self.command.ready):
            new = self.command.p
            start = self._seen(
                new,
                even=1,
                left=(new.last_block == 0, new.last_block == 1),
                chunk=(1, 0),
                last_plane=~new.two_planes,
            )
            self._keep(m, start)
            lone = Mux(new.format == WeightFormat.MXINT8, new.last_row == 0, new.last_row <= 1)
            m.d.sync += self._foreseen.final.eq(lone)

    def _seen_after(self, count: int) -> dict[str, Any]:
        """Return what will be so after `count` beats, still inside the command."""
        now, left, chunk = self._current, self._left, self._chunk_left
        wraps = left == count - 1
        last_plane = self._plane == now.two_planes
        return self._seen(
            now,
            even=wraps | (~self._block[0] if count == 2 else self._block[0]),
            left=(
                Mux(wraps, now.last_block == 0, left == count),
                Mux(wraps, now.last_block == 1, left == count + 1),
            ),
            chunk=(chunk == count, chunk == count + 1),
            last_plane=Mux(wraps, ~now.two_planes | ~last_plane, last_plane),
        )

    def _seen(
        self, command: Any, *, even: Any, left: Any, chunk: Any, last_plane: Any
    ) -> dict[str, Any]:
        """Return the foresight of a position.

        `left` tells whether no or one block follows in the row, `chunk` whether no or one is left
        in the chunk.
        """
        return {
            "scales": command.scaled & chunk[0],
            "two": command.paired & even & ~left[0] & ~(command.scaled & chunk[1]),
            "ends_one": left[0] & last_plane,
            "ends_two": left[1] & last_plane,
        }

    def _keep(self, m: Module, seen: dict[str, Any]) -> None:
        m.d.sync += [self._foreseen[name].eq(value) for name, value in seen.items()]

    def _next_is_final(self) -> Any:
        """Return whether the row group after this one is the command's last."""
        last = self._current.last_row
        pair_follows = (self._row >> 1) + 1 == (last >> 1)
        return Mux(self._is_int8, self._row + 1 == last, pair_follows)

    def _advance_chunk(self, m: Module) -> None:
        """Keep the scales of the current chunk and the place in it."""
        with m.If(self._foreseen.scales):  # the last load before they are taken counts
            m.d.sync += self._scales.eq(self.head[0])
        with m.If(self._take_scales):
            m.d.sync += [
                self._scale_at.eq(0),
                self._chunk_left.eq(Mux(self._is_int8, CHUNK_BLOCKS, CHUNK_BLOCKS // GROUPS)),
            ]
        with m.Elif(self._take_payload):
            m.d.sync += [
                self._scale_at.eq(self._scale_at + ((1 + self._two) << ~self._is_int8)),
                self._chunk_left.eq(Mux(self._command_done, 0, self._chunk_left - 1 - self._two)),
            ]

    def _emit_tag(self, m: Module) -> None:
        """Register the beats and all that travels with them."""
        now, payload = self._current, self._take_payload
        even = ~now.paired | ~self._block[0]
        odd = ~now.paired | self._block[0] | self._two
        m.d.comb += self.address.eq(now.base + Mux(now.paired, self._block >> 1, self._block))
        m.d.sync += [
            self.tag.format.eq(now.format),
            self.tag.enable.eq(Mux(payload, (odd << 1) | even, 0)),
            self.tag.first.eq(payload & (self._block == 0) & ~self._plane),
            self.tag.last.eq(payload & self._row_done),
        ]
        # Without payload nothing is enabled, and what the rest holds does not matter.
        m.d.sync += [
            self.even_beat.eq(self.head[0]),
            self.odd_beat.eq(Mux(self._two, self.head[1], self.head[0])),
        ]
        self._emit_scales(m)
        self._emit_row(m)

    def _emit_scales(self, m: Module) -> None:
        window = Signal(8 * 2 * GROUPS, name="scale_window")
        m.d.comb += window.eq(self._scales.bit_select(self._scale_at << 3, len(window)))
        pairs = [
            [
                Mux(self._is_int8, window.word_select(beat, 8), window.word_select(2 * beat + g, 8))
                for g in range(GROUPS)
            ]
            for beat in range(2)
        ]
        for g in range(GROUPS):
            even, odd = pairs[0][g], Mux(self._two, pairs[1][g], pairs[0][g])
            unit = Const(E8M0.BIAS, 8)
            m.d.sync += [
                self.tag.scales[0][g].eq(Mux(self._current.scaled, even, unit)),
                self.tag.scales[1][g].eq(Mux(self._current.scaled, odd, unit)),
            ]

    def _emit_row(self, m: Module) -> None:
        now, row = self._current, self.tag.row
        m.d.sync += [
            row.row.eq(now.first_row + self._row),
            row.second_row.eq(~self._is_int8 & (self._row != now.last_row)),
            row.final.eq(self._row_done & self._foreseen.final),
            row.paired.eq(now.paired),
            row.last_vector.eq(now.last_vector),
            row.sink.eq(now.sink),
            row.select_first.eq(now.select_first & (self._row == 0)),
            row.select_last.eq(now.select_last & self._row_done & self._foreseen.final),
        ]

    def _accept_command(self, m: Module) -> None:
        """Take the next command with the last beat, which has put the position back to zero."""
        m.d.comb += self.command.ready.eq(~self._active | self._command_done)
        with m.If(self.command.ready):
            m.d.sync += [
                self._active.eq(self.command.valid),
                self._current.eq(self.command.payload),
                self._left.eq(self.command.p.last_block),
            ]

    def _explain(self, m: Module) -> None:
        with m.If(~self._active):
            m.d.comb += self.cause.eq(Cause.IDLE)
        with m.Elif(self._take_scales):
            m.d.comb += self.cause.eq(Cause.SCALE)
        with m.Elif(self._take_payload):
            m.d.comb += self.cause.eq(Cause.BUSY)
        with m.Elif(self._want_payload):
            m.d.comb += self.cause.eq(Cause.OUTPUT)
        with m.Else():
            m.d.comb += self.cause.eq(Cause.WEIGHTS)
