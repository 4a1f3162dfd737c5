"""Address maps: beat address to bank pair, row and column, and back.

A chunk is the same row of both banks of a pair (the same bank of two bank groups). From the least
significant bit on, both maps take one bank-group bit and all column bits (together the place in
the chunk), three bank bits, then the row; what is left over picks the pair of bank groups. A
stream so alternates between two bank groups (column spacing tCCD_S), stays 2 x 32 beats in two
open rows, and comes back to a bank after all others, which leaves time to refresh it.

`stream-plain` stops there. `stream-xor` also folds the row into the bank bits and rotates the
pairs of groups with the row, so that streams at power-of-two distances meet in different banks and
a store smaller than the device still uses all of them.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from pequin.hbm.config import HbmConfig

MOD3 = sum((((a + b) % 3) << (2 * (a | b << 2))) for a in range(4) for b in range(4))
"""Table of (a + b) mod 3 for two 2-bit digits, two bits an entry."""


def mod3(value: Value) -> Value:
    """Return an unsigned value modulo 3, from a tree of two-digit tables."""
    digits: list[Value] = [value[i : i + 2] for i in range(0, len(value), 2)]
    digits = [digit if len(digit) == 2 else Cat(digit, Const(0, 1)) for digit in digits]
    if len(digits) == 1:
        digits.append(Const(0, 2))
    while len(digits) > 1:
        joined = [_add3(a, b) for a, b in zip(digits[::2], digits[1::2], strict=False)]
        digits = joined + digits[len(joined) * 2 :]
    return digits[0]


def _add3(a: Value, b: Value) -> Value:
    return Const(MOD3, 32).word_select(Cat(a, b), 2)


class AddressMap:
    """The arithmetic of one named map for one geometry; its methods return expressions.

    Parameters
    ----------
    config
        The channel's configuration.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._geometry = config.geometry
        self._xor = config.address_map == "stream-xor"
        self._tag_bits = config.tag_bits
        self._row_bits = config.row_bits

    def row(self, tag: Value) -> Value:
        """Return the row of a chunk number."""
        block = tag[3:] if self._tag_bits > 3 else Const(0, 1)
        rows, row = self._geometry.rows, block
        for stack in range(1, self._geometry.stacks):
            if (1 << self._tag_bits) > 8 * rows * stack:
                row = Mux(block >= rows * stack, (block - rows * stack)[: self._row_bits], row)
        return row[: self._row_bits]

    def stack(self, tag: Value) -> Value:
        """Return the pair of bank groups (0 to stacks - 1) of a chunk number."""
        block = tag[3:] if self._tag_bits > 3 else Const(0, 1)
        stack: Any = Const(0, 2)
        for index in range(1, self._geometry.stacks):
            if (1 << self._tag_bits) > 8 * self._geometry.rows * index:
                stack = Mux(block >= self._geometry.rows * index, Const(index, 2), stack)
        if not self._xor or self._geometry.stacks == 1:
            return Value.cast(stack)
        if self._geometry.stacks == 2:
            return Cat(stack[0] ^ self.row(tag)[0], Const(0, 1))
        return _add3(stack, mod3(self.row(tag)))

    def bank(self, tag: Value) -> Value:
        """Return the bank within its group of a chunk number."""
        return self._hash(tag[:3], self.row(tag))

    def pair(self, tag: Value) -> Value:
        """Return the pair number of a chunk number: 8 * stack + bank."""
        return Cat(self.bank(tag), self.stack(tag))

    def chunk(self, stack: Value, bank: Value, row: Value) -> Value:
        """Return the chunk number of a row of a pair: the inverse map."""
        offset: Any = stack
        if self._xor and self._geometry.stacks == 2:
            offset = stack[0] ^ row[0]
        elif self._xor and self._geometry.stacks == 3:
            part = mod3(row)
            offset = _add3(stack, Cat(part[1], part[0]))  # -1 = 2 and -2 = 1 modulo 3
        rows, block = self._geometry.rows, row
        for index in range(1, self._geometry.stacks):
            block = Mux(offset == index, row + rows * index, block)
        return Cat(self._hash(bank, row), block)[: self._tag_bits]

    def _hash(self, bank: Value, row: Value) -> Value:
        if not self._xor:
            return bank
        folded: Value = bank
        for low in range(0, len(row), 3):
            folded = folded ^ row[low : low + 3]
        return folded[:3]


def split_beat(m: Module, beat: Value, name: str) -> tuple[Signal, Signal]:
    """Return a beat's bank-group bit and its column, as named signals."""
    group = Signal(name=f"{name}_group")
    column = Signal(6, name=f"{name}_column")
    m.d.comb += [group.eq(beat[0]), column.eq(beat[1:])]
    return group, column
