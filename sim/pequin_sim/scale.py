"""How large a tile is beside the reference architecture: the statement every report makes."""

from __future__ import annotations

from dataclasses import dataclass

from pequin.config import TileParams

PACKAGE_BYTES_PER_S = 15.36e12
"""HBM bandwidth of the reference package (stated by its maker)."""

PACKAGE_MACS_PER_S = 6.7e15
"""MXFP4 multiply-accumulates of the reference package: half of the stated 13.4 PFLOP/s."""

PACKAGE_TILES = 384
"""HBM4 pseudo-channels of the reference package: 64 slices of 6; a tile has one."""


@dataclass(frozen=True)
class ScaleStatement:
    """A tile's size relative to 1/384 of the reference package.

    Parameters
    ----------
    hbm_gb_per_s
        The tile's bandwidth at its clock (GB/s).
    hbm_share
        That bandwidth over the reference's per pseudo-channel; 1.0 is full scale.
    macs_per_clock
        MXFP4 multiply-accumulates per clock.
    macs_per_byte, reference_macs_per_byte
        Multiply-accumulates per byte of HBM bandwidth, here and in the reference.
    mac_factor
        The reference's ratio over the tile's: by how much the MAC side is scaled down.
    """

    hbm_gb_per_s: float
    hbm_share: float
    macs_per_clock: int
    macs_per_byte: float
    reference_macs_per_byte: float
    mac_factor: float

    def sentence(self) -> str:
        """Return the statement for people."""
        reference_gb = PACKAGE_BYTES_PER_S / PACKAGE_TILES / 1e9
        return (
            f"memory: {self.hbm_gb_per_s:g} GB/s, {100 * self.hbm_share:.3g}% of a reference "
            f"pseudo-channel's {reference_gb:g} GB/s (1/{PACKAGE_TILES} of the package); "
            f"MACs: {self.macs_per_clock:,} per clock, {self.macs_per_byte:g} per HBM byte, "
            f"a factor {self.mac_factor:.1f} below the reference's "
            f"{self.reference_macs_per_byte:.0f}"
        )


def scale_statement(params: TileParams) -> ScaleStatement:
    """Return a tile's scale; computed from its parameters and the stated reference figures."""
    bytes_per_clock = params.hbm_bytes_per_ns / params.config.clock_ghz
    here = params.macs_per_clock / bytes_per_clock
    reference = PACKAGE_MACS_PER_S / PACKAGE_BYTES_PER_S
    return ScaleStatement(
        hbm_gb_per_s=params.hbm_bytes_per_ns,
        hbm_share=params.hbm_bytes_per_ns * 1e9 / (PACKAGE_BYTES_PER_S / PACKAGE_TILES),
        macs_per_clock=params.macs_per_clock,
        macs_per_byte=here,
        reference_macs_per_byte=reference,
        mac_factor=reference / here,
    )
