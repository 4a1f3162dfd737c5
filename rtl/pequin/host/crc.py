"""CRC-32C (Castagnoli) of up to eight bytes per clock."""

from __future__ import annotations

from functools import reduce
from operator import xor
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

POLYNOMIAL = 0x82F63B78
"""The polynomial 0x1EDC6F41 with its bits reversed: bytes come least significant bit first."""

INIT = 0xFFFFFFFF
"""The register before the first byte."""

RESIDUE = 0xB798B438
"""The register after a message and its checksum."""


def _contributions(bits: int) -> list[int]:
    """Return what each of the last `bits` message bits, earliest first, adds to the register."""
    state, found = POLYNOMIAL, []
    for _ in range(bits):
        found.append(state)
        state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
    return found[::-1]


class Crc32c(wiring.Component):
    """Checksum of a message that comes in words of one to eight bytes.

    *Timing*: `crc` and `good` are those of the words up to the last clock. A word with `first`
    begins a new message, whatever came before.

    Members
    -------
    enable : In(1)
        A word comes.
    first : In(1)
        It is the first one.
    data : In(64)
        Its bytes, the first one in bits [7:0].
    count : In(4)
        Bytes, 1 to 8.
    crc : Out(32)
        Checksum; sent least significant byte first.
    good : Out(1)
        The message so far ends with its own checksum.
    """

    enable: Any
    first: Any
    data: Any
    count: Any
    crc: Any
    good: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "enable": In(1),
                "first": In(1),
                "data": In(64),
                "count": In(4),
                "crc": Out(32),
                "good": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        state, before = Signal(32, init=INIT), Signal(32)
        m.d.comb += [
            before.eq(Mux(self.first, INIT, state)),
            self.crc.eq(~state),
            self.good.eq(state == RESIDUE),
        ]
        # Zero bytes before a message do not count while the register is zero. So the register is
        # added to the first four bytes, and a short word is moved to the end of eight zero bytes:
        # one network serves all counts. A word below four bytes leaves a rest of the register.
        mixed, moved, rest = Signal(64), Signal(64), Signal(32)
        mask = Signal(64)
        with m.Switch(self.count):
            for count in range(1, 9):
                with m.Case(count):
                    m.d.comb += [
                        mask.eq((1 << 8 * count) - 1),
                        moved.eq(mixed << (64 - 8 * count)),
                        rest.eq(before >> 8 * count),
                    ]
        m.d.comb += mixed.eq((self.data ^ before) & mask)
        with m.If(self.enable):
            m.d.sync += state.eq(self._network(moved) ^ rest)
        return m

    @staticmethod
    def _network(word: Value) -> Value:
        columns = _contributions(64)
        bits = []
        for row in range(32):
            taken = [word[i] for i in range(64) if columns[i] >> row & 1]
            bits.append(reduce(xor, taken, Const(0, 1)))
        return Cat(bits)
