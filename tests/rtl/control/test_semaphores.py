"""Semaphores against counts in Python, with seven users at once."""

import random

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from pequin.control.semaphores import Semaphores
from pequin.errors import ConfigError

UNITS, COUNT = 7, 32


def simulate(dut, script):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(script)
    simulator.run()


def request(first=None, second=None):
    """Return a `TakeRequest`'s bits."""
    parts = ((0, first), (6, second))
    return sum((1 | number << 1) << low for low, number in parts if number is not None)


class Model:
    """Counts, what was taken last and has not left them, and what a clock does to them."""

    def __init__(self):
        self.counts, self.gone = [0] * COUNT, []

    def there(self, numbers):
        """Return for each number of a request whether it can be taken now."""
        return [self.counts[n] >= numbers.count(n) and n not in self.gone for n in numbers]

    def served(self, requests):
        """Return who is served: the lowest of those that can be."""
        for u, numbers in enumerate(requests):
            if numbers and all(self.there(numbers)):
                return u
        return None

    def clock(self, requests, signals):
        """Apply a clock; return the overflow as (user, number), or None."""
        served = self.served(requests)
        after = [count - self.gone.count(n) for n, count in enumerate(self.counts)]
        for number in signals:
            if number is not None:
                after[number] += 1
        over = [(u, n) for u, n in enumerate(signals) if n is not None and after[n] > 255]
        pairs = zip(after, self.counts, strict=True)
        self.counts = [count if new > 255 else new for new, count in pairs]
        self.gone = [] if served is None else requests[served]
        assert min(self.counts) >= 0
        return over[0] if over else None


@pytest.mark.parametrize("numbers", [2, 5, 32])
@pytest.mark.parametrize("signal_rate", [0.2, 0.45, 0.8])
def test_random_users(numbers, signal_rate):
    rng, model, dut = random.Random(numbers), Model(), Semaphores()
    seen = {"taken": 0, "both": 0, "twice": 0, "blocked": 0, "overflow": 0}

    async def bench(ctx):
        overflow = None
        for _ in range(800):
            requests, signals = [], []
            for u in range(UNITS):
                names = [rng.randrange(numbers) for _ in range(rng.choice((0, 1, 1, 2)))]
                order = rng.random() < 0.5
                pair = [*names, None, None][:2]
                ctx.set(Value.cast(dut.take[u]), request(*(pair if order else pair[::-1])))
                valid = rng.random() < 0.8 and bool(names)
                ctx.set(dut.take_valid[u], valid)
                requests.append(names if valid else [])
                signal = rng.randrange(numbers) if rng.random() < signal_rate else None
                ctx.set(dut.signal[u], signal or 0)
                ctx.set(dut.signal_valid[u], signal is not None)
                signals.append(signal)
            served = [u == model.served(requests) for u in range(UNITS)]
            assert [ctx.get(dut.taken[u]) for u in range(UNITS)] == served
            for u, names in enumerate(requests):
                there = model.there(names)
                if not all(there):
                    lacking = [n for n, enough in zip(names, there, strict=True) if not enough]
                    assert ctx.get(dut.lacks[u]) in lacking
                seen["blocked"] += all(there) and bool(names) and not served[u]
                seen["both"] += served[u] and len(set(names)) == 2
                seen["twice"] += served[u] and len(names) == 2 and len(set(names)) == 1
                seen["taken"] += served[u]
            found = (ctx.get(dut.overflow_unit), ctx.get(dut.overflow_number))
            assert (found if ctx.get(dut.overflow) else None) == overflow
            overflow = model.clock(requests, signals)
            seen["overflow"] += overflow is not None
            await ctx.tick()
            assert [ctx.get(count) for count in dut.counts] == model.counts

    simulate(dut, bench)
    assert all(seen[kind] for kind in ("taken", "both", "blocked"))
    assert seen["twice"] or numbers == 32
    assert seen["overflow"] or signal_rate < 0.8 or numbers == 32


def test_a_signal_can_be_taken_in_the_next_clock():
    dut = Semaphores()

    async def bench(ctx):
        ctx.set(Value.cast(dut.take[6]), request(9, 31))
        ctx.set(dut.take_valid[6], 1)
        ctx.set(dut.signal[0], 31)
        ctx.set(dut.signal_valid[0], 1)
        assert not ctx.get(dut.taken[6])
        assert ctx.get(dut.lacks[6]) == 9
        await ctx.tick()
        assert not ctx.get(dut.taken[6])
        assert ctx.get(dut.counts[31]) == 1  # half of a pair is not taken
        ctx.set(dut.signal[0], 9)
        await ctx.tick()
        assert ctx.get(dut.taken[6])
        ctx.set(dut.signal_valid[0], 0)
        await ctx.tick()
        assert not ctx.get(dut.taken[6])
        await ctx.tick()
        assert ctx.get(dut.counts[31]) == ctx.get(dut.counts[9]) == 0

    simulate(dut, bench)


def test_overflow_names_semaphore_and_signaller_and_the_count_stays():
    dut = Semaphores()

    async def bench(ctx):
        ctx.set(dut.signal[4], 17)
        ctx.set(dut.signal_valid[4], 1)
        for clock in range(258):
            assert ctx.get(dut.overflow) == (clock > 255)
            await ctx.tick()
        assert ctx.get(dut.overflow_number) == 17
        assert ctx.get(dut.overflow_unit) == 4
        assert ctx.get(dut.counts[17]) == 255
        # What is taken makes room for a signal of the next clock.
        ctx.set(Value.cast(dut.take[2]), request(17))
        for _ in range(3):
            ctx.set(dut.signal_valid[4], 0)
            ctx.set(dut.take_valid[2], 1)
            assert ctx.get(dut.taken[2])
            await ctx.tick()
            ctx.set(dut.signal_valid[4], 1)
            ctx.set(dut.take_valid[2], 0)
            await ctx.tick()
            assert ctx.get(dut.counts[17]) == 255
        ctx.set(dut.signal_valid[4], 0)
        await ctx.tick()
        assert not ctx.get(dut.overflow)

    simulate(dut, bench)


@pytest.mark.parametrize("units", [0, 17])
def test_number_of_users(units):
    with pytest.raises(ConfigError, match=f"1 to 16 users, not {units}"):
        Semaphores(units=units)


@pytest.mark.parametrize("units", [1, 16])
def test_other_numbers_of_users(units):
    dut = Semaphores(units=units)
    assert dut.units == units

    async def bench(ctx):
        ctx.set(dut.signal[units - 1], 3)
        ctx.set(dut.signal_valid[units - 1], 1)
        await ctx.tick()
        ctx.set(Value.cast(dut.take[0]), request(3))
        ctx.set(dut.take_valid[0], 1)
        assert ctx.get(dut.taken[0])

    simulate(dut, bench)
