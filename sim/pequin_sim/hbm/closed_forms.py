"""Closed forms of the HBM channel, each with its arithmetic as text."""

from __future__ import annotations

from dataclasses import dataclass

from pequin.hbm.timing import HbmTiming


@dataclass(frozen=True)
class Form:
    """A value and how it comes about.

    Parameters
    ----------
    value
        Share of peak (0 to 1), or clocks for a latency.
    arithmetic
        The sum, with its numbers.
    """

    value: float
    arithmetic: str


def all_bank_refresh(timing: HbmTiming, postpone: int = 1) -> Form:
    """Return the share left by all-bank refreshes whose gap is drained and reopened."""
    t = timing.clocks
    gap = t("rtp") + t("rp") + postpone * t("rfc") + t("rcd_rd")
    interval = postpone * t("refi")
    parts = f"{t('rtp')} + {t('rp')} + {postpone} x {t('rfc')} + {t('rcd_rd')}"
    return Form(
        1 - gap / interval, f"1 - (tRTP + tRP + tRFC + tRCD = {parts} = {gap}) / {interval}"
    )


def bursts_per_row(timing: HbmTiming, bursts: int) -> Form:
    """Return the activate-window bound: four activates in tFAW, `bursts` beats each."""
    faw = timing.clocks("faw")
    value = min(1.0, 4 * bursts / faw)
    return Form(value, f"min(1, 4 x {bursts} / tFAW = {4 * bursts} / {faw})")


def latency(timing: HbmTiming, state: str) -> Form:
    """Return the device latency of a read: `hit`, `closed` or `conflict` (clocks)."""
    names = {"hit": ["cl"], "closed": ["rcd_rd", "cl"], "conflict": ["rp", "rcd_rd", "cl"]}[state]
    clocks = [timing.clocks(name) for name in names]
    total = sum(clocks) + 1
    text = " + ".join(f"t{name.upper()} {n}" for name, n in zip(names, clocks, strict=True))
    return Form(total, f"{text} + burst 1 = {total} clocks = {total * timing.clock_ns:.1f} ns")


def mix(timing: HbmTiming, read_percent: int, batch: int) -> Form:
    """Return the bound of a mix whose writes go in batches: two turnarounds for each batch."""
    t = timing.clocks
    reads = batch * read_percent / (100 - read_percent)
    there = t("rtw") - 1
    back = t("cwl") + 1 + t("wtr_l") - 1
    value = (reads + batch) / (reads + batch + there + back)
    return Form(
        value,
        f"({reads:.0f} reads + {batch} writes) / (those + (tRTW - 1 = {there}) + "
        f"(tCWL + 1 + tWTR_L - 1 = {back}))",
    )


def outstanding(timing: HbmTiming, requests: int, controller: int) -> Form:
    """Return Little's bound of a stream of row hits with so many beats in flight."""
    trip = timing.clocks("cl") + 1 + controller
    return Form(
        min(1.0, requests / trip),
        f"min(1, {requests} / (tCL + burst + controller = {trip}))",
    )
