"""The tile's HBM channel: its configuration, and a port of it with random pauses."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, Value

from pequin.config import TileParams
from pequin.harness.pauses import Pauser
from pequin.hbm.config import HbmConfig
from pequin.hbm.timing import HbmGeometry


def tile_hbm(params: TileParams) -> HbmConfig:
    """Return the HBM channel of a tile: ports for the stream engine, the DMA unit, the host."""
    c = params.config
    geometry = HbmGeometry(store_bytes=c.store_bytes)
    return HbmConfig.for_tile(c).replace(requesters=3, geometry=geometry)


def connect_with_pauses(
    m: Module, name: str, unit: Any, channel: Any, *, control: Any, start: Value
) -> None:
    """Join a unit with a port of the channel, with random pauses of the beats read.

    Parameters
    ----------
    m
        Module that receives the connection.
    name
        The unit's name, for the submodule.
    unit, channel
        `HbmPort` interfaces of both.
    control
        A `PauseControl`.
    start
        Load the seed of the pauses; the first clock after reset does so as well.
    """
    m.submodules[f"{name}_pauser"] = pauser = Pauser()
    started = Signal(name=f"{name}_started")
    m.d.sync += started.eq(1)
    m.d.comb += [
        pauser.control.eq(control),
        pauser.start.eq(~started | start),
        pauser.draw.eq(1),
        channel.request.payload.eq(unit.request.payload),
        channel.request.valid.eq(unit.request.valid),
        unit.request.ready.eq(channel.request.ready),
        channel.write_data.payload.eq(unit.write_data.payload),
        channel.write_data.valid.eq(unit.write_data.valid),
        unit.write_data.ready.eq(channel.write_data.ready),
        unit.read_data.payload.eq(channel.read_data.payload),
        unit.read_data.valid.eq(channel.read_data.valid & ~pauser.pause),
        channel.read_data.ready.eq(unit.read_data.ready & ~pauser.pause),
        unit.write_ack.payload.eq(channel.write_ack.payload),
        unit.write_ack.valid.eq(channel.write_ack.valid),
        channel.write_ack.ready.eq(unit.write_ack.ready),
    ]
