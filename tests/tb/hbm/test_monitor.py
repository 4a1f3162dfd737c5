import dataclasses

import pytest

from pequin.hbm.timing import HbmTiming
from pequin_tb.hbm.monitor import Command, TimingMonitor, check_commands, read_commands

TIMING = HbmTiming.preset("hbm4-10g")
C = TIMING.table()


def act(clock, bank, row=0):
    return Command(clock, row="ACT", row_bank=bank, row_address=row)


def pre(clock, bank):
    return Command(clock, row="PRE", row_bank=bank)


def ref(clock, bank):
    return Command(clock, row="REFPB", row_bank=bank)


def read(clock, bank):
    return Command(clock, column="RD", column_bank=bank)


def write(clock, bank):
    return Command(clock, column="WR", column_bank=bank)


def rules(commands, clocks=0, refresh="none"):
    monitor = check_commands(commands, TIMING, clocks=clocks, refresh=refresh)
    return {violation.rule for violation in monitor.violations}


# For each rule: commands that keep every rule when the last gap is `need` clocks, and break
# just this one when it is one clock shorter. `at` is the clock of the last command.
CASES = {
    "rcd_rd": (C["rcd_rd"], lambda at: [act(0, 0), read(at, 0)]),
    "rcd_wr": (C["rcd_wr"], lambda at: [act(0, 0), write(at, 0)]),
    "ras": (C["ras"], lambda at: [act(0, 0), pre(at, 0)]),
    "rp": (80 + C["rp"], lambda at: [act(0, 0), pre(80, 0), act(at, 0)]),
    "rrd_s": (C["rrd_s"], lambda at: [act(0, 0), act(at, 8)]),
    "rrd_l": (C["rrd_l"], lambda at: [act(0, 0), act(at, 1)]),
    "faw": (C["faw"], lambda at: [act(0, 0), act(4, 8), act(8, 16), act(12, 24), act(at, 32)]),
    "ccd_l": (C["rcd_rd"] + 7, lambda at: [act(0, 0), act(5, 1), read(30, 0), read(at, 1)]),
    "wr": (
        C["rcd_wr"] + C["cwl"] + 1 + C["wr"],
        lambda at: [act(0, 0), write(C["rcd_wr"], 0), pre(at, 0)],
    ),
    "wtr_s": (
        40 + C["cwl"] + 1 + C["wtr_s"],
        lambda at: [act(0, 0), act(5, 8), write(40, 0), read(at, 8)],
    ),
    "wtr_l": (
        40 + C["cwl"] + 1 + C["wtr_l"],
        lambda at: [act(0, 0), act(5, 1), write(40, 0), read(at, 1)],
    ),
    "rtp": (40 + C["rtp"], lambda at: [act(0, 0), read(40, 0), pre(at, 0)]),
    "rtw": (40 + C["rtw"], lambda at: [act(0, 0), read(40, 0), write(at, 0)]),
    "rfc_pb": (C["rfc_pb"], lambda at: [ref(0, 0), act(at, 0)]),
    "rrefd": (C["rrefd"], lambda at: [ref(0, 0), ref(at, 8)]),
    "rfc": (C["rfc"], lambda at: [Command(0, row="REFAB"), act(at, 0)]),
}


@pytest.mark.parametrize("rule", CASES)
def test_each_spacing_is_allowed_when_kept_and_caught_when_one_clock_short(rule):
    need, commands = CASES[rule]
    assert rules(commands(need)) == set()
    assert rules(commands(need - 1)) == {rule}


def test_row_cycle_is_its_own_rule():
    long_cycle = dataclasses.replace(TIMING, rc=60.0)
    commands = [act(0, 0), pre(C["ras"], 0), act(C["ras"] + C["rp"], 0)]
    monitor = check_commands(commands, long_cycle, clocks=0)
    assert [v.rule for v in monitor.violations] == ["rc"]


def test_column_spacing_of_different_groups():
    slow = dataclasses.replace(TIMING, ccd_s=1.6, ccd_l=2.4)
    commands = [act(0, 0), act(5, 8), read(40, 0), read(41, 8)]
    assert [v.rule for v in check_commands(commands, slow, clocks=0).violations] == ["ccd_s"]


@pytest.mark.parametrize(
    ("commands", "rule"),
    [
        ([read(0, 0)], "state"),
        ([act(0, 0), pre(40, 0), read(41, 0)], "state"),
        ([act(0, 0), act(100, 0)], "state"),
        ([act(0, 0), ref(100, 0)], "ref_open"),
        ([act(0, 5), Command(100, row="REFAB")], "ref_open"),
    ],
)
def test_commands_that_do_not_fit_the_bank(commands, rule):
    assert rules(commands) == {rule}


def test_precharge_all_starts_the_precharge_time_of_open_banks():
    start = [act(0, 0), Command(60, row="PREA")]
    assert rules([*start, Command(60 + C["rp"], row="REFAB")]) == set()
    assert rules([*start, Command(59 + C["rp"], row="REFAB")]) == {"rp"}
    assert rules([Command(60, row="PREA"), Command(61, row="REFAB")]) == set()


def test_missing_refreshes_are_counted():
    interval = C["refi"]
    all_bank = [Command(interval * i + 100, row="REFAB") for i in range(6)]
    assert rules(all_bank, clocks=6 * interval, refresh="all-bank") == set()
    assert rules(all_bank[:3], clocks=6 * interval, refresh="all-bank") == {"refi"}
    late = [all_bank[0], Command(100 + 3 * interval, row="REFAB")]
    assert rules(late, clocks=3 * interval, refresh="all-bank") == {"refi"}


def test_log_is_read_back(tmp_path):
    path = tmp_path / "log"
    path.write_text("3 1 2 5 99 0 0 0 0\n7 0 0 0 0 2 1 4 31\n9 4 5 7 0 1 0 1 2\n")
    assert list(read_commands(path)) == [
        Command(3, row="ACT", row_bank=21, row_address=99),
        Command(7, column="WR", column_bank=12, column_address=31),
        Command(9, "REFPB", 47, 0, "RD", 1, 2),
    ]


def test_monitor_counts_commands():
    monitor = TimingMonitor(TIMING)
    monitor.feed(act(0, 0))
    monitor.feed(read(30, 0))
    assert monitor.commands == {"ACT": 1, "RD": 1}
