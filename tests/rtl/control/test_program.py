"""The program memory: fetches, the host's beats, errors of one and two bits, in both simulators."""

import random

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from pequin.config import TileConfig, TileParams
from pequin.control.program import ProgramMemory
from pequin.export import elaborate
from pequin_sim.runner import simulate

ACCESS, SRAM_ECC = 15, 10
WORDS = 64


class Bench:
    """A host that accesses at random times and a sequencer that fetches at random addresses."""

    def __init__(self, params, *, seed=0, fetch_rate=0.7, pause=0.3):
        self.dut = ProgramMemory(params(program_words=WORDS))
        self.random, self.fetch_rate, self.pause = random.Random(seed), fetch_rate, pause
        self.words, self.errors = [0] * WORDS, [0] * WORDS
        self.pipe, self.fetched, self.repaired = [None, None], 0, 0
        self.taken = 0

    def run(self, script):
        async def bench(ctx):
            await script(self, ctx)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()

    async def tick(self, ctx):
        """One clock of the sequencer's side: what was asked two clocks ago is there."""
        fetch, address = self.dut.fetch, self.pipe[1]
        if address is not None and address != "host":
            failed = self.errors[address].bit_count() == 2
            assert ctx.get(fetch.failed) == failed
            assert failed or ctx.get(fetch.instruction) == self.words[address]
            self.fetched += 1
        self.repaired += ctx.get(self.dut.repaired)
        assert ctx.get(self.dut.repairs) == self.repaired - ctx.get(self.dut.repaired)
        asks = self.random.random() < self.fetch_rate
        asked = self.random.randrange(WORDS)
        ctx.set(fetch.address.valid, asks)
        ctx.set(fetch.address.payload, asked + WORDS * self.random.randrange(3))
        accepted = asks and ctx.get(fetch.address.ready)
        self.taken += asks and not accepted
        self.pipe = [asked if accepted else None, self.pipe[0]]
        await ctx.tick()

    async def access(self, ctx, address, data=None, flip=0):
        """Write or read a beat; return the answer and the clocks it took."""
        dut = self.dut
        payload = int(data is not None) | address << 1 | (data or 0) << 33
        ctx.set(Value.cast(dut.access.payload), payload)
        ctx.set(dut.access.valid, 1)
        ctx.set(dut.flip, flip)
        if data is not None:  # what is fetched meanwhile is not defined
            rate, self.fetch_rate = self.fetch_rate, 0.0
            self.pipe = [None, None]
        clocks = 0
        assert ctx.get(dut.access.ready)
        while True:
            await self.tick(ctx)
            clocks += 1
            ctx.set(dut.access.valid, 0)
            ctx.set(dut.answer.ready, self.random.random() >= self.pause)
            if ctx.get(dut.answer.valid) and ctx.get(dut.answer.ready):
                break
        error = ctx.get(Value.cast(dut.answer.payload.error))
        answer = ctx.get(dut.answer.payload.data)
        await self.tick(ctx)
        if data is not None:
            self.fetch_rate = rate
            if not error:
                for i in range(4):
                    self.words[4 * address + i] = data >> 64 * i & (1 << 64) - 1
                    self.errors[4 * address + i] = flip
            assert answer == 0
        return error, answer, clocks


@pytest.mark.parametrize(("fetch_rate", "pause"), [(0.0, 0.0), (0.5, 0.4), (1.0, 0.0), (1.0, 0.8)])
def test_random_accesses_and_fetches(params, model_ram, fetch_rate, pause):
    rng = random.Random(7)

    async def script(bench, ctx):
        for _ in range(120):
            address = rng.choice((*range(WORDS // 4), WORDS // 4, 1 << 31))
            inside = address < WORDS // 4
            if rng.random() < 0.5:
                flip = rng.choice((0, 1 << rng.randrange(72)))
                if rng.random() < 0.3:
                    flip = sum(1 << bit for bit in rng.sample(range(72), 2))
                error, *_ = await bench.access(ctx, address, rng.getrandbits(256), flip)
                assert error == (0 if inside else ACCESS)
            else:
                error, answer, _ = await bench.access(ctx, address)
                own = bench.words[4 * address : 4 * address + 4] if inside else [0] * 4
                bad = inside and any(
                    e.bit_count() == 2 for e in bench.errors[4 * address : 4 * address + 4]
                )
                assert error == (SRAM_ECC if bad else 0 if inside else ACCESS)
                expected = 0 if bad else sum(word << 64 * i for i, word in enumerate(own))
                assert answer == expected
            for _ in range(rng.randrange(5)):
                await bench.tick(ctx)

    bench = Bench(params, seed=3, fetch_rate=fetch_rate, pause=pause)
    bench.run(script)
    assert bench.repaired > 5
    assert (bench.fetched > 100) == (fetch_rate > 0)
    assert (bench.taken > 0) == (fetch_rate > 0)


def test_clocks_of_an_access(params, model_ram):
    async def script(bench, ctx):
        assert await bench.access(ctx, 3, 1 << 255 | 77) == (0, 0, 6)
        assert await bench.access(ctx, 3) == (0, 1 << 255 | 77, 8)

    Bench(params, fetch_rate=0.5, pause=0.0).run(script)


def test_every_single_bit_is_corrected(params, model_ram):
    async def script(bench, ctx):
        for bit in range(72):
            data = random.Random(bit).getrandbits(256)
            await bench.access(ctx, 1, data, 1 << bit)
            assert (await bench.access(ctx, 1))[:2] == (0, data)
            assert ctx.get(bench.dut.repairs) == 4 * (bit + 1)

    Bench(params, fetch_rate=0.0, pause=0.0).run(script)


TESTBENCH = '''
import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from pequin_tb import job


@cocotb.test()
async def script(dut):
    """Write the beats, fetch every word, read the beats again."""
    given = job.load()
    dut.access__valid.value = dut.fetch__address__valid.value = 0
    dut.answer__ready.value = 1
    dut.flip.value = 0
    job.start_clock(dut)
    await RisingEdge(dut.clk)

    async def access(write, address, data):
        dut.access__payload.value = write | address << 1 | data << 33
        dut.access__valid.value = 1
        await RisingEdge(dut.clk)
        dut.access__valid.value = 0
        await FallingEdge(dut.clk)
        while not int(dut.answer__valid.value):
            await FallingEdge(dut.clk)
        answer = int(dut.answer__payload.value)
        await RisingEdge(dut.clk)
        return answer

    for address, beat in enumerate(given["beats"]):
        await access(1, address, int(beat, 16))
    words = []
    dut.fetch__address__valid.value = 1
    for address in range(4 * len(given["beats"]) + 2):
        dut.fetch__address__payload.value = address
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        if address:
            words.append(hex(int(dut.fetch__instruction.value)))
    dut.fetch__address__valid.value = 0
    beats = [hex(await access(0, address, 0) >> 8) for address in range(len(given["beats"]))]
    job.finish({"words": words, "beats": beats})
'''


def test_in_verilog(tmp_path, monkeypatch):
    (tmp_path / "program_script.py").write_text(TESTBENCH)
    monkeypatch.syspath_prepend(tmp_path)
    rng = random.Random(1)
    beats = [rng.getrandbits(256) for _ in range(4)]
    design = elaborate(ProgramMemory(TileParams(TileConfig.preset("tiny"))), "program_memory")
    job = {"beats": [hex(beat) for beat in beats]}
    done = simulate(design, test_module="program_script", job=job)
    words = [beat >> 64 * i & (1 << 64) - 1 for beat in beats for i in range(4)]
    assert [int(word, 16) for word in done.result["words"][: len(words)]] == words
    assert [int(beat, 16) for beat in done.result["beats"]] == beats
