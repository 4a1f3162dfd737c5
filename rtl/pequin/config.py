"""The tile's configuration: what a user chooses, and what follows from it.

`TileConfig` is what a user states, by preset name or field by field. `TileParams` holds every
width that follows, computed once. Components get only the numbers they need.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pequin.errors import ConfigError

BEAT_BYTES = 32
"""Bytes of one beat: an HBM4 pseudo-channel's BL8 burst of 32-bit words (JESD270-4)."""

BLOCK = 32
"""Elements that share one E8M0 scale (OCP Microscaling Formats v1.0)."""

TERM_BITS = 48
"""Width of an aligned block sum, and of a result before conversion to fp32 (bits)."""

LSB_EXPONENT = -24
"""The accumulator's least significant bit is 2**LSB_EXPONENT."""

MEMORIES = ("hbm", "block-ram")
"""What may stand behind the HBM request interface."""

MAX_BLOCK_RAM_BYTES = 1 << 25
"""Largest `store_bytes` of block RAM."""

MAX_PLANES = 2
"""MXFP4 planes that a matrix may be stored in."""


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class TileConfig:
    """What a user chooses about a tile.

    Parameters
    ----------
    name
        Label for reports.
    clock_ghz
        Tile clock (GHz). 1.25 GHz makes one beat per clock equal one HBM4 pseudo-channel at
        10 Gb/s per pin.
    columns
        Places for activation vectors in the MAC array; even, because pairing joins two.
    max_k
        Largest K of a matrix (elements); a multiple of 32. Sets the guard bits.
    act_blocks
        Depth of the activation buffer (blocks of 32 elements per column).
    drain_lanes
        Fixed-point to fp32 converters that drain results; a power of two that divides
        `columns`.
    top_k
        Entries of each vector's running top-k register; 1 keeps the arg-max only.
    index_bits
        Width of a row index (bits); 18 covers a vocabulary of 262,144.
    lane_pack
        Bit distance of the two rows that share a multiplier: 13 for 18 x 18 bit multipliers
        (ECP5), 18 or more for wider ones (27 x 18) and for simulation.
    lanes
        fp32 lanes of the vector unit; a power of two up to 32, at least `drain_lanes`.
    vector_elements
        Size of the vector memory (fp32 elements); a power of two.
    scalars
        Scalar registers of the vector unit; a power of two.
    fifo_beats
        Depth of the weight FIFO (beats); a power of two.
    kv_beats
        Size of the KV buffer (beats); a power of two.
    program_words
        Size of the program memory (instructions of 64 bits); a power of two.
    queue_items
        Register writes and launches that wait in front of each unit; a power of two.
    memory
        Behind the HBM request interface: `hbm`, the channel with the timing of HBM4; `block-ram`,
        on-chip memory of an FPGA, without refresh and ECC. Results are the same bits.
    store_bytes
        Size of that memory, or of the channel's backing store (bytes).
    host_bytes_per_clock
        Rate of the host link in each direction (bytes per clock): 8 on package; 1.25 is the
        package link's share of one tile.
    pipelined
        Registers after the multipliers and inside the adder trees, for an FPGA's clock. False
        keeps the shorter pipeline, which simulates faster. The results are the same bits.
    """

    name: str = "custom"
    clock_ghz: float = 1.25
    columns: int = 16
    max_k: int = 8192
    act_blocks: int = 256
    drain_lanes: int = 8
    top_k: int = 8
    index_bits: int = 18
    lane_pack: int = 18
    lanes: int = 16
    vector_elements: int = 1 << 18
    scalars: int = 256
    fifo_beats: int = 2048
    kv_beats: int = 1 << 15
    program_words: int = 1 << 12
    queue_items: int = 32
    memory: str = "hbm"
    store_bytes: int = 1 << 26
    host_bytes_per_clock: float = 8.0
    pipelined: bool = False

    @classmethod
    def preset(cls, name: str) -> TileConfig:
        """Return a named preset.

        Raises
        ------
        ConfigError
            The name is unknown; the message lists the known ones.
        """
        if name not in PRESETS:
            raise ConfigError(f"preset {name!r} is unknown; choose one of {', '.join(PRESETS)}")
        return cls(name=name, **PRESETS[name])

    def replace(self, **changes: Any) -> TileConfig:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)


PRESETS: dict[str, dict[str, Any]] = {
    "ref": {},
    "wide": {"columns": 64, "drain_lanes": 16, "lanes": 32},
    "fpga": {
        "columns": 2,
        "drain_lanes": 1,
        "top_k": 4,
        "lane_pack": 13,
        "lanes": 2,
        "vector_elements": 1 << 12,
        "scalars": 32,
        "fifo_beats": 64,
        "kv_beats": 1 << 9,
        "program_words": 1 << 10,
        "queue_items": 16,
        "memory": "block-ram",
        "store_bytes": 1 << 17,
        "pipelined": True,
        "clock_ghz": 0.08,
    },
    "tiny": {
        "columns": 2,
        "max_k": 256,
        "act_blocks": 8,
        "drain_lanes": 1,
        "lanes": 1,
        "vector_elements": 1 << 10,
        "scalars": 16,
        "fifo_beats": 32,
        "kv_beats": 1 << 9,
        "program_words": 1 << 10,
        "queue_items": 8,
        "store_bytes": 1 << 20,
        "top_k": 1,
        "index_bits": 8,
    },
}
"""Named presets: what differs from `TileConfig`'s defaults, which are `ref`."""


@dataclass(frozen=True)
class TileParams:
    """Every number that follows from a `TileConfig`, checked against each other.

    Raises
    ------
    ConfigError
        A field breaks a rule; the message names the field, the rule and the numbers.
    """

    config: TileConfig

    def __post_init__(self) -> None:
        """Check the configuration."""
        c = self.config
        _check(
            c.columns >= 2 and c.columns % 2 == 0,
            f"columns must be even and at least 2 (pairing joins two columns), not {c.columns}",
        )
        _check(
            c.max_k >= BLOCK and c.max_k % BLOCK == 0,
            f"max_k must be a positive multiple of the block size {BLOCK}, not {c.max_k}",
        )
        _check(
            c.act_blocks >= c.max_k // BLOCK,
            f"act_blocks must hold a vector of max_k elements: at least max_k / {BLOCK} = "
            f"{c.max_k // BLOCK}, not {c.act_blocks}",
        )
        _check(
            _power_of_two(c.drain_lanes) and c.columns % c.drain_lanes == 0,
            f"drain_lanes must be a power of two that divides columns = {c.columns}, "
            f"not {c.drain_lanes}",
        )
        _check(1 <= c.top_k <= 8, f"top_k must be 1 to 8, not {c.top_k}")
        _check(1 <= c.index_bits <= 32, f"index_bits must be 1 to 32, not {c.index_bits}")
        _check(
            _power_of_two(c.lanes) and c.drain_lanes <= c.lanes <= BLOCK,
            f"lanes must be a power of two from drain_lanes = {c.drain_lanes} to {BLOCK}, not "
            f"{c.lanes}",
        )
        _check(
            _power_of_two(c.vector_elements) and 1 << 8 <= c.vector_elements <= 1 << 22,
            f"vector_elements must be a power of two from 256 to {1 << 22}, not "
            f"{c.vector_elements}",
        )
        _check(
            _power_of_two(c.scalars) and 4 <= c.scalars <= 1 << 12,
            f"scalars must be a power of two from 4 to {1 << 12}, not {c.scalars}",
        )
        for name, low, high in (
            ("fifo_beats", 16, 1 << 16),
            ("kv_beats", 128, 1 << 20),
            ("program_words", 16, 1 << 16),
            ("queue_items", 4, 1 << 10),
        ):
            value = getattr(c, name)
            _check(
                _power_of_two(value) and low <= value <= high,
                f"{name} must be a power of two from {low} to {high}, not {value}",
            )
        _check(c.memory in MEMORIES, f"memory must be {' or '.join(MEMORIES)}, not {c.memory!r}")
        _check(
            c.memory == "hbm"
            or (_power_of_two(c.store_bytes) and 1 << 10 <= c.store_bytes <= MAX_BLOCK_RAM_BYTES),
            f"store_bytes of block-ram must be a power of two from 1024 to {MAX_BLOCK_RAM_BYTES}, "
            f"not {c.store_bytes}",
        )
        _check(
            0 < c.host_bytes_per_clock <= BEAT_BYTES,
            f"host_bytes_per_clock must be above 0 and at most {BEAT_BYTES}, not "
            f"{c.host_bytes_per_clock}",
        )
        _check(
            13 <= c.lane_pack <= 24,
            f"lane_pack must be 13 (8 + 5 product bits) to 24, not {c.lane_pack}",
        )
        _check(c.clock_ghz > 0, f"clock_ghz must be positive, not {c.clock_ghz}")

    @property
    def max_blocks(self) -> int:
        """Blocks of one column in a row of `max_k` elements (one plane)."""
        return self.config.max_k // BLOCK

    @property
    def pack(self) -> int:
        """Bit distance of the two rows that share a multiplier."""
        return self.config.lane_pack

    @property
    def guard_bits(self) -> int:
        """Bits above a term that hold the sum of all blocks of the largest row, both planes."""
        return (self.max_blocks * MAX_PLANES - 1).bit_length()

    @property
    def acc_bits(self) -> int:
        """Width of an accumulator (bits); it cannot overflow."""
        return TERM_BITS + self.guard_bits

    @property
    def macs_per_clock(self) -> int:
        """MXFP4 multiply-accumulates per clock: a beat of 2 x 32 elements times all columns."""
        return 2 * BLOCK * self.config.columns

    @property
    def hbm_bytes_per_ns(self) -> float:
        """Bandwidth of one beat per clock (bytes per ns, which is GB/s)."""
        return BEAT_BYTES * self.config.clock_ghz
