"""One column of the array: dot product, two aligners, two accumulators."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.mac.accumulator import Accumulator
from pequin.mac.aligner import Aligner
from pequin.mac.delay import delay
from pequin.mac.dot_product import DotProduct
from pequin.mac.lane_decode import operand_bits
from pequin.mac.types import GROUPS, PartialSum, StoredBlock, WeightFormat, WeightOperands

ALIGN_CLOCKS = 2
"""Clocks from a block sum to its term."""


class Column(wiring.Component):
    """Accumulate both row groups of one column.

    Timing: `totals` includes a block `latency` clocks after its operands. Control that is the
    same for all columns arrives when it is needed, so that it is delayed once for all:
    `enable`, `scales` and `scale_format` `latency` - 4 clocks after the operands (with the
    last stage of the dot product), `first` one clock before the total.

    Parameters
    ----------
    params
        Sizes, multiplier packing and pipelining.

    Members
    -------
    operands, format, block
        As in `DotProduct`.
    scales : In(8).array(2)
        Weight scales of the row groups (E8M0).
    scale_format : In(WeightFormat)
    enable : In(1)
        The column takes part in this block.
    first : In(1)
    totals : Out(PartialSum(params)).array(2)
    """

    def __init__(self, params: TileParams) -> None:
        self._params = params
        self._dot = DotProduct(pack=params.pack, pipelined=params.config.pipelined)
        super().__init__(
            {
                "operands": In(WeightOperands(operand_bits(params.pack))),
                "format": In(WeightFormat),
                "block": In(StoredBlock()),
                "scales": In(8).array(GROUPS),
                "scale_format": In(WeightFormat),
                "enable": In(1),
                "first": In(1),
                "totals": Out(PartialSum(params)).array(GROUPS),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def scale_clocks(self) -> int:
        """Clocks from the operands to `scales`, `scale_format` and `enable`."""
        return self._dot.latency - 1

    @property
    def first_clocks(self) -> int:
        """Clocks from the operands to `first`."""
        return self._dot.latency + ALIGN_CLOCKS

    @property
    def latency(self) -> int:
        """Clocks from the operands to `totals`."""
        return self.first_clocks + 1

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.dot = dot = self._dot
        wiring.connect(m, wiring.flipped(self.operands), dot.operands)
        wiring.connect(m, wiring.flipped(self.block), dot.block)
        m.d.comb += dot.format.eq(self.format)
        act_scale = delay(m, self.block.scale, self.scale_clocks, name="act_scale")
        for g in range(GROUPS):
            m.submodules[f"aligner_{g}"] = aligner = Aligner()
            m.submodules[f"accumulator_{g}"] = accumulator = Accumulator(self._params)
            in_use = self.enable
            if g == 1:  # both nibbles of an MXINT8 row end in group 0
                in_use = in_use & (self.scale_format == WeightFormat.MXFP4)
            m.d.comb += [
                aligner.sum.eq(dot.sums[g]),
                aligner.weight_scale.eq(self.scales[g]),
                aligner.act_scale.eq(act_scale),
                aligner.format.eq(self.scale_format),
                aligner.enable.eq(in_use),
                accumulator.term.eq(aligner.term),
                accumulator.nan.eq(aligner.nan),
                accumulator.clamped.eq(aligner.clamped),
                accumulator.zeroed.eq(aligner.zeroed),
                accumulator.first.eq(self.first),
            ]
            wiring.connect(m, accumulator.total, wiring.flipped(self.totals[g]))
        return m
