"""What stands behind the HBM request interface of a tile."""

from __future__ import annotations

from typing import Any

from pequin.config import TileParams
from pequin.hbm.block_ram import BlockRamChannel
from pequin.hbm.channel import HbmChannel
from pequin.tile.hbm_ports import tile_hbm


def tile_memory(params: TileParams) -> Any:
    """Return the memory that the configuration asks for; the ports are those of `tile_hbm`."""
    config = tile_hbm(params)
    if params.config.memory == "block-ram":
        return BlockRamChannel(
            requesters=config.requesters, store_bytes=config.geometry.store_bytes
        )
    return HbmChannel(config)
