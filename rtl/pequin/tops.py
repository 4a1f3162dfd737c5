"""The components that the command line knows by name.

A component's module is imported when it is built, so that listing the names costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from amaranth.lib import wiring

from pequin.config import TileParams
from pequin.errors import ConfigError


def _mac_array(params: TileParams) -> wiring.Component:
    from pequin.mac.array import MacArray

    return MacArray.from_params(params)


def _hbm_channel(params: TileParams) -> wiring.Component:
    from pequin.hbm.channel import HbmChannel
    from pequin.hbm.config import HbmConfig

    return HbmChannel(HbmConfig.for_tile(params.config))


def _hbm_controller(params: TileParams) -> wiring.Component:
    from pequin.hbm.config import HbmConfig
    from pequin.hbm.controller import HbmController

    return HbmController(HbmConfig.for_tile(params.config))


def _hbm_bram(params: TileParams) -> wiring.Component:
    from pequin.hbm.bram import BramChannel
    from pequin.hbm.config import HbmConfig

    return BramChannel(requesters=HbmConfig.for_tile(params.config).requesters, beats=4096)


def _vector_unit(params: TileParams) -> wiring.Component:
    from pequin.vector import VectorUnit

    return VectorUnit(params)


def _stream_engine(params: TileParams) -> wiring.Component:
    from pequin.move.stream_engine import StreamEngine

    return StreamEngine(params)


def _weight_fifo(params: TileParams) -> wiring.Component:
    from pequin.move.weight_fifo import WeightFifo

    return WeightFifo(params)


def _dma_unit(params: TileParams) -> wiring.Component:
    from pequin.move.dma import DmaUnit

    return DmaUnit(params)


def _kv_buffer(params: TileParams) -> wiring.Component:
    from pequin.kv.buffer import KvBuffer

    return KvBuffer(params)


def _sequencer(params: TileParams) -> wiring.Component:
    from pequin.control.sequencer import Sequencer

    return Sequencer(params)


def _command_queue(params: TileParams) -> wiring.Component:
    from pequin.control.command_queue import CommandQueue
    from pequin.tile.types import UnitId

    return CommandQueue(UnitId.MAC, params)


def _semaphores(params: TileParams) -> wiring.Component:
    from pequin.control.semaphores import Semaphores

    return Semaphores()


def _program_memory(params: TileParams) -> wiring.Component:
    from pequin.control.program import ProgramMemory

    return ProgramMemory(params)


def _host_port(params: TileParams) -> wiring.Component:
    from pequin.host import HostPort

    return HostPort(params)


def _tile(params: TileParams) -> wiring.Component:
    from pequin.tile.tile import Tile

    return Tile(params)


def _tile_core(params: TileParams) -> wiring.Component:
    from pequin.tile.core import TileCore

    return TileCore(params)


def _fp32(name: str) -> Callable[[TileParams], wiring.Component]:
    def build(params: TileParams) -> wiring.Component:
        import pequin.fp32

        component = getattr(pequin.fp32, name)()
        assert isinstance(component, wiring.Component)
        return component

    return build


TOPS: dict[str, Callable[[TileParams], wiring.Component]] = {
    "mac-array": _mac_array,
    "tile": _tile,
    "tile-core": _tile_core,
    "hbm-channel": _hbm_channel,
    "hbm-controller": _hbm_controller,
    "hbm-bram": _hbm_bram,
    "vector-unit": _vector_unit,
    "host-port": _host_port,
    "stream-engine": _stream_engine,
    "weight-fifo": _weight_fifo,
    "dma-unit": _dma_unit,
    "kv-buffer": _kv_buffer,
    "sequencer": _sequencer,
    "program-memory": _program_memory,
    "command-queue": _command_queue,
    "semaphores": _semaphores,
    "fp32-add": _fp32("FloatAdd"),
    "fp32-mul": _fp32("FloatMul"),
    "fp32-max": _fp32("FloatMax"),
    "fp32-compare": _fp32("FloatCompare"),
    "fp32-from-int": _fp32("IntToFloat"),
    "fp32-to-int": _fp32("FloatToInt"),
    "fp32-special": _fp32("SpecialFunctions"),
}
"""From a name to what builds that component with a tile's parameters."""


def build_top(top: str, params: TileParams) -> wiring.Component:
    """Return the component called `top`.

    Raises
    ------
    ConfigError
        The name is unknown; the message lists the known ones.
    """
    if top not in TOPS:
        raise ConfigError(f"top {top!r} is unknown; choose one of {', '.join(TOPS)}")
    return TOPS[top](params)


def module_name(top: str) -> str:
    """Return the Verilog name of a top: `mac-array` becomes `mac_array`."""
    return top.replace("-", "_")
