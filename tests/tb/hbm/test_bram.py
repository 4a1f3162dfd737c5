import pytest

from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.hbm.bench import BramBench
from pequin.hbm.bram import BramChannel
from pequin.hbm.config import HbmConfig
from pequin_sim.hbm.play import PlayOptions, play
from pequin_tb.hbm.scoreboard import Scoreboard
from pequin_tb.hbm.traffic import random_requests

BEATS = 1024


@pytest.fixture(scope="module")
def design():
    return elaborate(BramBench(requesters=3, beats=BEATS), "bram_bench")


def run(design, requests, **options):
    return play(HbmConfig(), requests, PlayOptions(**options), design=design)


@pytest.mark.parametrize("pause", [0, 120])
def test_random_traffic_keeps_data_and_order(tmp_path, design, pause):
    traffic = [random_requests(port, 800, 7, store_beats=BEATS) for port in range(3)]
    log = tmp_path / "log"
    result = run(design, traffic, log=log, pause=pause)
    board = Scoreboard(BEATS)
    assert board.check(log) == []
    assert board.counts["reads"] + board.counts["writes"] == 2400
    assert board.counts["bad"] > 10
    assert not result.flags["hung"]


def test_a_beat_a_clock_and_three_clocks_of_latency(design):
    lone = run(design, [[(0, 5, 1, 10)]])
    assert lone.ports[0].histogram == {3: 1}
    stream = run(design, [[(0, 0, BEATS, 0)]])
    assert stream.ports[0].latency_max == BEATS + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"requesters": 0, "beats": 64}, "requesters must be 1 to 4"),
        ({"requesters": 1, "beats": 1}, "beats must be 2 to"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        BramChannel(**arguments)
