"""Places that requesters have left do not keep refresh away from banks."""

import pytest

from pequin.hbm.config import HbmConfig
from pequin.hbm.timing import HbmTiming
from pequin_sim.hbm.patterns import RUN_INTERVALS, long_reads
from pequin_sim.hbm.play import PlayOptions, play

INTERVAL = HbmTiming.preset("hbm4-10g").clocks("refi")
WARM, STOP = 2 * INTERVAL, (2 + RUN_INTERVALS) * INTERVAL
CHUNK = HbmConfig().geometry.chunk_beats


def touch(chunk, write=0):
    return write, chunk * CHUNK, 1, 0


@pytest.mark.parametrize(
    ("left", "share"),
    [
        ([[touch(8), touch(17, write=1)], []], 0.99),
        ([[touch(8), touch(17, write=1)], [touch(26), touch(35, write=1)]], 0.98),
    ],
)
def test_a_stream_is_as_fast_as_alone(left, share):
    """The other ports move a beat at the start and then rest."""
    options = PlayOptions(refresh="per-bank", warm=WARM, stop=STOP)
    result = play(HbmConfig(), [long_reads(STOP), *left], options)
    assert not any(result.flags[name] for name in ("hung", "fault", "late"))
    assert result.share > share
