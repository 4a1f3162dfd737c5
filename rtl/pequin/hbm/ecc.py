"""SECDED over each 64-bit word of a beat: an odd-weight-column (Hsiao) code.

Column i of the check matrix is the i-th byte, in ascending order, among those with three ones,
then among those with five ones: 56 + 8 columns. Check bit j is the parity of the data bits whose
column has bit j set. The code is linear, so a store of zeros is valid.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.types import BEAT_BITS, CHECK_BITS

WORD_BITS = 64
CODE_BITS = 8
COLUMNS = tuple(
    [byte for byte in range(256) if byte.bit_count() == 3]
    + [byte for byte in range(256) if byte.bit_count() == 5]
)[:WORD_BITS]
"""Columns of the check matrix, one for each data bit of a word."""


def check_bits(word: Value) -> Value:
    """Return the eight check bits of a 64-bit word."""
    parity = []
    for j in range(CODE_BITS):
        parity.append(Cat(word[i] for i, column in enumerate(COLUMNS) if column >> j & 1).xor())
    return Cat(parity)


def encode_beat(beat: Value) -> Value:
    """Return the check bits of a beat, eight for each word, word 0 lowest."""
    return Cat(check_bits(beat[low : low + WORD_BITS]) for low in range(0, BEAT_BITS, WORD_BITS))


class EccDecoder(wiring.Component):
    """Correct single-bit errors of a beat and tell double-bit errors, without registers.

    Members
    -------
    data, check
        The beat as it came from the device.
    fixed
        The beat with single-bit errors corrected; zero when `double` is set.
    single
        Some word had a single-bit error, in data or check bits, and none a double one.
    double
        Some word had an error that cannot be corrected.
    """

    data: In(BEAT_BITS)
    check: In(CHECK_BITS)
    fixed: Out(BEAT_BITS)
    single: Out(1)
    double: Out(1)

    def elaborate(self, platform: object) -> Module:
        """Build the decoder."""
        m = Module()
        words, singles, doubles = [], [], []
        for index in range(BEAT_BITS // WORD_BITS):
            word = self.data.word_select(Const(index, 2), WORD_BITS)
            check = self.check.word_select(Const(index, 2), CODE_BITS)
            syndrome = Signal(CODE_BITS, name=f"syndrome{index}")
            m.d.comb += syndrome.eq(check_bits(word) ^ check)
            flips = Signal(WORD_BITS, name=f"flips{index}")
            m.d.comb += flips.eq(Cat(syndrome == column for column in COLUMNS))
            in_check = Cat(syndrome == 1 << j for j in range(CODE_BITS)).any()
            known = Signal(name=f"known{index}")
            m.d.comb += known.eq(flips.any() | in_check)
            words.append(word ^ flips)
            singles.append(known)
            doubles.append(syndrome.any() & ~known)
        m.d.comb += [
            self.double.eq(Cat(doubles).any()),
            self.single.eq(Cat(singles).any() & ~self.double),
            self.fixed.eq(Mux(self.double, 0, Cat(words))),
        ]
        return m
