"""A command's outcome, gathered from its results."""

from amaranth import Const, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.mac.types import DrainedGroup, ResultFlags, mac_status


class StatusCollector(wiring.Component):
    """Join the flags and counts of a command's results; report once, at its last group.

    Timing: `status` is valid in the clock after the last group, for one clock.

    Parameters
    ----------
    params
        Sizes.

    Members
    -------
    valid : In(1)
    drained : In(DrainedGroup(params))
    status : Out(stream of mac_status(params))
        Must be taken at once: `ready` is not looked at.
    """

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "valid": In(1),
                "drained": In(DrainedGroup(params)),
                "status": Out(stream.Signature(mac_status(params), always_ready=True)),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        so_far = Signal(mac_status(self._params), name="so_far")
        joined = Signal(mac_status(self._params), name="joined")
        group = self.drained
        errors, lane = self._group_errors(m)
        total = Signal(len(so_far.zeros) + 1, name="total_zeros")
        seen = so_far.errors.as_value().any()
        m.d.comb += [
            joined.errors.as_value().eq(so_far.errors.as_value() | errors.as_value()),
            joined.error_row.eq(Mux(seen, so_far.error_row, group.row)),
            joined.error_vector.eq(Mux(seen, so_far.error_vector, group.vector + lane)),
            total.eq(so_far.zeros + self.drained.zeros),
            joined.zeros.eq(Mux(total[-1], (1 << len(so_far.zeros)) - 1, total)),
        ]
        m.d.sync += self.status.valid.eq(self.valid & group.last)
        with m.If(self.valid):
            m.d.sync += [so_far.eq(joined), self.status.payload.eq(joined)]
            with m.If(group.last):
                m.d.sync += so_far.as_value().eq(0)
        return m

    def _group_errors(self, m: Module) -> tuple[Signal, Signal]:
        """Return the group's joined flags and the first lane that has one."""
        lanes = self._params.config.drain_lanes
        group = self.drained
        errors, first = Signal(ResultFlags, name="errors"), Signal(range(lanes), name="first")
        joined: Value = Const(0, 1)
        for d in reversed(range(lanes)):  # the last assignment wins: the lowest lane
            flags = Mux(group.mask[d], group.flags[d].as_value(), 0)
            joined = joined | flags
            with m.If(flags.any()):
                m.d.comb += first.eq(d)
        m.d.comb += errors.as_value().eq(joined)
        return errors, first
