"""The whole tile: core and host port."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.harness.pauses import PauseControl
from pequin.host.port import HostPort
from pequin.host.types import LinkWord
from pequin.streams import connect_streams
from pequin.tile.core import STATE_BITS, TileCore


class Tile(wiring.Component):
    """A compute-slice tile: `TileCore` behind a `HostPort` that speaks docs/protocol.md.

    Parameters
    ----------
    params
        The tile's parameters.
    hbm_pauses
        Test only, as `TileCore`.

    Members
    -------
    rx : In(stream of LinkWord), tx : Out(stream of LinkWord)
        Packets from and to the host.
    state, flip_hbm, flip_kv, flip_fifo, flip_program, hbm_pauses
        As `TileCore`.
    """

    rx: Any
    tx: Any
    state: Any

    def __init__(self, params: TileParams, *, hbm_pauses: bool = False) -> None:
        self._params, self._pauses = params, hbm_pauses
        super().__init__(
            {
                "rx": In(stream.Signature(LinkWord)),
                "tx": Out(stream.Signature(LinkWord)),
                "state": Out(STATE_BITS),
                **{name: In(2) for name in TileCore.flips},
                **({"hbm_pauses": In(PauseControl)} if hbm_pauses else {}),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    @property
    def controls(self) -> tuple[str, ...]:
        """Ports that are no streams and that a testbench drives."""
        return (*TileCore.flips, *(("hbm_pauses",) if self._pauses else ()))

    def elaborate(self, platform: object) -> Module:
        """Join core and host port."""
        m = Module()
        m.submodules.core = core = TileCore(self._params, hbm_pauses=self._pauses)
        m.submodules.host = host = HostPort(self._params)
        connect_streams(m, wiring.flipped(self.rx), host.rx)
        connect_streams(m, host.tx, wiring.flipped(self.tx))
        connect_streams(m, host.accesses, core.accesses)
        connect_streams(m, core.answers, host.answers)
        connect_streams(m, host.steps, core.steps)
        connect_streams(m, host.control, core.control)
        connect_streams(m, core.events, host.events)
        m.d.comb += [
            host.stopping.eq(core.state[1]),
            core.host_cause.eq(host.cause),
            self.state.eq(core.state),
        ]
        m.d.comb += [getattr(core, name).eq(getattr(self, name)) for name in self.controls]
        return m
