"""The array's control: commands and beats in, one issued clock after the other out."""

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
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
        self._explain(m)
        return m

    def _declare(self) -> None:
        """Create the state: command, position in the row, position in the chunk."""
        self._active = Signal()
        self._current = Signal(mac_command(self._params), name="current")
        self._block = Signal(range(self._params.max_blocks))
        self._plane = Signal()
        self._row = Signal(self._params.config.index_bits)
        self._chunk_left = Signal(range(CHUNK_BLOCKS + 1))
        # The padding keeps a window at the last scale inside the signal.
        self._scales = Signal(BEAT_BITS + 8 * (2 * GROUPS - 1))
        self._scale_at = Signal(range(CHUNK_BLOCKS))
        self._is_int8, self._need_scales = Signal(), Signal()
        self._want_payload, self._two = Signal(), Signal()
        self._take_scales, self._take_payload = Signal(), Signal()
        self._plane_done, self._row_done = Signal(), Signal()
        self._last_beat, self._command_done = Signal(), Signal()

    def _decide(self, m: Module) -> None:
        """Choose what to take in this clock."""
        now = self._current
        here, may_end = Signal(), Signal()
        m.d.comb += [
            self._is_int8.eq(now.format == WeightFormat.MXINT8),
            here.eq(self._active & (self.level != 0)),
            self._need_scales.eq(now.scaled & (self._chunk_left == 0)),
            may_end.eq(Mux(now.sink == Sink.TOP_K, self.may_end[1], self.may_end[0])),
            self._want_payload.eq(here & ~self._need_scales),
            self._two.eq(
                now.paired
                & ~self._block[0]
                & (self._block != now.last_block)
                & (self.level == 2)
                & ~(now.scaled & (self._chunk_left == 1))
            ),
            self._take_scales.eq(here & self._need_scales),
            self._take_payload.eq(self._want_payload & (~self._row_done | may_end)),
            self.beats.eq(Mux(self._take_payload, 1 + self._two, 0)),
            self.take.eq(self.beats | self._take_scales),
        ]

    def _advance_position(self, m: Module) -> None:
        """Count blocks, planes and rows."""
        now = self._current
        row_step = Mux(self._is_int8, 1, 2)
        # Two beats are those of an even block and its successor; without an adder.
        at_last, before_last = Signal(), Signal()
        m.d.comb += [
            at_last.eq(self._block == now.last_block),
            before_last.eq((self._block | 1) == now.last_block),
            self._plane_done.eq(at_last | (self._two & before_last)),
            self._row_done.eq(self._plane_done & (self._plane == now.two_planes)),
            self._last_beat.eq(
                self._row_done & ((self._row | ~self._is_int8) == (now.last_row | ~self._is_int8))
            ),
            self._command_done.eq(self._take_payload & self._last_beat),
        ]
        with m.If(self._take_payload):
            m.d.sync += [
                self._block.eq(Mux(self._plane_done, 0, self._block + 1 + self._two)),
                self._plane.eq(self._plane ^ (self._plane_done & now.two_planes)),
            ]
            with m.If(self._row_done):
                m.d.sync += self._row.eq(Mux(self._last_beat, 0, self._row + row_step))

    def _advance_chunk(self, m: Module) -> None:
        """Keep the scales of the current chunk and the place in it."""
        with m.If(self._need_scales):  # the last load before they are taken counts
            m.d.sync += self._scales.eq(self.head[0])
        with m.If(self._take_scales):
            m.d.sync += [
                self._scale_at.eq(0),
                self._chunk_left.eq(Mux(self._is_int8, CHUNK_BLOCKS, CHUNK_BLOCKS // GROUPS)),
            ]
        with m.Elif(self._take_payload):
            m.d.sync += [
                self._scale_at.eq(self._scale_at + ((1 + self._two) << ~self._is_int8)),
                self._chunk_left.eq(Mux(self._last_beat, 0, self._chunk_left - 1 - self._two)),
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
            row.final.eq(self._last_beat),
            row.paired.eq(now.paired),
            row.last_vector.eq(now.last_vector),
            row.sink.eq(now.sink),
            row.select_first.eq(now.select_first & (self._row == 0)),
            row.select_last.eq(now.select_last & self._last_beat),
        ]

    def _accept_command(self, m: Module) -> None:
        """Take the next command with the last beat, which has put the position back to zero."""
        m.d.comb += self.command.ready.eq(~self._active | self._command_done)
        with m.If(self.command.ready):
            m.d.sync += [
                self._active.eq(self.command.valid),
                self._current.eq(self.command.payload),
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
