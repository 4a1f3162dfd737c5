"""The controller's spacings in tile clocks, each of which a test can shorten."""

from __future__ import annotations

from amaranth.hdl import Const, Mux, Signal, Value

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
    """

    def __init__(self, config: HbmConfig, broken_rule: Signal) -> None:
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
        return self._broken_rule == RULES.index(rule)

    def load(self, name: str, extra: int = 0, rule: str | None = None) -> Value:
        """Return what a down-counter is loaded with so that it reaches zero in time.

        Parameters
        ----------
        name
            The timing.
        extra
            Clocks added to it, as the write latency and the burst before write recovery.
        rule
            The rule that shortens it, when its name differs.
        """
        value = self.clocks(name) + extra - 1
        width = max(1, value.bit_length())
        if not self._test:
            return Const(value, width)
        cut = max(0, value - max(1, self.clocks(name) // 4))
        short = self.broken(rule or name)
        if name == "ras":
            short = short | self.broken("rc")  # rc alone cannot break while ras + rp covers it
        return Mux(short, Const(cut, width), Const(value, width))

    def longest(self, *names: str, extra: int = 0) -> int:
        """Return the width of a counter that holds any of these timings (bits)."""
        return (max(self.clocks(name) for name in names) + extra).bit_length()
