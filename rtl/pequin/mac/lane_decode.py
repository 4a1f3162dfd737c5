"""From the bytes of a beat to multiplier operands."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK
from pequin.errors import ConfigError
from pequin.formats import E2M1, MXINT8
from pequin.mac.arith import balanced_sum
from pequin.mac.types import BEAT_BITS, GROUPS, WeightFormat, WeightOperands

WEIGHT_OFFSET = 16
"""Added to a lane's signed operand (-12..15) to make it non-negative."""

OPERAND_BITS = 5


def operand_bits(pack: int) -> int:
    """Return the width of a packed operand: group 1 above bit `pack`, group 0 below."""
    return pack + OPERAND_BITS


class LaneDecode(wiring.Component):
    """Decode a beat into 32 packed operands, two rows (or nibbles) in each.

    Operand i is (g1 + 16) * 2**pack + (g0 + 16). MXFP4: g0 and g1 are twice the E2M1 values of
    element i of the even and of the odd row; the even row is bytes 0 to 15, an even element the
    low nibble. MXINT8: g0 is element i's signed high nibble, g1 its unsigned low nibble.

    Timing: combinational.

    Parameters
    ----------
    pack
        Bit position of group 1; at least 13, so that products by 8 bits do not overlap.

    Members
    -------
    beat : In(256)
    format : In(WeightFormat)
    operands : Out(WeightOperands(pack + 5))
        The operands and, per group, the sum of the 32 offset values.

    Raises
    ------
    ConfigError
        `pack` is below 13.
    """

    def __init__(self, *, pack: int) -> None:
        if pack < 13:
            raise ConfigError(f"pack must be at least 13 (8 + 5 product bits), not {pack}")
        self._pack = pack
        super().__init__(
            {
                "beat": In(BEAT_BITS),
                "format": In(WeightFormat),
                "operands": Out(WeightOperands(operand_bits(pack))),
            }
        )

    @property
    def pack(self) -> int:
        """Bit position of group 1 in an operand."""
        return self._pack

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        lanes: list[list[Signal]] = [[], []]
        for i in range(BLOCK):
            byte = MXINT8(self.beat.word_select(i, 8))
            halves = (byte.high, byte.low)
            pair = []
            for g in range(GROUPS):
                element = E2M1(self.beat.word_select(g * BLOCK + i, 4))
                lane = Signal(OPERAND_BITS, name=f"lane_{i}_{g}")
                value = Mux(self.format == WeightFormat.MXINT8, halves[g], element.integer)
                m.d.comb += lane.eq(value ^ WEIGHT_OFFSET)  # modulo 32 the same as a sum
                pair.append(lane)
            gap = Const(0, self._pack - OPERAND_BITS)
            m.d.comb += self.operands.lanes[i].eq(Cat(pair[0], gap, pair[1]))
            for g in range(GROUPS):
                lanes[g].append(pair[g])
        for g in range(GROUPS):
            m.d.comb += self.operands.totals[g].eq(balanced_sum(lanes[g]))
        return m
