import math
import random
from fractions import Fraction

import pytest

from pequin.errors import ConfigError
from pequin.host.rate import RateLimiter, link_rate

RATES = [8.0, 1.25, 6.5, 1 / 3, 0.01, 7.99]


def feed(limiter, counts, *, clocks, valid=lambda clock: True, ready=lambda clock: True):
    """Return a testbench and the list of (clock, bytes) that it fills."""
    passed = []

    async def bench(ctx):
        left = list(counts)
        ctx.set(limiter.output.ready, 1)
        for clock in range(clocks):
            ctx.set(limiter.input.valid, bool(left) and valid(clock))
            ctx.set(limiter.output.ready, ready(clock))
            if left:
                ctx.set(limiter.input.payload.count, left[0])
            if ctx.get(limiter.input.ready) and ctx.get(limiter.input.valid):
                assert ctx.get(limiter.output.valid)
                passed.append((clock, left.pop(0)))
            elif ctx.get(limiter.output.ready):
                assert not ctx.get(limiter.output.valid)
            await ctx.tick()

    return bench, passed


@pytest.mark.parametrize("rate", RATES)
def test_a_busy_source_gets_exactly_the_rate(simulate, rate):
    limiter = RateLimiter(rate=rate)
    rng = random.Random(1)
    counts = [rng.choice([8, 8, 8, 4, rng.randint(1, 8)]) for _ in range(300)]
    bench, passed = feed(limiter, counts, clocks=2500)
    simulate(limiter, bench)
    # By hand: a full bucket, then every word in the first clock in which its bytes are there,
    # but one word per clock. Nothing of the rate is lost while a word waits.
    exact, clock, bucket = Fraction(rate).limit_denominator(4096), 0, limiter.capacity
    wanted = []
    for count in counts:
        wait = max(0, math.ceil((count - bucket) / exact))
        clock, bucket = clock + wait, bucket + wait * exact - count
        wanted.append((clock, count))
        clock, bucket = clock + 1, min(limiter.capacity, bucket + exact)
    assert passed == [entry for entry in wanted if entry[0] < 2500]
    assert len(passed) > 5


@pytest.mark.parametrize("rate", [1.25, 0.3, 6.5])
def test_no_window_has_more_than_the_bucket_and_the_rate(simulate, rate):
    limiter = RateLimiter(rate=rate)
    rng = random.Random(2)
    counts = [rng.choice([8, 8, 4, 1]) for _ in range(400)]
    busy = [rng.random() < 0.5 ** (clock // 100 % 3) for clock in range(2000)]
    open_ = [rng.random() < 0.8 for _ in range(2000)]
    bench, passed = feed(
        limiter, counts, clocks=2000, valid=busy.__getitem__, ready=open_.__getitem__
    )
    simulate(limiter, bench)
    assert len(passed) > 50
    for first in range(len(passed)):
        total = 0
        for clock, count in passed[first:]:
            total += count
            assert total <= limiter.capacity + limiter.rate * (clock - passed[first][0])


@pytest.mark.parametrize("rate", [0, -1, 8.01, 32])
def test_bad_rates_are_refused(rate):
    with pytest.raises(ConfigError, match=r"above 0 and at most 8 .*host_bytes_per_clock"):
        RateLimiter(rate=rate)


def test_rates_are_fractions():
    assert link_rate(1.25) == Fraction(5, 4)
    assert link_rate(8 / 3) == Fraction(8, 3)
    assert RateLimiter(rate=1.25).capacity == Fraction(37, 4)
