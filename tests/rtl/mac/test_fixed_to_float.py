"""Fixed point to fp32: numpy's conversion, ties, powers of two, random magnitudes."""

import numpy as np

from pequin.mac.fixed_to_float import FixedToFloat


def directed():
    powers = [1 << i for i in range(47)]
    near = [p + d for p in powers for d in (-1, 0, 1)]
    ties = []
    for excess in range(1, 24):
        for kept in (1 << 23, (1 << 23) + 1, (1 << 24) - 1, (1 << 24) - 2):
            base, half = kept << excess, 1 << (excess - 1)
            ties += [base + half, base + half - 1, base + half + 1]
    positive = [n for n in near + ties if n < 1 << 47]
    return [*positive, *(-n for n in positive), 0, -1, (1 << 47) - 1, -(1 << 47)]


def test_directed_and_random_values(clocked):
    rng = np.random.default_rng(5)
    spread = rng.integers(-(1 << 47), 1 << 47, 6000) >> rng.integers(0, 47, 6000)
    fixed = np.array([*directed(), *spread], dtype=np.int64)
    latency = FixedToFloat.LATENCY
    got = clocked(FixedToFloat(), {"fixed": fixed}, ["value"], clocks=len(fixed) + latency)
    expected = (fixed.astype(np.float64) * 2.0**-24).astype(np.float32).view(np.uint32)
    have = got["value"][latency:].astype(np.uint32)
    wrong = np.flatnonzero(have != expected)
    assert not len(wrong), (
        f"{fixed[wrong[0]]} gives {have[wrong[0]]:#010x}, expected {expected[wrong[0]]:#010x}"
    )
    exact = fixed.astype(np.float64) * 2.0**-24 == expected.view(np.float32)
    assert 0.1 < exact.mean() < 0.9
