"""The exact dot product of one column's activations and a beat of weights."""

from amaranth import Module, Mux, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK
from pequin.mac.arith import balanced_sum
from pequin.mac.delay import delay, register
from pequin.mac.lane_decode import operand_bits
from pequin.mac.types import GROUPS, StoredBlock, WeightFormat, WeightOperands

SUM_BITS = 21
"""Width of a block sum: 32 * 128 * 128 = 2**19 needs 21 signed bits."""

_SPLIT_BELOW = 18
"""A field of a packed sum of 32 products has 18 bits; a narrower pack is split before the tree."""


class DotProduct(wiring.Component):
    """Sum 32 products for both row groups with 32 multipliers.

    Operands are offset binary on both sides (a + 128, w + 16), so that two products fit one
    multiplier without borrows between them:
    sum((a+128)(w+16)) = sum(aw) + 16 sum(a+128) + 128 sum(w+16) - 65536.
    The two sums on the right come with the operands and are subtracted at the end. For MXINT8
    the groups are high and low nibbles and join as 16 * g0 + g1.

    Timing: `sums` follows the inputs by `latency` clocks: 2, or 4 with `pipelined`. `format` is
    wanted with the operands, their totals `totals_clocks` later.

    Parameters
    ----------
    pack
        Bit position of group 1 in an operand. 13 suits an 18 x 18 multiplier; 18 or more sums
        both groups in one tree (27 x 18 multipliers, and simulation).
    pipelined
        Registers after the multipliers and in the middle of the tree.

    Members
    -------
    operands : In(WeightOperands(pack + 5))
    format : In(WeightFormat)
    block : In(StoredBlock())
    sums : Out(signed(21)).array(2)
        Per group. MXINT8: group 0 has the sum, group 1 is meaningless.
    """

    def __init__(self, *, pack: int, pipelined: bool) -> None:
        self._pack = pack
        self._pipelined = pipelined
        super().__init__(
            {
                "operands": In(WeightOperands(operand_bits(pack))),
                "format": In(WeightFormat),
                "block": In(StoredBlock()),
                "sums": Out(signed(SUM_BITS)).array(GROUPS),
            }
        )

    @property
    def pack(self) -> int:
        """Bit position of group 1 in an operand."""
        return self._pack

    @property
    def pipelined(self) -> bool:
        """Whether products and half-way sums are registered."""
        return self._pipelined

    @property
    def latency(self) -> int:
        """Clocks from operands to sums."""
        return 4 if self._pipelined else 2

    @property
    def totals_clocks(self) -> int:
        """Clocks from the operands' lanes to their totals."""
        return 2 if self._pipelined else 0

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        raw = self._raw_sums(m)
        block_total = delay(m, self.block.total, self.totals_clocks, name="block_total")
        exact = []
        for g in range(GROUPS):
            excess = Signal(signed(19), name=f"excess_{g}_0")
            m.d.comb += excess.eq((self.operands.totals[g] << 7) + (block_total << 4) - (1 << 16))
            late = delay(m, excess, self.latency - 1 - self.totals_clocks, name=f"excess_{g}")
            difference = Signal(signed(18), name=f"exact_{g}")
            m.d.comb += difference.eq(raw[g] - late)
            exact.append(difference)
        is_int8 = delay(m, self.format == WeightFormat.MXINT8, self.latency - 1, name="is_int8")
        joined = Mux(is_int8, (exact[0] << 4) + exact[1], exact[0])
        for g, value in enumerate((joined, exact[1])):
            m.d.comb += self.sums[g].eq(register(m, value, name=f"sum_{g}", shape=signed(SUM_BITS)))
        return m

    def _raw_sums(self, m: Module) -> list[Value]:
        products: list[Value] = [
            self.block.elements.word_select(i, 8) * self.operands.lanes[i] for i in range(BLOCK)
        ]
        if self._pipelined:
            products = self._registered(m, products, "product")
        if self._pack >= _SPLIT_BELOW:
            total = self._tree(m, products, "total")
            return [total[: self._pack], total[self._pack :]]
        return [
            self._tree(m, [p[: self._pack] for p in products], "total_0"),
            self._tree(m, [p[self._pack :] for p in products], "total_1"),
        ]

    def _tree(self, m: Module, terms: list[Value], name: str) -> Value:
        if self._pipelined:
            eighths = [balanced_sum(terms[i : i + 8]) for i in range(0, BLOCK, 8)]
            terms = self._registered(m, eighths, f"{name}_eighth")
        return self._registered(m, [balanced_sum(terms)], name)[0]

    def _registered(self, m: Module, values: list[Value], name: str) -> list[Value]:
        return [register(m, value, name=f"{name}_{i}") for i, value in enumerate(values)]
