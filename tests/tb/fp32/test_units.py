import numpy as np
import pytest

from pequin_tb.fp32 import campaign

DEPTH = 1 << 20


def test_directed_and_a_million_random_operands():
    a, b = campaign.directed_pairs()
    x, y = campaign.random_pairs(DEPTH, np.random.default_rng(4))
    played = campaign.run(np.concatenate([x, a]), np.concatenate([y, b]), DEPTH)
    assert played >= 1_000_000


def test_flush_pairs_are_among_the_corners():
    for pair in campaign.FLUSH_PAIRS:
        assert set(pair) <= set(campaign.corners().tolist())


def test_a_wrong_result_is_found():
    a, b = campaign.random_pairs(1000, np.random.default_rng(1))
    image = np.zeros((1000, campaign.RESULTS.size // 8), np.uint8)
    with pytest.raises(AssertionError, match=r"add of 0x[0-9a-f]{8}, 0x[0-9a-f]{8} .* differ"):
        campaign.compare(image, a, b)


@pytest.mark.soak
def test_ten_million_random_operands():
    for seed in range(10):
        x, y = campaign.random_pairs(DEPTH, np.random.default_rng(100 + seed))
        campaign.run(x, y, DEPTH)
