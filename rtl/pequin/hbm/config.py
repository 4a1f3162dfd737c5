"""What a user chooses about an HBM channel."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from pequin.config import TileConfig
from pequin.errors import ConfigError
from pequin.hbm.timing import HbmGeometry, HbmTiming

ADDRESS_MAPS = ("stream-xor", "stream-plain")
"""Named address maps; see `pequin.hbm.address`."""


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@dataclass(frozen=True, kw_only=True)
class HbmConfig:
    """Configuration of an `HbmChannel`.

    Parameters
    ----------
    timing, geometry
        The device.
    requesters
        Request ports.
    address_map
        `stream-xor` or `stream-plain`.
    read_window, write_window
        Entries (runs of beats in one chunk) that the scheduler looks at for each direction.
    write_beats
        Write queue (beats, a power of two); it is drained when it is full.
    return_beats
        Return buffer of each requester (beats, a power of two).
    postpone
        All-bank refreshes collected and issued together (1 to 8).
    path_ns
        Extra fixed latency of the data path, PHY and wires (ns); rounded up to tile clocks.
    test_rules
        Test only: an input that shortens one timing of the controller, to prove that a timing
        monitor catches it.

    Raises
    ------
    ConfigError
        A field breaks a rule.
    """

    timing: HbmTiming = field(default_factory=HbmTiming)
    geometry: HbmGeometry = field(default_factory=HbmGeometry)
    requesters: int = 3
    address_map: str = "stream-xor"
    read_window: int = 24
    write_window: int = 8
    write_beats: int = 64
    return_beats: int = 128
    postpone: int = 1
    path_ns: float = 0.0
    test_rules: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        _check(1 <= self.requesters <= 4, f"requesters must be 1 to 4, not {self.requesters}")
        _check(
            self.address_map in ADDRESS_MAPS,
            f"address_map must be one of {', '.join(ADDRESS_MAPS)}, not {self.address_map!r}",
        )
        _check(
            self.requesters + 1 <= self.read_window <= 64,
            f"read_window must be requesters + 1 = {self.requesters + 1} to 64 entries, "
            f"not {self.read_window}",
        )
        _check(
            2 <= self.write_window <= 64, f"write_window must be 2 to 64, not {self.write_window}"
        )
        for name in ("write_beats", "return_beats"):
            value = getattr(self, name)
            _check(
                16 <= value <= 512 and value & (value - 1) == 0,
                f"{name} must be a power of two between 16 and 512 beats, not {value}",
            )
        _check(1 <= self.postpone <= 8, f"postpone must be 1 to 8 refreshes, not {self.postpone}")
        _check(self.path_ns >= 0, f"path_ns must not be negative, not {self.path_ns}")

    @classmethod
    def for_tile(cls, tile: TileConfig) -> HbmConfig:
        """Return the channel of a tile: small windows and buffers for tiles of one or two columns.

        The small ones fit an FPGA beside the array and keep the streaming bandwidth; random
        accesses lose some.
        """
        if tile.columns > 2:
            return cls()
        return cls(requesters=2, read_window=6, write_window=3, write_beats=32, return_beats=128)

    def replace(self, **changes: Any) -> HbmConfig:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @property
    def path_clocks(self) -> int:
        """Extra latency of the read path (tile clocks)."""
        return math.ceil(round(self.path_ns * self.timing.clock_ghz, 6))

    @property
    def beat_bits(self) -> int:
        """Bits of a beat's place in its chunk."""
        return (self.geometry.chunk_beats - 1).bit_length()

    @property
    def tag_bits(self) -> int:
        """Bits of a chunk number inside the store."""
        return max(1, (self.geometry.store_beats // self.geometry.chunk_beats - 1).bit_length())

    @property
    def pair_bits(self) -> int:
        """Bits of a pair number."""
        return (self.geometry.pairs - 1).bit_length()

    @property
    def row_bits(self) -> int:
        """Bits of a row number."""
        return (self.geometry.rows - 1).bit_length()

    @property
    def seq_bits(self) -> int:
        """Bits of a read beat's number: a full return buffer and a chunk stay unambiguous."""
        return (self.return_beats + self.geometry.chunk_beats - 1).bit_length()
