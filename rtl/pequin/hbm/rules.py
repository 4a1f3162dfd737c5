"""The controller's spacings in tile clocks, each of which a test can shorten."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value

from pequin.hbm.config import HbmConfig
from pequin.hbm.timing import TIMING_FIELDS

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


AFTER_WRITE_DATA = ("wr", "wtr_s", "wtr_l")
"""Timings that the standard counts from the end of write data."""


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
        self._timing = config.timing
        self._test = config.test_rules
        self._broken: dict[str, Value] = {}
        self._loads: dict[str, Value] = {}
        # Each value is one signal, made here and not where it is used: that is inside conditions.
        for rule in RULES:
            self._broken[rule] = self._signal(m, f"broken_{rule}", broken_rule, rule)
        for name in TIMING_FIELDS:
            self._loads[name] = self._load(m, name)

    def _signal(self, m: Module, name: str, broken_rule: Signal, rule: str) -> Value:
        if not self._test:
            return Const(0, 1)
        signal = Signal(name=name)
        m.d.comb += signal.eq(broken_rule == RULES.index(rule))
        return signal

    def _load(self, m: Module, name: str) -> Value:
        extra = self.clocks("cwl") + 1 if name in AFTER_WRITE_DATA else 0
        value = self.clocks(name) + extra - 1
        width = max(1, value.bit_length())
        if not self._test or name not in RULES:
            return Const(value, width)
        short = self._broken[name]
        if name == "ras":
            short = short | self._broken["rc"]  # rc alone cannot break while ras + rp covers it
        cut = max(0, value - max(1, self.clocks(name) // 4))
        load = Signal(width, name=f"load_{name}")
        m.d.comb += load.eq(Mux(short, cut, value))
        return load

    def clocks(self, name: str) -> int:
        """Return the unbroken value of one timing."""
        return self._timing.clocks(name)

    def broken(self, rule: str) -> Value:
        """Return whether a rule is to be broken."""
        return self._broken[rule]

    def load(self, name: str) -> Value:
        """Return what a down-counter is loaded with so that it reaches zero in time.

        The timings in `AFTER_WRITE_DATA` count from the write command: the write latency and the
        burst are added.
        """
        return self._loads[name]

    def longest(self, *names: str, extra: int = 0) -> int:
        """Return the width of a counter that holds any of these timings (bits)."""
        return (max(self.clocks(name) for name in names) + extra).bit_length()
