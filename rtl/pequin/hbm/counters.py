"""What the channel counts: clocks by cause, and events."""

from __future__ import annotations

from amaranth.lib import enum

COUNTER_BITS = 40
"""Width of a counter; at 1.25 GHz it wraps after a quarter of an hour of simulated time."""


class Cause(enum.Enum, shape=4):
    """What the data bus did in a clock, or what its oldest run waited for.

    Taken when column commands are chosen; the causes add up to the elapsed clocks.
    """

    DATA = 0
    ACTIVATE = 1
    PRECHARGE = 2
    BANK_GROUP = 3
    TURNAROUND = 4
    REFRESH = 5
    RETURN = 6
    NO_REQUEST = 7


CAUSES = {
    "hbm.clocks.data": "a beat was transferred",
    "hbm.clocks.activate": "the oldest run's row is being opened (tRCD, tRRD, tFAW, row bus)",
    "hbm.clocks.precharge": "the oldest run's bank is being closed (tRAS, tRTP, tWR, tRP, tRC)",
    "hbm.clocks.bank_group": "column spacing within a bank group (tCCD_L)",
    "hbm.clocks.turnaround": "read / write turnaround (tRTW, tWTR), or waiting to turn",
    "hbm.clocks.refresh": "a refresh holds the bank or the channel",
    "hbm.clocks.return": "the requester does not take its data: the return buffer is full",
    "hbm.clocks.no_request": "no run in the windows",
}
"""Clocks by cause, in the order of `Cause`."""

EVENTS = {
    "hbm.reads": "read beats issued",
    "hbm.writes": "write beats issued",
    "hbm.activates": "rows opened",
    "hbm.conflicts": "rows closed for a run that needs another row of the bank",
    "hbm.refreshes": "refresh commands, all-bank or per-bank",
    "hbm.ecc.corrected": "read beats with single-bit errors, corrected",
    "hbm.ecc.uncorrectable": "read beats with a double-bit error",
    "hbm.refused": "requests answered with an address error",
}
"""Event counters. Hits are reads + writes - activates, misses are activates - conflicts."""
