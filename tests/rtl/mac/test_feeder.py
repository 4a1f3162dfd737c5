"""Feeder: every block issued once, in order, with its scales, address and columns."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from pequin.mac.feeder import Feeder
from pequin.mac.types import Cause
from pequin_sim.campaigns.operands import FORMATS, random_acts, random_weights
from pequin_sim.layout import beat_count, blocks_per_beat, pack_weights, scale_beats


def expected_issues(weights, scaled):
    """Return a stream and its payload: (beat, row, plane, block, scales of the groups)."""
    stream = pack_weights(weights, scaled)
    count = beat_count(weights.rows, weights.k, weights.fmt, weights.planes, scaled)
    payload = stream[~scale_beats(count, weights.fmt)] if scaled else stream
    per_beat = blocks_per_beat(weights.fmt)
    order = [
        (row, plane, block)
        for row in range(0, weights.rows, per_beat)
        for plane in range(weights.planes)
        for block in range(weights.blocks)
    ]
    issues = []
    for (row, plane, block), beat in zip(order, payload, strict=True):
        groups = [min(row + g, weights.rows - 1) for g in range(per_beat)]
        scales = [int(weights.scales[plane, r, block]) for r in groups]
        if per_beat == 2 and row + 1 == weights.rows:
            scales[1] = 0x7F if not scaled else 0
        issues.append((int.from_bytes(beat.tobytes(), "little"), row, plane, block, scales))
    return [int.from_bytes(b.tobytes(), "little") for b in stream], issues


class Checker:
    """Follow one command's issues clock by clock."""

    def __init__(self, dut, weights, command):
        self.dut, self.weights, self.command = dut, weights, command
        self.stream, self.issues = expected_issues(weights, command["scaled"])
        self.at = self.chunk_left = 0

    @property
    def done(self):
        return self.at == len(self.issues)

    def expected_take(self, level, may_end):
        """Return (beats to take, whether they are payload): as much as the rules allow."""
        if not level or self.done:
            return 0, False
        if self.command["scaled"] and self.chunk_left == 0:
            return 1, False
        block = self.issues[self.at][3]
        two = (
            self.command["paired"]
            and block % 2 == 0
            and block + 1 < self.weights.blocks
            and level == 2
            and not (self.command["scaled"] and self.chunk_left == 1)
        )
        _, _, plane, last, _ = self.issues[self.at + two]
        if plane + 1 == self.weights.planes and last + 1 == self.weights.blocks and not may_end:
            return 0, False
        return 1 + two, True

    def step(self, take, payload):
        """Account for a clock's beats; return what the tag must show after it."""
        if not payload:
            if take:
                self.chunk_left = 32 // blocks_per_beat(self.weights.fmt)
            return None
        shown = self.issues[self.at : self.at + take]
        self.at += take
        self.chunk_left -= take
        return shown

    def check_tag(self, ctx, shown):
        dut, command = self.dut, self.command
        if not shown:
            assert ctx.get(dut.tag.enable) == 0
            assert not ctx.get(dut.tag.last)
            return
        _, row, plane, block, _ = shown[0]
        sides = range(2) if not command["paired"] else [i[3] % 2 for i in shown]
        assert ctx.get(dut.tag.enable) == sum(1 << s for s in sides)
        for side, issue in zip(sides, shown * 2 if not command["paired"] else shown, strict=True):
            assert ctx.get((dut.even_beat, dut.odd_beat)[side]) == issue[0]
            for g, scale in enumerate(issue[4]):
                assert ctx.get(dut.tag.scales[side][g]) == scale
        assert ctx.get(dut.tag.first) == (plane == 0 and block == 0)
        _, _, plane, block, _ = shown[-1]
        end = plane + 1 == self.weights.planes and block + 1 == self.weights.blocks
        assert ctx.get(dut.tag.last) == end
        tag = ctx.get(dut.tag.row)
        assert tag.row == command["first_row"] + row
        per_beat = blocks_per_beat(self.weights.fmt)
        assert tag.second_row == (per_beat == 2 and row + 1 < self.weights.rows)
        final = end and row + per_beat >= self.weights.rows
        assert tag.final == final
        assert tag.select_first == (command["select_first"] and row == 0)
        assert tag.select_last == (command["select_last"] and final)
        assert tag.last_vector == command["last_vector"]

    def expected_address(self):
        block = self.issues[self.at][3]
        return self.command["base"] + (block // 2 if self.command["paired"] else block)


def random_command(rng, case):
    blocks = int(rng.integers(1, 8))
    weights = random_weights(rng, case, int(rng.integers(1, 6)), random_acts(rng, 1, blocks))
    paired = bool(rng.integers(2))
    fields = {
        "format": int(case.fmt == "mxint8"),
        "two_planes": case.planes - 1,
        "scaled": case.scaled,
        "paired": paired,
        "last_block": blocks - 1,
        "last_row": weights.rows - 1,
        "first_row": int(rng.integers(0, 200)),
        "last_vector": int(rng.integers(0, 2)),
        "base": int(rng.integers(0, 9 - (-(-blocks // 2) if paired else blocks))),
        "sink": int(rng.integers(2)),
        "select_first": int(rng.integers(2)),
        "select_last": int(rng.integers(2)),
    }
    return weights, fields


@pytest.mark.parametrize(("full", "ending"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.4), (0.4, 0.3)])
def test_random_commands(params_of, full, ending):
    rng = np.random.default_rng(int(10 * full + 100 * ending))
    dut = Feeder(params_of("tiny"))
    cases = [random_command(rng, FORMATS[i % len(FORMATS)]) for i in range(30)]

    async def bench(ctx):
        causes = dict.fromkeys(Cause, 0)
        clocks = 0
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, cases[0][1])
        assert ctx.get(dut.cause) == Cause.IDLE
        await ctx.tick()
        for i, (weights, command) in enumerate(cases):
            checker = Checker(dut, weights, command)
            ctx.set(dut.command.valid, i + 1 < len(cases))
            ctx.set(dut.command.payload, cases[min(i + 1, len(cases) - 1)][1])
            at = 0
            while not checker.done:
                left = len(checker.stream) - at
                level = min(left, 2 if rng.random() < full else int(rng.integers(3)))
                may_end = [rng.random() < ending for _ in range(2)]
                heads = [*checker.stream[at : at + level], *[(1 << 256) - 1] * 2]
                ctx.set(dut.level, level)
                for place in range(2):
                    ctx.set(dut.head[place], heads[place])
                    ctx.set(dut.may_end[place], may_end[place])
                take, payload = checker.expected_take(level, may_end[command["sink"]])
                assert ctx.get(dut.take) == take
                assert ctx.get(dut.beats) == (take if payload else 0)
                assert ctx.get(dut.address) == checker.expected_address()
                causes[ctx.get(dut.cause)] += 1
                shown = checker.step(take, payload)
                assert ctx.get(dut.command.ready) == checker.done
                await ctx.tick()
                clocks += 1
                at += take
                checker.check_tag(ctx, shown)
        assert ctx.get(dut.cause) == Cause.IDLE
        assert causes[Cause.IDLE] == 0
        assert sum(causes.values()) == clocks
        assert (causes[Cause.WEIGHTS] > 0) == (full < 1)
        assert (causes[Cause.OUTPUT] > 0) == (ending < 1)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
