import random

import pytest

from pequin.host.steps import StepBuffer
from pequin.tile.types import COUNT_FIELD


async def fill(ctx, buffer, table):
    """Write a table as it comes from the link: two fields a word."""
    assert ctx.get(buffer.room)
    values = [value for row in table for value in row]
    for index in range(len(values) // 2):
        ctx.set(buffer.body, values[2 * index] | values[2 * index + 1] << 32)
        ctx.set(buffer.body_index, index)
        ctx.set(buffer.body_valid, 1)
        await ctx.tick()
    ctx.set(buffer.body_valid, 0)
    ctx.set(buffer.count, len(table))
    ctx.set(buffer.accept, 1)
    await ctx.tick()
    ctx.set(buffer.accept, 0)


async def take(ctx, buffer, items, rng):
    """Take items with random pauses; return them."""
    taken = []
    while len(taken) < items:
        ready = rng.random() < 0.6
        ctx.set(buffer.steps.ready, ready)
        if ready and ctx.get(buffer.steps.valid):
            item = buffer.steps.payload
            taken.append(tuple(ctx.get(getattr(item, n)) for n in ITEM))
        await ctx.tick()
    ctx.set(buffer.steps.ready, 0)
    return taken


ITEM = ("commit", "column", "field", "value")


def expected(table):
    items = [(0, c, f, value) for c, row in enumerate(table) for f, value in enumerate(row)]
    return [*items, (1, 0, COUNT_FIELD, len(table))]


@pytest.mark.parametrize("columns", [1, 2, 16])
def test_every_field_of_every_step(simulate, columns):
    buffer, rng = StepBuffer(columns=columns), random.Random(columns)
    assert buffer.columns == columns

    async def bench(ctx):
        for _ in range(20):
            count = rng.randint(1, columns)
            table = [[rng.getrandbits(32) for _ in range(6)] for _ in range(count)]
            await fill(ctx, buffer, table)
            assert not ctx.get(buffer.room)
            assert await take(ctx, buffer, 6 * count + 1, rng) == expected(table)

    simulate(buffer, bench)


@pytest.mark.parametrize("taken", range(14))
def test_a_dropped_step_leaves_nothing(simulate, taken):
    buffer, rng = StepBuffer(columns=2), random.Random(taken)
    table = [[10 * c + f for f in range(6)] for c in range(2)]

    async def bench(ctx):
        await fill(ctx, buffer, [[99] * 6] * 2)
        await take(ctx, buffer, min(taken, 12), rng)
        if taken == 13:  # while it fetches
            await ctx.tick()
        ctx.set(buffer.drop, 1)
        await ctx.tick()
        ctx.set(buffer.drop, 0)
        assert ctx.get(buffer.room)
        assert not ctx.get(buffer.steps.valid)
        await fill(ctx, buffer, table)
        assert await take(ctx, buffer, 13, rng) == expected(table)

    simulate(buffer, bench)
