import random

import pytest

from pequin.host.crc import Crc32c
from pequin_sim.protocol import crc32c


def words_of(message, rng):
    """Cut a message into words of one to eight bytes."""
    at = 0
    while at < len(message):
        size = rng.randint(1, 8)
        yield message[at : at + size]
        at += size


@pytest.mark.parametrize("seed", range(3))
def test_messages_in_words_of_any_size(simulate, seed):
    crc, rng = Crc32c(), random.Random(seed)
    messages = [rng.randbytes(rng.randint(1, 60)) for _ in range(60)]

    async def bench(ctx):
        for message in messages:
            checked = message + crc32c(message).to_bytes(4, "little")
            for data, good in ((message, False), (checked, True)):
                for number, word in enumerate(words_of(data, rng)):
                    # Bytes beyond the count are noise.
                    noise = word + rng.randbytes(8 - len(word))
                    ctx.set(crc.data, int.from_bytes(noise, "little"))
                    ctx.set(crc.count, len(word))
                    ctx.set(crc.first, number == 0)
                    ctx.set(crc.enable, 1)
                    await ctx.tick()
                    ctx.set(crc.enable, 0)
                    if rng.random() < 0.3:
                        await ctx.tick()
                assert ctx.get(crc.crc) == crc32c(data)
                assert ctx.get(crc.good) == good

    simulate(crc, bench)


def test_a_wrong_bit_is_not_good(simulate):
    crc = Crc32c()
    data = b"payload!" + crc32c(b"payload!").to_bytes(4, "little")

    async def bench(ctx):
        for bit in range(8 * len(data)):
            wrong = bytearray(data)
            wrong[bit // 8] ^= 1 << bit % 8
            for at in (0, 8):
                word = bytes(wrong[at : at + 8])
                ctx.set(crc.data, int.from_bytes(word, "little"))
                ctx.set(crc.count, len(word))
                ctx.set(crc.first, at == 0)
                ctx.set(crc.enable, 1)
                await ctx.tick()
            assert not ctx.get(crc.good)

    simulate(crc, bench)
