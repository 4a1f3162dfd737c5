"""Payloads between the parts of the DMA unit."""

from amaranth.lib import data, enum

from pequin.config import TileParams
from pequin.tile.types import ErrorCode
from pequin.vector.types import address_bits


class DmaKind(enum.Enum, shape=2):
    """What a command moves."""

    ROWS = 0
    """Beats of 8 fp32 from HBM to vector memory."""
    BLOCKS = 1
    """MXINT8 blocks from HBM to the drain queue."""
    SCALES = 2
    """V scales of the KV buffer, as powers of two, to vector memory."""


def dma_work(params: TileParams) -> data.StructLayout:
    """Return a command as the output side sees it.

    error, detail
        Not `ErrorCode.NONE`: nothing is moved; the fault to be told in the command's turn.
        Otherwise `detail` is the address of the first beat.
    kind : DmaKind
    source, step
        Address of the first beat, and the distance of the next one.
    target
        Element address in vector memory.
    count
        Beats, blocks, or granules.
    """
    return data.StructLayout(
        {
            "error": ErrorCode,
            "detail": 32,
            "kind": DmaKind,
            "source": 32,
            "step": 32,
            "target": address_bits(params),
            "count": 32,
        }
    )


def kv_range() -> data.StructLayout:
    """Return the beats that are read from the KV buffer: `count` from `address` on, by `step`."""
    return data.StructLayout({"address": 32, "step": 32, "count": 32})
