"""An independent timing monitor: it sees the command bus and knows the timings in ns, no more."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pequin.hbm.timing import BANKS_PER_GROUP, HbmTiming

TOLERANCE_NS = 1e-6
LONG_AGO = -math.inf

ROW_NAMES = ("NOP", "ACT", "PRE", "PREA", "REFPB", "REFAB")
COLUMN_NAMES = ("NOP", "RD", "WR")


@dataclass(frozen=True)
class Command:
    """What both command buses carried in one clock.

    Parameters
    ----------
    clock
        Tile clock.
    row, row_bank, row_address
        Row command (`ROW_NAMES`), its bank (group * 8 + bank) and row.
    column, column_bank, column_address
        Column command (`COLUMN_NAMES`), its bank and column.
    """

    clock: int
    row: str = "NOP"
    row_bank: int = 0
    row_address: int = 0
    column: str = "NOP"
    column_bank: int = 0
    column_address: int = 0


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Parameters
    ----------
    rule
        Name of the timing, `state` for a command that does not fit its bank, or `ref_open` for a
        refresh of an open bank.
    clock, bank
        Where.
    detail
        What was found and what was needed.
    """

    rule: str
    clock: int
    bank: int
    detail: str


@dataclass
class _Bank:
    open: bool = False
    act: float = LONG_AGO
    pre: float = LONG_AGO
    read: float = LONG_AGO
    write: float = LONG_AGO
    refresh: float = LONG_AGO
    refreshes: int = 0


@dataclass
class TimingMonitor:
    """Check every spacing rule of one pseudo-channel on its command bus.

    Parameters
    ----------
    timing
        The device's timings (ns); spacings are compared in ns.
    banks
        Banks of the pseudo-channel.
    refresh
        `none`, `all-bank` or `per-bank`: which refreshes must be there.
    postpone
        All-bank refreshes that may be collected.
    """

    timing: HbmTiming
    banks: int = 48
    refresh: str = "none"
    postpone: int = 1
    violations: list[Violation] = field(default_factory=list)
    commands: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Start with all banks closed and nothing before."""
        self._bank = [_Bank() for _ in range(self.banks)]
        groups = self.banks // BANKS_PER_GROUP
        self._group_open = [LONG_AGO] * groups
        self._group_column = [LONG_AGO] * groups
        self._group_write = [LONG_AGO] * groups
        self._last_open = self._last_refresh = LONG_AGO
        self._last_column = self._last_read = self._last_write = LONG_AGO
        self._refresh_all = LONG_AGO
        self._recent: deque[float] = deque(maxlen=4)
        # Write data are on the bus in whole tile clocks: the first edge at or after tCWL.
        period = self.timing.clock_ns
        first = math.ceil(self.timing.cwl / period - TOLERANCE_NS) * period
        self._write_end = first + self.timing.burst_ns

    def feed(self, command: Command) -> None:
        """Check the commands of one clock; clocks must rise."""
        now = command.clock * self.timing.clock_ns
        if command.column != "NOP":
            self.commands[command.column] += 1
            self._check_column(command, now)
        if command.row != "NOP":
            self.commands[command.row] += 1
            getattr(self, f"_check_{command.row.lower()}")(command, now)

    def finish(self, clocks: int) -> list[Violation]:
        """Check the refresh count over the whole run and return all violations."""
        interval = self.timing.refi
        windows = math.floor(clocks * self.timing.clock_ns / interval)
        slack = self.postpone if self.refresh == "all-bank" else 1
        if self.refresh != "none":
            for number, bank in enumerate(self._bank):
                if bank.refreshes < windows - slack:
                    text = f"{bank.refreshes} refreshes in {windows} intervals"
                    self.violations.append(Violation("refi", clocks, number, text))
        return self.violations

    def _need(
        self, rule: str, before: float, now: float, need: float, command: Command, bank: int
    ) -> None:
        if now - before < need - TOLERANCE_NS:
            detail = f"{now - before:.2f} ns after the command before, {need:.2f} ns needed"
            self.violations.append(Violation(rule, command.clock, bank, detail))

    def _fault(self, rule: str, command: Command, bank: int, text: str) -> None:
        self.violations.append(Violation(rule, command.clock, bank, text))

    def _check_column(self, command: Command, now: float) -> None:
        t, number = self.timing, command.column_bank
        bank, group = self._bank[number], command.column_bank // BANKS_PER_GROUP
        if not bank.open:
            self._fault("state", command, number, f"{command.column} to a closed bank")
        reading = command.column == "RD"
        rule = "rcd_rd" if reading else "rcd_wr"
        self._need(rule, bank.act, now, getattr(t, rule), command, number)
        self._need("ccd_s", self._last_column, now, t.ccd_s, command, number)
        self._need("ccd_l", self._group_column[group], now, t.ccd_l, command, number)
        if reading:
            end = self._write_end
            self._need("wtr_s", self._last_write, now, end + t.wtr_s, command, number)
            self._need("wtr_l", self._group_write[group], now, end + t.wtr_l, command, number)
            bank.read = self._last_read = now
        else:
            self._need("rtw", self._last_read, now, t.rtw, command, number)
            bank.write = self._last_write = self._group_write[group] = now
        self._last_column = self._group_column[group] = now

    def _check_opening(self, command: Command, now: float) -> None:
        """Rules between activates and per-bank refreshes of any banks."""
        t, number = self.timing, command.row_bank
        group = number // BANKS_PER_GROUP
        self._need("rrd_s", self._last_open, now, t.rrd_s, command, number)
        self._need("rrd_l", self._group_open[group], now, t.rrd_l, command, number)
        self._need("rrefd", self._last_refresh, now, t.rrefd, command, number)
        if len(self._recent) == 4:
            self._need("faw", self._recent[0], now, t.faw, command, number)
        self._last_open = self._group_open[group] = now
        self._recent.append(now)

    def _check_closed_bank(self, command: Command, now: float, number: int) -> None:
        """Rules that a command to a closed bank shares: activate and refresh."""
        t, bank = self.timing, self._bank[number]
        self._need("rc", bank.act, now, t.rc, command, number)
        self._need("rp", bank.pre, now, t.rp, command, number)
        self._need("rfc_pb", bank.refresh, now, t.rfc_pb, command, number)
        self._need("rfc", self._refresh_all, now, t.rfc, command, number)

    def _check_act(self, command: Command, now: float) -> None:
        bank = self._bank[command.row_bank]
        if bank.open:
            self._fault("state", command, command.row_bank, "ACT to an open bank")
        self._check_closed_bank(command, now, command.row_bank)
        self._check_opening(command, now)
        bank.open, bank.act = True, now

    def _close(self, command: Command, now: float, number: int) -> None:
        t, bank = self.timing, self._bank[number]
        if not bank.open:
            return
        self._need("ras", bank.act, now, t.ras, command, number)
        self._need("rtp", bank.read, now, t.rtp, command, number)
        recovery = self._write_end + t.wr
        self._need("wr", bank.write, now, recovery, command, number)
        bank.open, bank.pre = False, now

    def _check_pre(self, command: Command, now: float) -> None:
        self._close(command, now, command.row_bank)

    def _check_prea(self, command: Command, now: float) -> None:
        for number in range(self.banks):
            self._close(command, now, number)

    def _check_refpb(self, command: Command, now: float) -> None:
        bank = self._bank[command.row_bank]
        if bank.open:
            self._fault("ref_open", command, command.row_bank, "REFPB to an open bank")
        self._check_closed_bank(command, now, command.row_bank)
        self._check_opening(command, now)
        self._count_refresh(command, command.row_bank, now)
        bank.refresh = self._last_refresh = now

    def _check_refab(self, command: Command, now: float) -> None:
        for number, bank in enumerate(self._bank):
            if bank.open:
                self._fault("ref_open", command, number, "REFAB with an open bank")
            self._check_closed_bank(command, now, number)
            self._count_refresh(command, number, now)
        self._refresh_all = now

    def _count_refresh(self, command: Command, number: int, now: float) -> None:
        bank = self._bank[number]
        bank.refreshes += 1
        last = max(bank.refresh, self._refresh_all, 0.0)
        longest = (self.postpone + 1) * self.timing.refi
        if now - last > longest:
            text = f"{now - last:.0f} ns after the refresh before, at most {longest:.0f} ns allowed"
            self._fault("refi", command, number, text)


def read_commands(path: Path) -> Iterator[Command]:
    """Yield the commands of a log written by the simulation's `+commands` plusarg."""
    with path.open() as lines:
        for line in lines:
            clock, row, row_group, row_bank, address, column, group, bank, place = map(
                int, line.split()
            )
            yield Command(
                clock,
                ROW_NAMES[row],
                row_group * BANKS_PER_GROUP + row_bank,
                address,
                COLUMN_NAMES[column],
                group * BANKS_PER_GROUP + bank,
                place,
            )


def check_commands(
    commands: Iterable[Command],
    timing: HbmTiming,
    *,
    clocks: int,
    refresh: str = "none",
    postpone: int = 1,
) -> TimingMonitor:
    """Feed a whole log to a monitor, finish it, and return it."""
    monitor = TimingMonitor(timing, refresh=refresh, postpone=postpone)
    for command in commands:
        monitor.feed(command)
    monitor.finish(clocks)
    return monitor
