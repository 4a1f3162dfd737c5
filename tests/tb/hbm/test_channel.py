"""The channel in RTL simulation; one build serves all tests of this file."""

import dataclasses

import numpy as np
import pytest

from pequin.hbm.config import HbmConfig
from pequin.hbm.rules import RULES
from pequin.hbm.timing import HbmTiming
from pequin_sim.hbm import characterize
from pequin_sim.hbm.address import StreamMap
from pequin_sim.hbm.codes import check_bytes
from pequin_sim.hbm.patterns import reference_patterns
from pequin_sim.hbm.play import PlayOptions, play
from pequin_sim.images import read_image, write_image
from pequin_tb.hbm.scoreboard import Scoreboard
from pequin_tb.hbm.traffic import STORE_BEATS, random_requests

CONFIG = HbmConfig(timing=HbmTiming.preset("hbm4-10g"), test_rules=True)


def run_random(tmp_path, count, seed, **options):
    """Play three ports' random traffic; return the scoreboard and the result."""
    traffic = [random_requests(port, count, seed) for port in range(3)]
    log = tmp_path / "log"
    result = play(CONFIG, traffic, PlayOptions(log=log, monitor=True, **options))
    board = Scoreboard(STORE_BEATS)
    board.check(log)
    return board, result


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (1, {}),
        (2, {"refresh": "per-bank", "pause": 100, "single": 50, "double": 400}),
        (3, {"refresh": "all-bank", "pause": 30, "outstanding": 8, "single": 20, "double": 100}),
        (4, {"refresh": "per-bank", "pause": 200, "outstanding": 2}),
    ],
)
def test_random_traffic_keeps_data_order_and_timing(tmp_path, seed, options):
    board, result = run_random(tmp_path, 1500, seed, **options)
    assert board.errors == []
    assert board.counts["reads"] + board.counts["writes"] == 4500
    assert result.testbench["violations"] == []
    assert not any(result.flags[name] for name in ("hung", "fault", "late"))
    assert sum(result.causes.values()) == result.clocks - 1  # a clock is counted one clock later
    assert result.totals["ecc.corrected"] == result.flags["singles"] == board.counts["single"]
    assert result.totals["ecc.uncorrectable"] == result.flags["doubles"] == board.counts["double"]
    assert board.counts["uncorrectable"] == board.counts["double"]
    assert result.totals["refused"] == board.counts["bad"]
    if options.get("single"):
        assert board.counts["single"] > 100
        assert board.counts["double"] > 5


@pytest.mark.soak
def test_two_hundred_thousand_random_requests(tmp_path):
    total = 0
    for seed, refresh, pause in ((11, "none", 0), (12, "per-bank", 60), (13, "all-bank", 120)):
        board, result = run_random(
            tmp_path, 23_000, seed, refresh=refresh, pause=pause, single=40, double=200
        )
        assert board.errors == []
        assert result.testbench["violations"] == []
        assert not any(result.flags[name] for name in ("hung", "fault", "late"))
        total += board.counts["reads"] + board.counts["writes"]
    assert total >= 200_000


@pytest.mark.parametrize("rule", RULES[1:])
def test_monitor_catches_a_controller_that_breaks(rule):
    refresh = {"rfc": "all-bank", "rfc_pb": "per-bank", "rrefd": "per-bank"}.get(rule, "none")
    if rule in ("refi", "ref_open"):
        refresh = "per-bank"
    stop = 12 * 4875 if refresh != "none" else 12000
    traffic = [random_requests(port, 20000, 5, bad_share=0.0) for port in range(3)]
    options = PlayOptions(refresh=refresh, broken=RULES.index(rule), stop=stop, monitor=True)
    result = play(CONFIG, traffic, options)
    assert rule in result.testbench["broken"]


@pytest.mark.parametrize(
    "name", ["stream", "stream-all-bank", "stream-per-bank", "bursts-1", "bursts-4", "reads-75"]
)
def test_pattern_reaches_what_it_must(name):
    pattern = next(p for p in reference_patterns() if p.name == name)
    line = characterize.run_pattern(pattern, monitor=True)
    assert line.passed, (line.share, line.violations[:3])
    assert line.result.counted == pattern.window()[1] - pattern.window()[0]


def test_three_readers_get_equal_shares():
    pattern = next(p for p in reference_patterns() if p.name == "readers-unrelated")
    line = characterize.run_pattern(pattern)
    assert line.passed
    shares = characterize.port_shares(line.result)
    assert len(shares) == 3
    assert max(shares) - min(shares) < 0.02 * max(shares)


def test_idle_latency_is_the_device_plus_five_listed_clocks():
    lines = characterize.measure_latency("hbm4-10g")
    assert [(line.state, line.device_clocks) for line in lines] == [
        ("hit", 14), ("closed", 39), ("conflict", 60),
    ]  # fmt: skip
    assert all(line.controller_clocks == 5 for line in lines)
    assert len(characterize.CONTROLLER_STEPS) == 5


def test_a_request_that_never_comes_trips_the_watchdog():
    result = play(CONFIG, [[(0, 0, 1, 50_000)]], PlayOptions(hang=1000))
    assert result.flags["hung"]


def test_bad_requests_are_answered_and_do_not_hang():
    last = STORE_BEATS - 1
    bad = [(0, 0, 0, 0), (0, last, 2, 0), (0, STORE_BEATS, 1, 0), (0, 0xFFFFFFFF, 65535, 0)]
    good = [(0, last, 1, 0)]
    writes = [(1, 0, 0, 0), (1, last, 2, 0), (1, 0xFFFFFFFF, 3, 0)]
    result = play(CONFIG, [bad + good, writes], PlayOptions(hang=2000))
    assert not result.flags["hung"]
    assert result.ports[0].errors == 4
    assert result.ports[0].reads == 5
    assert result.ports[1].errors == 3
    assert result.totals["reads"] == 1
    assert result.totals["writes"] == 0


def test_store_is_loaded_and_dumped_through_the_back_door(tmp_path):
    rng = np.random.default_rng(1)
    beats = rng.integers(0, 256, (4096, 32), np.uint8)
    check = check_bytes(beats)
    beats[100, 3] ^= 0x10  # one wrong bit: corrected on the way
    beats[200, 0] ^= 0x03  # two wrong bits in one word: told
    files = {name: tmp_path / name for name in ("data", "ecc", "dump", "eccdump")}
    write_image(files["data"], beats)
    write_image(files["ecc"], check)
    images = {
        "hbm.load": files["data"], "hbm.ecc.load": files["ecc"],
        "hbm.dump": files["dump"], "hbm.ecc.dump": files["eccdump"],
    }  # fmt: skip
    log = tmp_path / "log"
    requests = [(0, 0, 1024, 0), (1, 2000, 5, 0)]
    result = play(CONFIG, [requests], PlayOptions(log=log, images=images))
    assert result.totals["ecc.corrected"] == 1
    assert result.totals["ecc.uncorrectable"] == 1
    good = beats.copy()
    good[100, 3] ^= 0x10
    data = [line.split() for line in log.read_text().splitlines() if line.startswith("D")]
    assert len(data) == 1024
    for beat, words in enumerate(data):
        want = 0 if beat == 200 else int.from_bytes(good[beat].tobytes(), "little")
        assert int(words[5], 16) == want
        assert int(words[3]) == (2 if beat == 200 else 0)
    events = [line.split() for line in log.read_text().splitlines() if line.startswith("E")]
    assert [(int(e[3]), int(e[4], 16)) for e in events] == [(0, 100), (1, 200)]
    dump, codes = read_image(files["dump"], 32), read_image(files["eccdump"], 4)
    assert dump.shape == (STORE_BEATS, 32)
    assert (check_bytes(dump[2000:2005]) == codes[2000:2005]).all()
    assert dump[2000:2005].any()
    assert (dump[300:2000] == beats[300:2000]).all()


def test_conflict_addresses_share_a_bank():
    golden = StreamMap()
    (_, first, _, _), _, (_, other, _, _) = characterize.idle_requests()
    assert golden.bank_of(first) == golden.bank_of(other)
    assert golden.place(first).row != golden.place(other).row


def test_an_open_watch_on_causes_needs_no_requests():
    result = play(CONFIG, [[(0, 0, 1, 3000)]], PlayOptions())
    assert result.causes["no_request"] > 2900
    assert dataclasses.asdict(result.ports[0])["reads"] == 1
