"""Registers: every beat, the settings that are writable, and that nothing else is."""

import numpy as np
import pytest

from pequin.counters import COUNTER_BITS
from pequin.errors import ConfigError
from pequin.hbm.types import RefreshMode
from pequin.tile.registers import MAGIC, VERSION, WATCHDOG_CLOCKS, Registers, register_beats
from pequin.tile.types import SEMAPHORES, ErrorCode

COUNTERS = 10


@pytest.mark.parametrize("counters", [0, -1])
def test_needs_a_counter(params_of, counters):
    message = rf"registers need at least one counter, not {counters}$"
    with pytest.raises(ConfigError, match=message):
        Registers(params_of("tiny"), counters=counters)


@pytest.mark.parametrize(("counters", "beats"), [(1, 5), (4, 5), (5, 6), (10, 7), (64, 20)])
def test_size(params_of, counters, beats):
    assert Registers(params_of("tiny"), counters=counters).beats == beats
    assert register_beats(counters) == beats


class Tile:
    """The tile's state: it changes in every clock."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.history = dut, rng, []

    def drive(self, ctx, rng):
        now = {
            "status": [int(n) for n in self.rng.integers(1 << 32, size=8)],
            "semaphores": [int(n) for n in self.rng.integers(1 << 8, size=SEMAPHORES)],
            "counter": [int(n) for n in self.rng.integers(1 << COUNTER_BITS, size=COUNTERS)],
        }
        for name, values in now.items():
            for port, value in zip(getattr(self.dut, name), values, strict=True):
                ctx.set(port, value)
        self.history.append(now)

    def sample(self, ctx, clock):
        pass


def words(values, bits):
    return sum(value << bits * i for i, value in enumerate(values))


def expected_beats(params, now, settings):
    c = params.config
    counts = now["counter"]
    identity = [MAGIC, VERSION, c.columns, c.lanes, c.vector_elements, c.kv_beats]
    return [
        words([*identity, c.program_words, COUNTERS], 32),
        words(now["status"], 32),
        words(now["semaphores"], 8),
        words(settings, 32),
        *(words(counts[i : i + 4], 64) for i in range(0, COUNTERS, 4)),
    ]


def random_accesses(rng, count):
    made = []
    for _ in range(count):
        address = int(rng.integers(7)) if rng.random() < 0.7 else 3
        data = int.from_bytes(rng.bytes(32), "little")
        mode, hold = int(rng.integers(3)), int(rng.integers(2))
        # Reserved bits are written as zero.
        data = (data & 0xFFFFFFFF) | mode << 32 | hold << 64 | data >> 96 << 96
        made.append({"write": int(rng.random() < 0.4), "address": address, "data": data})
    return made


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("rates", [(1, 1), (0.4, 0.3)])
def test_random_accesses(sim, params_of, preset, rates):
    params, rng = params_of(preset), np.random.default_rng(41)
    dut = Registers(params, counters=COUNTERS)
    tile = Tile(dut, rng)
    given = random_accesses(rng, 60)
    access = sim.Source(dut.access, list(given), rate=rates[0])
    answer = sim.Sink(dut.answer, rate=rates[1])
    shown = []

    def after(ctx, clock):
        refresh = ctx.get(dut.refresh)
        shown.append([ctx.get(dut.watchdog), refresh.value, ctx.get(dut.hold)])

    sim.run(
        dut,
        [tile, access, answer],
        seed=2,
        after=after,
        clocks=2000,
        until=lambda: len(answer.got) == len(given),
    )
    assert shown[0] == [WATCHDOG_CLOCKS, RefreshMode.PER_BANK.value, 0]
    settings = shown[0]
    for request, clock, got in zip(given, access.clocks, answer.got, strict=True):
        if request["write"]:
            allowed = request["address"] == 3
            assert got["error"] == (ErrorCode.NONE if allowed else ErrorCode.ACCESS).value
            if allowed:
                data = request["data"]
                settings = [data & 0xFFFFFFFF, data >> 32 & 3, data >> 64 & 1]
        else:
            # All words are of the clock after the access was accepted.
            beats = expected_beats(params, tile.history[clock + 1], settings)
            assert got == {"error": 0, "data": beats[request["address"]]}
        assert shown[clock + 2] == settings
    assert settings != shown[0]


def test_timing(sim, params_of):
    dut = Registers(params_of("tiny"), counters=1)
    access = sim.Source(dut.access, [{"write": 0, "address": 0, "data": 0}] * 4, rate=1)
    answer = sim.Sink(dut.answer, rate=1)
    sim.run(dut, [access, answer], clocks=20)
    assert answer.clocks == [clock + 2 for clock in access.clocks]
    assert access.clocks == [0, 3, 6, 9]
