"""From Yosys's statistics to the resources people compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pequin.errors import ToolError
from pequin_sim.synth.targets import Target

_NOT_CELLS = ("$scopeinfo",)
"""What Yosys keeps in a netlist for names' sake."""


@dataclass(frozen=True)
class Resources:
    """What a netlist occupies on its family.

    Parameters
    ----------
    lut
        Look-up tables: logic, carry chains and distributed RAM together.
    lut_carry, lut_memory
        Those of `lut` that are in carry chains, and in distributed RAM and shift registers.
    ff
        Flip-flops.
    dsp
        Multiplier blocks.
    bram
        Block RAMs.
    mux
        Dedicated multiplexers behind the look-up tables; not in `lut`.
    """

    lut: int
    lut_carry: int
    lut_memory: int
    ff: int
    dsp: int
    bram: float
    mux: int


def count_resources(cells: Mapping[str, int], target: Target) -> Resources:
    """Add up a netlist's cells.

    Parameters
    ----------
    cells
        Number of cells of each type.
    target
        The family they belong to.

    Raises
    ------
    ToolError
        A cell type has no known cost: the sums would be wrong.
    """
    unknown = sorted(name for name in cells if name not in target.costs and name not in _NOT_CELLS)
    if unknown:
        raise ToolError(
            f"the netlist for {target.title} has cells of unknown cost: {', '.join(unknown)}; "
            f"this Yosys maps differently from the versions that are supported"
        )
    used = [(target.costs[name], count) for name, count in cells.items() if name in target.costs]
    bram = sum(cost.bram * count for cost, count in used)
    return Resources(
        lut=sum(cost.lut * count for cost, count in used),
        lut_carry=sum(cost.lut * count for cost, count in used if cost.kind == "carry"),
        lut_memory=sum(cost.lut * count for cost, count in used if cost.kind == "memory"),
        ff=sum(cost.ff * count for cost, count in used),
        dsp=sum(cost.dsp * count for cost, count in used),
        bram=int(bram) if bram == int(bram) else bram,
        mux=sum(cost.mux * count for cost, count in used),
    )
