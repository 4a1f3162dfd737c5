"""From finished sums to fp32 results, drained while the next rows accumulate."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TERM_BITS, TileParams
from pequin.mac.arith import balanced_sum
from pequin.mac.delay import delay, register
from pequin.mac.drain_schedule import drain_clocks
from pequin.mac.fixed_to_float import FixedToFloat
from pequin.mac.types import GROUPS, DrainedGroup, PartialSum, ResultFlags, row_tag

CANONICAL_NAN = 0x7FC00000
"""Bits of a result with a NaN block."""


class ReadOut(wiring.Component):
    """Capture a row group's accumulators, join paired columns, clamp, convert, drain.

    A row's results leave in groups of `drain_lanes` vectors, the first row of the group first;
    groups without a vector are skipped.

    Timing: a capture of R rows (1 or 2) and V vectors occupies R * ceil(V / drain_lanes)
    clocks; the next one may come with the last of them, and not earlier (see `DrainSchedule`).
    `drained` follows the first clock by `LATENCY` clocks and cannot be held back.

    Parameters
    ----------
    params
        Sizes: `columns`, `drain_lanes`.

    Members
    -------
    capture : In(1)
        `totals` and `tag` are the finished sums of a row group.
    totals : In(PartialSum(params)).array(columns, 2)
    tag : In(row_tag(params))
    ready : Out(1)
        A capture may come in this clock.
    drained : Out(DrainedGroup(params))
    valid : Out(1)
    """

    LATENCY = 2 + FixedToFloat.LATENCY

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "capture": In(1),
                "totals": In(PartialSum(params)).array(params.config.columns, GROUPS),
                "tag": In(row_tag(params)),
                "ready": Out(1),
                "drained": Out(DrainedGroup(params)),
                "valid": Out(1),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._started, self._final = Signal(), Signal()
        held, tag, row, group = self._capture(m)
        picked = self._pick(m, held, row, group)
        self._describe(m, tag, row, group)
        self._convert(m, picked)
        return m

    def _capture(self, m: Module) -> tuple[list[list[dict[str, Signal]]], Signal, Signal, Signal]:
        """Hold a row group; count through its rows and groups of vectors."""
        c = self._params.config
        busy, row, tag = Signal(), Signal(), Signal(row_tag(self._params), name="held_tag")
        groups = c.columns // c.drain_lanes
        group, last_group = Signal(range(groups)), Signal(range(groups))
        left, done = Signal(range(GROUPS * groups)), Signal()
        m.d.comb += [
            last_group.eq(tag.last_vector // c.drain_lanes),
            done.eq(left == 0),
            self._started.eq(busy),
            self._final.eq(done & tag.final),
            self.ready.eq(~busy | done),
        ]
        m.d.sync += left.eq(left - 1)
        with m.If(done):
            m.d.sync += busy.eq(0)
        m.d.sync += group.eq(group + 1)
        with m.If(group == last_group):
            m.d.sync += [group.eq(0), row.eq(1)]
        held = self._hold(m)
        with m.If(self.capture):
            m.d.sync += [
                busy.eq(1),
                left.eq(drain_clocks(self._params, self.tag)),
                tag.eq(self.tag),
                group.eq(0),
                row.eq(0),
            ]
        return held, tag, row, group

    def _hold(self, m: Module) -> list[list[dict[str, Signal]]]:
        """Register the sums per row and vector; a pair's two sums are joined, exactly."""
        c = self._params.config
        held = [[self._sum_registers(f"held_{g}_{v}") for v in range(c.columns)] for g in range(2)]
        for g in range(GROUPS):
            for v in range(c.columns):
                own = self.totals[v][g]
                with m.If(self.capture):
                    m.d.sync += [held[g][v][name].eq(getattr(own, name)) for name in held[g][v]]
                    if v < c.columns // 2:
                        even, odd = self.totals[2 * v][g], self.totals[2 * v + 1][g]
                        with m.If(self.tag.paired):
                            m.d.sync += [
                                held[g][v]["sum"].eq(even.sum + odd.sum),
                                held[g][v]["nan"].eq(even.nan | odd.nan),
                                held[g][v]["term_clamped"].eq(even.term_clamped | odd.term_clamped),
                                held[g][v]["zeros"].eq(even.zeros + odd.zeros),
                            ]
        return held

    def _sum_registers(self, name: str) -> dict[str, Signal]:
        members = PartialSum(self._params).members
        return {
            field: Signal(member.shape, name=f"{name}_{field}", reset_less=True)
            for field, member in members.items()
        }

    def _pick(
        self, m: Module, held: list[list[dict[str, Signal]]], row: Signal, group: Signal
    ) -> list[dict[str, Signal]]:
        """Register the sums of the group that starts."""
        c = self._params.config
        picked = []
        for d in range(c.drain_lanes):
            choice = self._sum_registers(f"picked_{d}")
            with m.If(self._started), m.Switch(Cat(group, row)):
                for g in range(GROUPS):
                    for place, v in enumerate(range(d, c.columns, c.drain_lanes)):
                        with m.Case((g << len(group)) | place):
                            m.d.sync += [choice[name].eq(held[g][v][name]) for name in choice]
            picked.append(choice)
        return picked

    def _describe(self, m: Module, tag: Signal, row: Signal, group: Signal) -> None:
        """Send the group's place along the converters."""
        c = self._params.config
        sent_tag = Signal(row_tag(self._params), name="sent_tag", reset_less=True)
        sent_row = Signal(c.index_bits, reset_less=True)
        vector, sent_vector = Signal(range(c.columns)), Signal(range(c.columns), reset_less=True)
        sent_mask = Signal(c.drain_lanes, reset_less=True)
        begins = (row == 0) & (group == 0)
        m.d.comb += vector.eq(group * c.drain_lanes)
        with m.If(self._started):
            m.d.sync += [
                sent_row.eq(tag.row + row),
                sent_vector.eq(vector),
                sent_mask.eq(Cat(vector + d <= tag.last_vector for d in range(c.drain_lanes))),
                sent_tag.eq(tag),
                sent_tag.select_first.eq(tag.select_first & begins),
                sent_tag.select_last.eq(tag.select_last & self._final),
                sent_tag.final.eq(self._final),
            ]
        late = self.LATENCY - 1
        valid = delay(m, self._started, self.LATENCY, name="valid", reset_less=False)
        drained_tag = delay(m, sent_tag, late, name="sent_tag")
        m.d.comb += [
            self.valid.eq(valid),
            self.drained.tag.eq(drained_tag),
            self.drained.last.eq(drained_tag.final),
            self.drained.row.eq(delay(m, sent_row, late, name="sent_row")),
            self.drained.vector.eq(delay(m, sent_vector, late, name="sent_vector")),
            self.drained.mask.eq(delay(m, sent_mask, late, name="sent_mask")),
        ]
        self._mask = sent_mask

    def _convert(self, m: Module, picked: list[dict[str, Signal]]) -> None:
        """Clamp and convert the picked sums; carry their flags and counts along."""
        zeros = []
        for d, choice in enumerate(picked):
            total, flags = choice["sum"], Signal(ResultFlags, name=f"flags_{d}")
            over = (total >> (TERM_BITS - 1)) != Mux(total[-1], -1, 0)
            limit = Mux(total[-1], -(1 << (TERM_BITS - 1)), (1 << (TERM_BITS - 1)) - 1)
            fixed = register(m, Mux(over, limit, total), name=f"fixed_{d}", shape=signed(TERM_BITS))
            m.d.comb += [
                flags.nan.eq(choice["nan"]),
                flags.term_clamped.eq(choice["term_clamped"]),
                flags.result_clamped.eq(over),
            ]
            m.submodules[f"convert_{d}"] = convert = FixedToFloat()
            arrived = delay(m, flags, 1 + FixedToFloat.LATENCY, name=f"flags_{d}")
            m.d.comb += [
                convert.fixed.eq(fixed),
                self.drained.values[d].eq(Mux(arrived.nan, CANONICAL_NAN, convert.value)),
                self.drained.flags[d].eq(arrived),
            ]
            zeros.append(Mux(self._mask[d], choice["zeros"], 0))
        counted = balanced_sum(zeros)
        late = delay(m, counted, 1 + FixedToFloat.LATENCY, name="counted_zeros")
        m.d.comb += self.drained.zeros.eq(late)
