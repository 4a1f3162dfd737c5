"""FPGA families: how Yosys maps to them and what each of their cells costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pequin.errors import ConfigError


@dataclass(frozen=True)
class Cost:
    """What one cell of a netlist occupies.

    Parameters
    ----------
    lut
        Look-up tables, of the family's kind.
    kind
        What the tables are used for: `logic`, `carry` or `memory` (distributed RAM, shift
        registers).
    ff
        Flip-flops.
    dsp
        Multiplier blocks.
    bram
        Block RAMs; a half where the family's block can be split in two.
    mux
        Dedicated multiplexers behind the look-up tables, which cost no table.
    """

    lut: int = 0
    kind: str = "logic"
    ff: int = 0
    dsp: int = 0
    bram: float = 0
    mux: int = 0


FREE = Cost()
"""A constant driver, a buffer of a port, a name: nothing."""


@dataclass(frozen=True)
class Target:
    """One FPGA family.

    Parameters
    ----------
    name
        As on the command line.
    title
        What people call it.
    command
        Yosys's synthesis command; `{top}` is the top module.
    lut_name, dsp_name, bram_name
        What is counted, with its size.
    costs
        Cost of each cell type that the command may leave in a netlist.
    """

    name: str
    title: str
    command: str
    lut_name: str
    dsp_name: str
    bram_name: str
    costs: Mapping[str, Cost]


_ECP5 = Target(
    name="ecp5",
    title="Lattice ECP5",
    command="synth_ecp5 -top {top}",
    lut_name="LUT4",
    dsp_name="MULT18X18D (18 x 18 bit)",
    bram_name="DP16KD (18 Kbit)",
    costs={
        "LUT4": Cost(lut=1),
        "CCU2C": Cost(lut=2, kind="carry"),
        # Two slices hold the data, and the write port takes the tables of a third.
        "TRELLIS_DPR16X4": Cost(lut=6, kind="memory"),
        "PFUMX": Cost(mux=1),
        "L6MUX21": Cost(mux=1),
        "TRELLIS_FF": Cost(ff=1),
        "MULT18X18D": Cost(dsp=1),
        "DP16KD": Cost(bram=1),
        "PDPW16KD": Cost(bram=1),
        "VLO": FREE,
        "VHI": FREE,
    },
)

_XILINX = Target(
    name="xilinx-us+",
    title="Xilinx UltraScale+",
    # A component is not a chip: no pads, no clock buffers.
    command="synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {top}",
    lut_name="LUT6",
    dsp_name="DSP48E2 (27 x 18 bit)",
    bram_name="RAMB36E2 (36 Kbit)",
    costs={
        # Two small functions may share a LUT6 when they are placed; Yosys does not pair them.
        **{f"LUT{inputs}": Cost(lut=1) for inputs in range(1, 7)},
        "INV": Cost(lut=1),
        # A carry block adds to the tables in front of it, which are LUT cells of their own.
        "CARRY4": FREE,
        "CARRY8": FREE,
        **{f"MUXF{level}": Cost(mux=1) for level in (7, 8, 9)},
        **{name: Cost(ff=1) for name in ("FDRE", "FDSE", "FDCE", "FDPE")},
        "SRL16E": Cost(lut=1, kind="memory"),
        "SRLC32E": Cost(lut=1, kind="memory"),
        **{
            name: Cost(lut=tables, kind="memory")
            for name, tables in {
                "RAM32X1S": 1,
                "RAM64X1S": 1,
                "RAM128X1S": 2,
                "RAM256X1S": 4,
                "RAM512X1S": 8,
                "RAM32X1D": 2,
                "RAM64X1D": 2,
                "RAM128X1D": 4,
                "RAM256X1D": 8,
                "RAM32M": 4,
                "RAM64M": 4,
                "RAM32M16": 8,
                "RAM64M8": 8,
            }.items()
        },
        "DSP48E2": Cost(dsp=1),
        "RAMB18E2": Cost(bram=0.5),
        "RAMB36E2": Cost(bram=1),
        "GND": FREE,
        "VCC": FREE,
    },
)

TARGETS: dict[str, Target] = {target.name: target for target in (_ECP5, _XILINX)}
"""The families by name; the first is the default."""


def find_target(name: str) -> Target:
    """Return the family called `name`.

    Raises
    ------
    ConfigError
        There is none; the message lists the known ones.
    """
    if name not in TARGETS:
        raise ConfigError(f"target {name!r} is unknown; choose one of {', '.join(TARGETS)}")
    return TARGETS[name]
