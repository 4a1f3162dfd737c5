import numpy as np
import pytest

from pequin_tb.fp32 import campaign

DEPTH = 1 << 20


def test_directed_and_a_million_random_operands():
    a, b = campaign.directed_pairs()
    x, y = campaign.random_pairs(DEPTH, np.random.default_rng(4))
    played = campaign.run(np.concatenate([x, a]), np.concatenate([y, b]), DEPTH)
    assert played >= 1_000_000


def test_flush_pair_is_among_the_corners():
    assert set(campaign.FLUSH_PAIR) <= set(campaign.corners().tolist())


@pytest.mark.soak
def test_ten_million_random_operands():
    for seed in range(10):
        x, y = campaign.random_pairs(DEPTH, np.random.default_rng(100 + seed))
        campaign.run(x, y, DEPTH)
