"""The exact running sum of a row's terms."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TERM_BITS, TileParams
from pequin.mac.types import PartialSum


class Accumulator(wiring.Component):
    """Add terms; keep their errors and the count of blocks that rounded to zero.

    Guard bits make an overflow impossible, so the order of the terms does not matter.

    Timing: `total` includes a term one clock after it.

    Parameters
    ----------
    params
        Sizes: `acc_bits`, `guard_bits`.

    Members
    -------
    term : In(signed(48))
    nan, clamped, zeroed : In(1)
        As from `Aligner`.
    first : In(1)
        Start a new sum with this term.
    total : Out(PartialSum(params))
    """

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "term": In(signed(TERM_BITS)),
                "nan": In(1),
                "clamped": In(1),
                "zeroed": In(1),
                "first": In(1),
                "total": Out(PartialSum(params)),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        held = {
            name: Signal(member.shape, name=f"held_{name}", reset_less=True)
            for name, member in PartialSum(self._params).members.items()
        }
        before = {name: Mux(self.first, 0, signal) for name, signal in held.items()}
        m.d.sync += [
            held["sum"].eq(before["sum"] + self.term),
            held["nan"].eq(before["nan"] | self.nan),
            held["term_clamped"].eq(before["term_clamped"] | self.clamped),
            held["zeros"].eq(before["zeros"] + self.zeroed),
        ]
        m.d.comb += [getattr(self.total, name).eq(signal) for name, signal in held.items()]
        return m
