"""Channels that differ from the reference: postponed refreshes, a longer path, small windows.

Two builds serve all tests: `LONG`, and `SMALL` with the whole device stored.
"""

import pytest

from pequin.config import TileConfig
from pequin.hbm.config import HbmConfig
from pequin.hbm.timing import HbmGeometry, HbmTiming
from pequin_sim.hbm import closed_forms
from pequin_sim.hbm.characterize import idle_requests
from pequin_sim.hbm.patterns import RUN_INTERVALS, long_reads
from pequin_sim.hbm.play import PlayOptions, play
from pequin_tb.hbm.scoreboard import Scoreboard
from pequin_tb.hbm.traffic import STORE_BEATS, random_requests

TIMING = HbmTiming.preset("hbm4-10g")
LONG = HbmConfig(timing=TIMING, postpone=4, path_ns=6.0)
FULL_BYTES = 576 << 20
SMALL = HbmConfig.for_tile(TileConfig.preset("fpga")).replace(
    geometry=HbmGeometry(store_bytes=FULL_BYTES)
)


def stream_share(config, refresh, intervals):
    """Return the share of peak of one reader, and the result; counting starts late enough."""
    interval = TIMING.clocks("refi")
    warm, stop = interval * intervals, interval * (intervals + RUN_INTERVALS)
    options = PlayOptions(refresh=refresh, warm=warm, stop=stop, monitor=True)
    result = play(config, [long_reads(stop)], options)
    assert not any(result.flags[name] for name in ("hung", "fault", "late"))
    assert result.testbench["violations"] == []
    return result.share, result


@pytest.mark.parametrize(
    ("config", "store_beats"), [(LONG, STORE_BEATS), (SMALL, FULL_BYTES // 32)]
)
@pytest.mark.parametrize(("refresh", "pause"), [("all-bank", 0), ("per-bank", 100)])
def test_random_traffic_keeps_data_order_and_timing(tmp_path, config, store_beats, refresh, pause):
    ports = range(config.requesters)
    traffic = [random_requests(port, 3000, 6, store_beats=store_beats) for port in ports]
    log = tmp_path / "log"
    options = PlayOptions(
        log=log, monitor=True, refresh=refresh, pause=pause, single=40, double=200
    )
    result = play(config, traffic, options)
    board = Scoreboard(store_beats)
    assert board.check(log) == []
    assert board.counts["reads"] + board.counts["writes"] == 3000 * config.requesters
    assert result.testbench["violations"] == []
    assert not any(result.flags[name] for name in ("hung", "fault", "late"))
    assert sum(result.causes.values()) == result.clocks - 1
    assert result.totals["ecc.uncorrectable"] == result.flags["doubles"] > 10
    assert result.totals["refused"] == board.counts["bad"] > 50
    assert result.totals["refreshes"] > 0


def test_postponed_refreshes_leave_what_the_closed_form_says():
    share, result = stream_share(LONG, "all-bank", intervals=LONG.postpone)
    bound = closed_forms.all_bank_refresh(TIMING, LONG.postpone).value
    assert bound == pytest.approx(0.8817, abs=1e-4)
    assert 0.88 <= share <= bound + 0.001
    assert result.events["refreshes"] == RUN_INTERVALS


def test_a_longer_path_adds_its_clocks_to_the_latency_and_takes_no_bandwidth():
    assert LONG.path_clocks == 8  # 6 ns / 0.8 ns, rounded up
    result = play(LONG, [idle_requests()], PlayOptions())
    device = [closed_forms.latency(TIMING, s).value for s in ("hit", "closed", "conflict")]
    assert sorted(result.ports[0].histogram) == [clocks + 5 + 8 for clocks in device]
    assert stream_share(LONG, "none", intervals=1)[0] >= 0.995
    assert stream_share(LONG, "per-bank", intervals=1)[0] >= 0.98


def test_small_windows_still_stream():
    assert stream_share(SMALL, "none", intervals=1)[0] >= 0.99
    assert stream_share(SMALL, "per-bank", intervals=1)[0] >= 0.95


def test_the_whole_device_is_stored(tmp_path):
    """Beats at both ends and in the middle are written, read back, and refused one further."""
    last = FULL_BYTES // 32 - 1
    places = [0, 64 * 12288 * 8 - 1, 64 * 12288 * 16, last]
    requests = [(1, place, 1, 0) for place in places] + [(0, place, 1, 0) for place in places]
    log = tmp_path / "log"
    result = play(SMALL, [[*requests, (0, last, 2, 0), (0, last + 1, 1, 0)]], PlayOptions(log=log))
    assert Scoreboard(last + 1).check(log) == []
    assert result.ports[0].reads == 6
    assert result.ports[0].errors == 2
    assert result.totals["reads"] == result.totals["writes"] == 4
