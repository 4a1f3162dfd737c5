"""Payloads and enumerations of the units that move beats."""

from amaranth.lib import data, enum

from pequin.config import TileParams
from pequin.errors import ConfigError

CHUNK_BEATS = 64
"""Beats of a read request, at most."""

FIFO_MEMORY = 15
"""Number of the weight FIFO in the detail of an SRAM fault; it is none of the host's memories."""

MEMORY_SHIFT = 28
"""Position of the memory's number in the detail of an SRAM fault; its address is below."""

COUNT_BITS = 33
"""Bits of a count of beats: 2**32 - 1 blocks and their scale beats exceed 32."""


class StreamCause(enum.Enum, shape=2):
    """What the stream engine did in a clock.

    BUSY: a beat went into the FIFO. HBM: beats are on their way. ROOM: the FIFO is too full for
    the next request. IDLE: there is no command, or the engine has stopped with a fault.
    """

    BUSY = 0
    HBM = 1
    ROOM = 2
    IDLE = 3


class DmaCause(enum.Enum, shape=3):
    """What the DMA unit did in a clock.

    BUSY: a payload beat from HBM or eight converted scales went on. SCALE: a scale beat was
    taken. HBM, KV: it waits for beats. OUTPUT: the vector unit has no room. IDLE: there is no
    command, or the unit has stopped with a fault.
    """

    BUSY = 0
    SCALE = 1
    HBM = 2
    KV = 3
    OUTPUT = 4
    IDLE = 5


def read_range() -> data.StructLayout:
    """Return a range of HBM to be read: `beats` beats from `address` on; at least one."""
    return data.StructLayout({"address": 32, "beats": COUNT_BITS})


def chunk_beats(params: TileParams) -> int:
    """Return the beats of a stream engine's request at most: a quarter of the FIFO or less."""
    return min(CHUNK_BEATS, params.config.fifo_beats // 4)


def check_power_of_two(name: str, value: int, low: int, high: int) -> None:
    """Raise `ConfigError` unless `value` is a power of two from `low` to `high`."""
    if value < 1 or value & (value - 1) or not low <= value <= high:
        raise ConfigError(f"{name} must be a power of two from {low} to {high}, not {value}")
