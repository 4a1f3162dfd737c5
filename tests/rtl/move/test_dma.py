"""DmaUnit: rows, blocks and scales against numpy; errors in their turn."""

import numpy as np
import pytest

from pequin.move.dma import DmaUnit
from pequin.move.types import DmaCause
from pequin.tile.types import ErrorCode

KV_BEATS = 512


class VectorMemory:
    """Takes writes one at a time; `written` is low while one is not carried out."""

    def __init__(self, dut, size, *, slow, rng):
        self.dut, self.size, self.slow, self.rng = dut, size, slow, rng
        self.elements = np.zeros(size, np.uint32)
        self.left, self.write, self.count = 0, None, 0

    def drive(self, ctx):
        ctx.set(self.dut.access.ready, self.left == 0)
        ctx.set(self.dut.written, self.left == 0)

    def sample(self, ctx):
        if self.left:
            self.left -= 1
            if self.left == 0:
                address, data = self.write
                words = np.frombuffer(data.to_bytes(32, "little"), "<u4")
                self.elements[address : address + 8] = words
        elif ctx.get(self.dut.access.valid):
            given = self.dut.access.payload
            assert ctx.get(given.write)
            self.write = ctx.get(given.address), ctx.get(given.data)
            self.left = 1 if not self.slow else int(self.rng.choice([1, 2, 40]))
            self.count += 1


class KvBuffer:
    """Answers requests for beats in order."""

    def __init__(self, dut, beats, *, rest, rng, lost=()):
        self.dut, self.beats, self.rest, self.rng, self.lost = dut, beats, rest, rng, lost
        self.waiting, self.offered, self.clock = [], None, 0

    def drive(self, ctx):
        if self.offered is None and self.waiting and self.waiting[0][0] <= self.clock:
            self.offered = self.waiting.pop(0)[1]
        ctx.set(self.dut.kv_data.valid, self.offered is not None)
        if self.offered is not None:
            error, beat = self.offered
            ctx.set(self.dut.kv_data.payload.error, error)
            ctx.set(self.dut.kv_data.payload.data, beat)
        self.ready = self.rng.random() >= self.rest
        ctx.set(self.dut.kv_request.ready, self.ready)

    def sample(self, ctx):
        if self.offered is not None and ctx.get(self.dut.kv_data.ready):
            self.offered = None
        if self.ready and ctx.get(self.dut.kv_request.valid):
            address = ctx.get(self.dut.kv_request.payload)
            self.waiting.append((self.clock + 5, self._answer(address)))
        self.clock += 1

    def _answer(self, address):
        if address >= len(self.beats):
            return ErrorCode.KV_ADDRESS, 0
        if address in self.lost:
            return ErrorCode.SRAM_ECC, 0
        return ErrorCode.NONE, self.beats[address]


def beat_bytes(value):
    return np.frombuffer(value.to_bytes(32, "little"), np.uint8)


class Run:
    """A DMA unit among its neighbours."""

    def __init__(self, fixtures, params, commands, *, rest=0.0, slow=False, blocks=2, **options):
        hbm, source, sink, clocked, store = fixtures
        self.rng = rng = np.random.default_rng(options.pop("seed", 0))
        self.dut = dut = DmaUnit(params)
        self.params, self.commands, self.blocks = params, commands, blocks
        self.store = store(rng, 4096)
        self.kv_beats = store(rng, KV_BEATS)
        # All scales occur, and those of value zero and NaN often.
        scales = rng.choice([0, 0xFF, 1, 127, 254], 32).astype(np.uint8)
        self.kv_beats[blocks] = int.from_bytes(scales.tobytes(), "little")
        pausing = {"rest": rest, "rng": rng}
        self.hbm = hbm(dut.port, self.store, **pausing, bad=options.pop("bad", ()))
        self.source = source(dut.command, commands, **pausing)
        self.kv = KvBuffer(dut, self.kv_beats, **pausing, lost=options.pop("lost", ()))
        self.memory = VectorMemory(dut, params.config.vector_elements, slow=slow, rng=rng)
        self.sink = sink(dut.blocks, lambda c, p: (c.get(p.elements), c.get(p.scale)), **pausing)
        self.done_at, self.faults = [], []
        self.causes = dict.fromkeys(DmaCause, 0)
        until = options.pop("until", lambda r: len(r.done_at) == len(commands))
        models = [self.hbm, self.source, self.kv, self.memory, self.sink]
        self.clocks = clocked(dut, models, lambda: until(self), watch=self.watch, **options)

    def watch(self, ctx, clock):
        ctx.set(self.dut.token_blocks, self.blocks)
        self.causes[ctx.get(self.dut.cause)] += 1
        if ctx.get(self.dut.done):
            # All it writes is carried out, not only accepted.
            assert self.memory.left == 0
            self.done_at.append((clock, self.memory.count, len(self.sink.items)))
        if ctx.get(self.dut.fault_valid):
            fault = ctx.get(self.dut.fault)
            self.faults.append((fault.code, fault.detail))
            self.fault_clock = clock


def golden(run, commands):
    """Return vector memory, blocks, and (writes, blocks) after each command."""
    elements = np.zeros(run.params.config.vector_elements, np.uint32)
    blocks, writes, ends = [], 0, []
    for kind, source, target, count, step in commands:
        if kind == 0:
            for i in range(count):
                row = beat_bytes(run.store[source + i]).view("<u4")
                elements[target + 8 * i : target + 8 * i + 8] = row
            writes += count
        elif kind == 1:
            scales, at = [], source
            for i in range(count):
                if i % 32 == 0:
                    scales = beat_bytes(run.store[at])
                    at += 1
                blocks.append((run.store[at], int(scales[i % 32])))
                at += 1
        else:
            for i in range(count):
                codes = beat_bytes(run.kv_beats[source + i * step + run.blocks])
                with np.errstate(over="ignore"):
                    powers = np.ldexp(np.float32(1), codes.astype(np.int32) - 127)
                powers = np.where(codes == 0, np.float32(0), powers).astype(np.float32)
                bits = np.where(codes == 0xFF, np.uint32(0x7FC00000), powers.view(np.uint32))
                elements[target + 32 * i : target + 32 * i + 32] = bits
            writes += 4 * count
        ends.append((writes, len(blocks)))
    return elements, blocks, ends


@pytest.fixture
def run(hbm, source, sink, clocked, store):
    def start(*args, **options):
        return Run((hbm, source, sink, clocked, store), *args, **options)

    return start


def random_commands(rng, count, elements):
    commands = []
    for _ in range(count):
        kind = int(rng.integers(3))
        number = int(rng.choice([1, 2, 5, 32, 33])) if kind == 1 else int(rng.integers(1, 6))
        size = {0: 8, 1: 0, 2: 32}[kind] * number
        target = 8 * int(rng.integers(0, (elements - size) // 8 + 1))
        step = 8 * int(rng.integers(0, 8))
        source = int(rng.integers(0, 4000)) if kind < 2 else 8 * int(rng.integers(0, 25))
        if kind == 0 and rng.random() < 0.2:
            number = min(100, (elements - target) // 8)
            source = int(rng.integers(0, 3900))
        commands.append((kind, source, target, number, step))
    return commands


@pytest.mark.parametrize(("rest", "slow"), [(0.0, False), (0.3, False), (0.3, True)])
@pytest.mark.parametrize("seed", range(3))
def test_random_commands(run, params_of, seed, rest, slow):
    params = params_of("tiny")
    commands = random_commands(np.random.default_rng(seed), 25, params.config.vector_elements)
    got = run(params, commands, rest=rest, slow=slow, seed=seed)
    elements, blocks, ends = golden(got, commands)
    np.testing.assert_array_equal(got.memory.elements, elements)
    assert got.sink.items == blocks
    assert [(w, b) for _, w, b in got.done_at] == ends
    assert not got.faults
    assert sum(got.causes.values()) == got.clocks
    busy = got.causes[DmaCause.BUSY]
    assert busy == ends[-1][0] + ends[-1][1]


def test_a_row_of_blocks_takes_a_clock_for_each_beat(run, params_of):
    got = run(params_of("tiny"), [(1, 0, 0, 90, 0), (1, 200, 0, 64, 0)])
    # 20 clocks of HBM latency, a few for the command, and the second one's beats are there.
    assert got.done_at[0][0] <= 93 + 20 + 10
    assert got.clocks <= 93 + 66 + 20 + 16
    assert got.causes[DmaCause.SCALE] == 5


def test_rows_are_as_fast_as_vector_memory(run, params_of):
    got = run(params_of("tiny"), [(0, 0, 0, 128, 0)])
    # The model takes a write every other clock.
    assert got.clocks <= 2 * 128 + 20 + 12
    assert got.causes[DmaCause.OUTPUT] > 100


def test_scales_take_four_writes_for_each_granule(run, params_of):
    got = run(params_of("tiny"), [(2, 0, 0, 16, 24)])
    assert got.clocks <= 2 * 4 * 16 + 24


def failed(run):
    """Tell whether a fault came some time ago: all that was asked for has come as well."""
    return bool(run.faults) and run.hbm.clock > run.fault_clock + 200


COMMANDS = {
    "kind": ((3, 0, 0, 1, 0), (ErrorCode.COMMAND, 3)),
    "far kind": (((1 << 31) | 1, 0, 0, 1, 0), (ErrorCode.COMMAND, (1 << 31) | 1)),
    "no beats": ((0, 0, 0, 0, 0), (ErrorCode.COMMAND, 0)),
    "no blocks": ((1, 0, 0, 0, 0), (ErrorCode.COMMAND, 1)),
    "no granules": ((2, 0, 0, 0, 0), (ErrorCode.COMMAND, 2)),
    "misaligned": ((0, 0, 4, 1, 0), (ErrorCode.COMMAND, 0)),
    "beyond": ((0, 0, 1016, 2, 0), (ErrorCode.COMMAND, 0)),
    "scales beyond": ((2, 0, 1000, 1, 0), (ErrorCode.COMMAND, 2)),
    "far beyond": ((0, 0, 1 << 31, 1, 0), (ErrorCode.COMMAND, 0)),
    "very many": ((0, 0, 0, 1 << 29, 0), (ErrorCode.COMMAND, 0)),
    "misaligned granule": ((2, 12, 0, 2, 8), (ErrorCode.KV_ADDRESS, 12)),
    "misaligned step": ((2, 16, 0, 2, 9), (ErrorCode.KV_ADDRESS, 25)),
    "granule outside": ((2, 504, 0, 2, 8), (ErrorCode.KV_ADDRESS, 514)),
    "HBM outside": ((1, 4090, 0, 32, 0), (ErrorCode.HBM_ADDRESS, 4090)),
    "HBM far outside": ((0, (1 << 32) - 1, 0, 5, 0), (ErrorCode.HBM_ADDRESS, (1 << 32) - 1)),
    "second chunk outside": ((0, 4000, 0, 128, 0), (ErrorCode.HBM_ADDRESS, 4000)),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("rest", [0.0, 0.3])
def test_bad_commands_are_told_in_their_turn(run, params_of, name, rest):
    words, fault = COMMANDS[name]
    good = (0, 30, 16, 70, 0)
    got = run(params_of("tiny"), [good, words, good], rest=rest, until=failed)
    assert got.faults == [fault]
    assert len(got.done_at) == 1
    assert not got.hbm.beats
    assert got.causes[DmaCause.IDLE] > 50


def test_scales_need_a_configured_buffer(run, params_of):
    got = run(params_of("tiny"), [(2, 64, 0, 1, 0)], blocks=0, until=failed)
    assert got.faults == [(ErrorCode.KV_ADDRESS, 64)]


def test_a_step_of_a_single_granule_is_not_looked_at(run, params_of):
    commands = [(2, 64, 0, 1, 3)]
    got = run(params_of("tiny"), commands)
    np.testing.assert_array_equal(got.memory.elements, golden(got, commands)[0])


@pytest.mark.parametrize("kind", [0, 1])
def test_an_uncorrectable_beat_is_told_with_its_address(run, params_of, kind):
    got = run(params_of("tiny"), [(kind, 10, 0, 50, 0)], bad=[43, 50], until=failed)
    assert got.faults == [(ErrorCode.HBM_ECC, 43)]
    assert got.memory.count == (33 if kind == 0 else 0)
    assert len(got.sink.items) == (32 if kind == 1 else 0)


def test_an_uncorrectable_scale_beat_is_told_with_memory_and_address(run, params_of):
    got = run(params_of("tiny"), [(2, 0, 0, 3, 8)], lost=[10], until=failed)
    assert got.faults == [(ErrorCode.SRAM_ECC, 2 << 28 | 10)]
