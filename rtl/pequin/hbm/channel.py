"""The HBM channel: controller and device of one pseudo-channel."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.config import HbmConfig
from pequin.hbm.controller import EccEvent, HbmController
from pequin.hbm.counters import CAUSES, COUNTER_BITS, EVENTS
from pequin.hbm.device import HbmDevice
from pequin.hbm.types import BEAT_BITS, CHECK_BITS, ColCommand, HbmPort, RefreshMode, RowCommand


class HbmChannel(wiring.Component):
    """Memory behind one HBM pseudo-channel: `HbmController` joined to `HbmDevice`.

    *Timing*, *arbitration*: as `HbmController`.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    port, refresh, ecc_event, ecc_event_valid, causes, events, refresh_late, broken_rule, clear,
    hold
        As `HbmController`.
    flip, fault
        As `HbmDevice`.
    row, column, read_valid
        The command bus and the return of a beat, to watch.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        super().__init__(
            {
                "port": In(HbmPort()).array(config.requesters),
                "refresh": In(RefreshMode),
                "ecc_event": Out(EccEvent),
                "ecc_event_valid": Out(1),
                "causes": Out(COUNTER_BITS).array(len(CAUSES)),
                "events": Out(COUNTER_BITS).array(len(EVENTS)),
                "refresh_late": Out(1),
                "broken_rule": In(5),
                "clear": In(1),
                "hold": In(1),
                "flip": In(BEAT_BITS + CHECK_BITS),
                "fault": Out(1),
                "row": Out(RowCommand),
                "column": Out(ColCommand),
                "read_valid": Out(1),
            }
        )

    @property
    def config(self) -> HbmConfig:
        """The channel's configuration."""
        return self._config

    def elaborate(self, platform: object) -> Module:
        """Join controller and device."""
        m = Module()
        m.submodules.controller = controller = HbmController(self._config)
        m.submodules.device = device = HbmDevice(self._config)
        wiring.connect(m, controller.bus, device.bus)
        for q in range(self._config.requesters):
            wiring.connect(m, wiring.flipped(self.port[q]), controller.port[q])
        m.d.comb += [
            controller.refresh.eq(self.refresh),
            controller.broken_rule.eq(self.broken_rule),
            controller.clear.eq(self.clear),
            controller.hold.eq(self.hold),
            device.flip.eq(self.flip),
            self.ecc_event.eq(controller.ecc_event),
            self.ecc_event_valid.eq(controller.ecc_event_valid),
            self.refresh_late.eq(controller.refresh_late),
            self.fault.eq(device.fault),
            self.row.eq(controller.bus.row),
            self.column.eq(controller.bus.column),
            self.read_valid.eq(controller.bus.read_valid),
        ]
        m.d.comb += [self.causes[i].eq(controller.causes[i]) for i in range(len(CAUSES))]
        m.d.comb += [self.events[i].eq(controller.events[i]) for i in range(len(EVENTS))]
        return m
