"""The controller's spacings in tile clocks, each of which a test can shorten."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value

from pequin.hbm.config import HbmConfig

RULES = (
    "none",
    "rcd_rd",
    "rcd_wr",
    "rp",
    "ras",
    "rc",
    "rrd_s",
    "rrd_l",
    "faw",
    "ccd_l",
    "wr",
    "wtr_s",
    "wtr_l",
    "rtp",
    "rtw",
    "rfc",
    "rfc_pb",
    "rrefd",
    "refi",
    "ref_open",
)
"""Values of a channel's `broken_rule` input: which rule the controller breaks, in order."""


class Spacings:
    """Spacing constants, shortened when the test input selects their rule.

    Parameters
    ----------
    config
        The channel's configuration. Without `test_rules` every spacing is a constant.
    broken_rule
        Index into `RULES`.
    m
        Module that gets the shortened values, each as one signal.
    """

    def __init__(self, config: HbmConfig, broken_rule: Signal, m: Module) -> None:
        self._m = m
        self._made: dict[str, Signal] = {}
        self._timing = config.timing
        self._test = config.test_rules
        self._broken_rule = broken_rule

    def clocks(self, name: str) -> int:
        """Return the unbroken value of one timing."""
        return self._timing.clocks(name)

    def broken(self, rule: str) -> Value:
        """Return whether a rule is to be broken."""
        if not self._test or rule not in RULES:
            return Const(0, 1)
        return self._signal(f"broken_{rule}", self._broken_rule == RULES.index(rule))

    def _signal(self, name: str, value: Value) -> Signal:
        """Return the one signal of this name, made when it is first asked for."""
        if name not in self._made:
            self._made[name] = Signal(len(value), name=name)
            self._m.d.comb += self._made[name].eq(value)
        return self._made[name]

    def load(self, name: str, extra: int = 0) -> Value:
        """Return what a down-counter is loaded with so that it reaches zero in time.

        Parameters
        ----------
        name
            The timing.
        extra
            Clocks added to it, as the write latency and the burst before write recovery.
        """
        value = self.clocks(name) + extra - 1
        width = max(1, value.bit_length())
        if not self._test or name not in RULES:
            return Const(value, width)
        cut = max(0, value - max(1, self.clocks(name) // 4))
        short = self.broken(name)
        if name == "ras":
            short = short | self.broken("rc")  # rc alone cannot break while ras + rp covers it
        return self._signal(f"load_{name}", Mux(short, Const(cut, width), Const(value, width)))

    def longest(self, *names: str, extra: int = 0) -> int:
        """Return the width of a counter that holds any of these timings (bits)."""
        return (max(self.clocks(name) for name in names) + extra).bit_length()
