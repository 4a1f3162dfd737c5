"""The address map, from its description: where a beat address lies in the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where a beat lies: bank group, bank in the group, row, column."""

    group: int
    bank: int
    row: int
    column: int


@dataclass(frozen=True, kw_only=True)
class StreamMap:
    """The maps `stream-xor` and `stream-plain` (docs/hbm.md, "Address map").

    Parameters
    ----------
    banks, rows, columns
        The device's geometry.
    xor
        Whether rows are folded into the bank bits and rotate the pairs of groups.
    """

    banks: int = 48
    rows: int = 12288
    columns: int = 32
    xor: bool = True

    def place(self, beat: int) -> Place:
        """Return where a beat address lies."""
        within, chunk = beat % (2 * self.columns), beat // (2 * self.columns)
        stack, row = divmod(chunk // 8, self.rows)
        bank = chunk % 8
        if self.xor:
            fold = row
            while fold:
                bank ^= fold & 7
                fold >>= 3
            stack = (stack + row) % (self.banks // 16)
        return Place(2 * stack + within % 2, bank, row, within // 2)

    def bank_of(self, beat: int) -> int:
        """Return the bank number, group * 8 + bank."""
        place = self.place(beat)
        return place.group * 8 + place.bank

    def other_row(self, beat: int, limit: int) -> int:
        """Return the next beat address of the same bank and column in another row.

        Raises
        ------
        ValueError
            There is none below `limit`.
        """
        chunk = 2 * self.columns
        for other in range(beat + chunk, limit, chunk):
            if self.bank_of(other) == self.bank_of(beat):
                return other
        raise ValueError(f"no other row of that bank below beat {limit}")
