"""The MAC array: columns, control, read-out and sinks joined."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK, TileParams
from pequin.counters import COUNTER_BITS, CauseCounters, cause_counts
from pequin.mac.activation_buffer import OFFSET, ActivationBuffer
from pequin.mac.arith import balanced_sum
from pequin.mac.beat_window import BeatWindow
from pequin.mac.column import Column
from pequin.mac.delay import delay, register
from pequin.mac.drain_schedule import STATUS_DEPTH, DrainSchedule, result_depth
from pequin.mac.feeder import Feeder
from pequin.mac.lane_decode import OPERAND_BITS, LaneDecode, operand_bits
from pequin.mac.read_out import ReadOut
from pequin.mac.status import StatusCollector
from pequin.mac.top_k import TopK
from pequin.mac.types import (
    BEAT_BITS,
    GROUPS,
    Cause,
    Sink,
    WeightOperands,
    activation_write,
    mac_command,
    mac_status,
    result_group,
    selected_entry,
    weight_beats,
)
from pequin.streams import StreamFifo, connect_streams


class MacArray(wiring.Component):
    """Multiply a stream of weight rows by up to `columns` stationary activation vectors.

    Sums are exact (48-bit terms, LSB 2**-24, guard bits), so results and error flags do not
    depend on the order of blocks, on pairing or on the preset.

    Timing: takes one beat per clock, or two when paired, without bubbles inside a row, between
    rows and between commands; a scale beat takes a clock of its own. A row group (two MXFP4
    rows, one MXINT8 row) of R rows and V vectors needs R * ceil(V / drain_lanes) clocks to
    drain, so shorter rows are limited by the drain: the last beat of a row group waits until its
    drain and its results have a place, and nothing behind it ever waits. `results` may wait at
    any time. An activation written at least two clocks before its command is accepted is seen by
    it.

    Parameters
    ----------
    params
        The tile's parameters.
    peek
        Make the activation buffer readable from outside.

    Members
    -------
    command : In(stream of mac_command(params))
    weights : In(stream of weight_beats())
        The beats of all commands, one after the other, in transfers of one or two; each command
        starts a new chunk.
    activations : In(stream of activation_write(params))
        Always ready.
    results : Out(stream of result_group(params))
        Results of `Sink.STREAM` commands.
    selected : Out(stream of selected_entry(params))
        Top-k entries of `Sink.TOP_K` commands.
    status : Out(stream of mac_status(params))
        One per command, after its last result was accepted by the result buffer.
    counters : Out(cause_counts(Cause))
        `mac.busy`, `mac.scale`, `mac.weights`, `mac.output`, `mac.idle`: clocks since reset.
    payload_beats : Out(48)
        `mac.payload_beats`: payload beats taken since reset.
    cause : Out(Cause), beats : Out(2)
        What the counters count in this clock.
    peek_address : In(range(act_blocks)), peek_column : In(range(columns)), peeked : Out(264)
        With `peek`: address and column of a block, and its elements and scale two clocks later.
        Only while no command is at work.
    peek : In(1)
        The activation buffer's address is `peek_address`.
    """

    def __init__(self, params: TileParams, *, peek: bool = False) -> None:
        self._params, self._peek = params, peek
        c = params.config
        peeks = {
            "peek": In(1),
            "peek_address": In(range(c.act_blocks)),
            "peek_column": In(range(c.columns)),
            "peeked": Out(BEAT_BITS + 8),
        }
        super().__init__(
            {
                "command": In(stream.Signature(mac_command(params))),
                "weights": In(stream.Signature(weight_beats())),
                "activations": In(stream.Signature(activation_write(params))),
                "results": Out(stream.Signature(result_group(params))),
                "selected": Out(stream.Signature(selected_entry(params))),
                "status": Out(stream.Signature(mac_status(params))),
                "counters": Out(cause_counts(Cause)),
                "payload_beats": Out(COUNTER_BITS),
                "cause": Out(Cause),
                "beats": Out(2),
                **(peeks if peek else {}),
            }
        )

    @classmethod
    def from_params(cls, params: TileParams) -> MacArray:
        """Return the array alone."""
        return cls(params)

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def peek_wanted(self) -> bool:
        """Whether the activation buffer is readable from outside."""
        return self._peek

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.feeder = feeder = Feeder(self._params)
        m.submodules.read_out = read_out = ReadOut(self._params)
        self._elaborate_input(m, feeder)
        blocks = self._elaborate_buffer(m, feeder)
        self._elaborate_pipeline(m, feeder, blocks, read_out)
        self._elaborate_sinks(m, read_out)
        self._elaborate_schedule(m, feeder)
        self._elaborate_counters(m, feeder)
        return m

    def _elaborate_input(self, m: Module, feeder: Feeder) -> None:
        m.submodules.window = window = BeatWindow()
        connect_streams(m, wiring.flipped(self.weights), window.weights)
        connect_streams(m, wiring.flipped(self.command), feeder.command)
        m.d.comb += [
            *(feeder.head[i].eq(window.head[i]) for i in range(2)),
            feeder.level.eq(window.level),
            window.take.eq(feeder.take),
        ]

    def _elaborate_buffer(self, m: Module, feeder: Feeder) -> Any:
        m.submodules.activations = buffer = ActivationBuffer(self._params)
        connect_streams(m, wiring.flipped(self.activations), buffer.write)
        m.d.comb += buffer.address.eq(feeder.address)
        if self._peek:
            self._elaborate_peek(m, buffer)
        return buffer.blocks

    def _elaborate_peek(self, m: Module, buffer: ActivationBuffer) -> None:
        """Let the buffer be read from outside; the elements leave as they came."""
        with m.If(self.peek):
            m.d.comb += buffer.address.eq(self.peek_address)
        with m.Switch(self.peek_column):
            for column, block in enumerate(buffer.blocks):
                with m.Case(column):
                    elements = block.elements ^ Const(OFFSET * (2**BEAT_BITS - 1) // 255, BEAT_BITS)
                    m.d.sync += self.peeked.eq(Cat(elements, block.scale))

    def _elaborate_pipeline(
        self, m: Module, feeder: Feeder, blocks: Any, read_out: ReadOut
    ) -> None:
        """Decode, multiply and accumulate."""
        params = self._params
        tag = feeder.tag
        format_ = register(m, tag.format, name="operand_format")
        sides = [
            self._decoded(m, feeder, beat, name)
            for beat, name in ((feeder.even_beat, "even"), (feeder.odd_beat, "odd"))
        ]
        columns = []
        for c in range(params.config.columns):
            m.submodules[f"column_{c}"] = column = Column(params)
            columns.append(column)
            wiring.connect(m, sides[c % 2], column.operands)
            m.d.comb += column.format.eq(format_)
            for name in column.block.signature.members:
                arrived = register(m, getattr(blocks[c], name), name=f"block_{c}_{name}")
                m.d.comb += getattr(column.block, name).eq(arrived)
            for g in range(GROUPS):
                wiring.connect(m, column.totals[g], read_out.totals[c][g])
        self._distribute_control(m, tag, columns)
        latency = 1 + columns[0].latency
        m.d.comb += [
            read_out.capture.eq(delay(m, tag.last, latency, name="last", reset_less=False)),
            read_out.tag.eq(delay(m, tag.row, latency, name="row")),
        ]

    def _decoded(self, m: Module, feeder: Feeder, beat: Any, name: str) -> Any:
        """Register the operands of the even or of the odd columns."""
        params = self._params
        m.submodules[f"decode_{name}"] = decode = LaneDecode(pack=params.pack)
        operands = WeightOperands(operand_bits(params.pack)).create(path=(f"{name}_operands",))
        m.d.comb += [decode.beat.eq(beat), decode.format.eq(feeder.tag.format)]
        lanes = [
            register(m, decode.operands.lanes[i], name=f"{name}_lane_{i}") for i in range(BLOCK)
        ]
        m.d.comb += [operands.lanes[i].eq(lane) for i, lane in enumerate(lanes)]
        for g in range(GROUPS):
            total = decode.operands.totals[g]
            if params.config.pipelined:  # two clocks later than the lanes, as `DotProduct` wants
                # From the decoder and not from the lanes' registers: these belong beside the
                # multipliers.
                decoded = decode.operands.lanes
                fields = [
                    decoded[i].bit_select(g * params.pack, OPERAND_BITS) for i in range(BLOCK)
                ]
                total = self._summed(m, fields, f"{name}_{g}")
            m.d.comb += operands.totals[g].eq(register(m, total, name=f"{name}_total_{g}"))
        return operands

    def _summed(self, m: Module, fields: list[Any], name: str) -> Any:
        """Return the sum of 32 fields two clocks later: pairs, then halves, then all."""
        pairs = [
            register(m, fields[i] + fields[i + 1], name=f"pair_{name}_{i}")
            for i in range(0, BLOCK, 2)
        ]
        half = len(pairs) // 2
        halves = [
            register(m, balanced_sum(pairs[i : i + half]), name=f"half_{name}_{i}")
            for i in (0, half)
        ]
        return halves[0] + halves[1]

    def _distribute_control(self, m: Module, tag: Any, columns: list[Column]) -> None:
        """Delay what all columns share once for all of them."""
        clocks = 1 + columns[0].scale_clocks
        format_ = delay(m, tag.format, clocks, name="format")
        enable = delay(m, tag.enable, clocks, name="enable", reset_less=False)
        first = delay(m, tag.first, 1 + columns[0].first_clocks, name="first")
        scales = [
            [delay(m, tag.scales[side][g], clocks, name=f"scale_{side}_{g}") for g in range(2)]
            for side in range(2)
        ]
        for c, column in enumerate(columns):
            m.d.comb += [column.scales[g].eq(scales[c % 2][g]) for g in range(GROUPS)]
            m.d.comb += [
                column.scale_format.eq(format_),
                column.enable.eq(enable[c % 2]),
                column.first.eq(first),
            ]

    def _elaborate_sinks(self, m: Module, read_out: ReadOut) -> None:
        """Send drained groups to the result buffer or the top-k registers."""
        params = self._params
        m.submodules.results = results = StreamFifo(
            result_group(params), depth=result_depth(params)
        )
        m.submodules.statuses = statuses = StreamFifo(mac_status(params), depth=STATUS_DEPTH)
        m.submodules.status = collector = StatusCollector(params)
        m.submodules.top_k = top_k = TopK(params)
        connect_streams(m, results.output, wiring.flipped(self.results))
        connect_streams(m, statuses.output, wiring.flipped(self.status))
        connect_streams(m, top_k.selected, wiring.flipped(self.selected))
        drained = read_out.drained
        to_top_k = drained.tag.sink == Sink.TOP_K
        wiring.connect(m, drained, collector.drained)
        wiring.connect(m, drained, top_k.group)
        self._assemble_results(m, drained, results.input.p)
        m.d.comb += [
            collector.valid.eq(read_out.valid),
            statuses.input.payload.eq(collector.status.payload),
            statuses.input.valid.eq(collector.status.valid),
            results.input.valid.eq(read_out.valid & ~to_top_k),
            top_k.insert.eq(read_out.valid & to_top_k),
            top_k.clear.eq(drained.tag.select_first),
            top_k.emit.eq(drained.tag.select_last),
            top_k.last_vector.eq(drained.tag.last_vector),
        ]

    def _assemble_results(self, m: Module, drained: Any, group: Any) -> None:
        for d in range(self._params.config.drain_lanes):
            m.d.comb += [
                group.lanes[d].value.eq(drained.values[d]),
                group.lanes[d].flags.eq(drained.flags[d]),
            ]
        for name in ("mask", "row", "vector", "last"):
            m.d.comb += group[name].eq(getattr(drained, name))

    def _elaborate_schedule(self, m: Module, feeder: Feeder) -> None:
        """End a row group only when the places behind it are sure."""
        m.submodules.schedule = schedule = DrainSchedule(self._params)
        m.d.comb += [
            schedule.ended.eq(feeder.tag.last),
            schedule.tag.eq(feeder.tag.row),
            schedule.result_taken.eq(self.results.valid & self.results.ready),
            schedule.status_taken.eq(self.status.valid & self.status.ready),
            schedule.selection_taken.eq(
                self.selected.valid & self.selected.ready & self.selected.p.last
            ),
            *(feeder.may_end[i].eq(schedule.may_end[i]) for i in range(len(Sink))),
        ]

    def _elaborate_counters(self, m: Module, feeder: Feeder) -> None:
        m.submodules.counters = counters = CauseCounters(Cause)
        cause, beats = Signal(Cause, init=Cause.IDLE), Signal.like(feeder.beats)
        m.d.comb += [
            counters.cause.eq(cause),
            self.counters.eq(counters.counts),
            self.cause.eq(cause),
            self.beats.eq(beats),
        ]
        m.d.sync += [
            cause.eq(feeder.cause),
            beats.eq(feeder.beats),
            self.payload_beats.eq(self.payload_beats + beats),
        ]
