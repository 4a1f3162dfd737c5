"""KvBuffer against the golden model: writes, keys, values, DMA, host, errors."""

import numpy as np
import pytest

from pequin.errors import ConfigError
from pequin.tile.types import ErrorCode


def granule_beats(blocks):
    return 8 + 64 * blocks


@pytest.mark.parametrize("pausing", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_tokens_come_back_as_keys_and_values(design, script, pauses, blocks, pausing):
    rng = np.random.default_rng(blocks)
    size = granule_beats(blocks)
    count = min(3, 512 // size)
    script.configure(blocks)
    tokens = 32 * count - 5
    for token in range(tokens):
        script.token(rng, token // 32 * size, token % 32, head=32 * blocks - 3)
    script.keys(0, size, tokens, blocks)
    script.values_of(0, size, 32 * blocks - 3, count)
    script.keys(size * (count - 1), 0, 1, blocks)
    for granule in range(count):
        script.dma(size * granule + blocks)
    script.read_all()
    assert len(script.transfers) > 100
    run = script.run(design, pauses(blocks) if pausing else None)
    assert run.after["repairs"] == 0
