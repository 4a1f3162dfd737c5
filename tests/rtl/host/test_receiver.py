"""Verdicts against the decoder in Python, frames following each other without a gap."""

import random

import numpy as np
import pytest

from pequin.errors import ConfigError
from pequin.host.receiver import PacketReceiver
from pequin.host.types import NakCode
from pequin_sim.protocol import Column, Credit, MemoryId, Read, Step, Write, encode, judge
from pequin_tb.host.damage import damage


def frames_of(seed, columns):
    rng, random_ = np.random.default_rng(seed), random.Random(seed)
    for number in range(400):
        size = 32 * random_.choice([1, 1, 2, 2, 3, 64])
        yield random_.choice(
            [
                *[
                    lambda s=size, n=number: damage(
                        encode(Write(id=n, memory=MemoryId.KV, address=n, data=rng.bytes(s))), rng
                    )
                ]
                * 4,
                lambda n=number: encode(Read(id=n, memory=MemoryId.HBM, address=n, beats=7)),
                lambda n=number: encode(Credit(id=n, total=n)),
                lambda n=number: encode(Step(id=n, columns=(Column(token=n),) * columns)),
                lambda: rng.bytes(random_.randint(1, 24)),
            ]
        )()


@pytest.mark.parametrize(("seed", "columns", "gap"), [(1, 2, 0.0), (2, 2, 0.3), (3, 100, 0.0)])
def test_random_frames(simulate, seed, columns, gap):
    receiver, rng = PacketReceiver(columns=columns), random.Random(seed)
    frames = list(frames_of(seed, columns))
    verdicts, bodies = [], []

    async def send(ctx):
        for frame in frames:
            for at in range(0, len(frame), 8):
                word = frame[at : at + 8]
                noise = word + rng.randbytes(8 - len(word))
                ctx.set(receiver.input.payload.data, int.from_bytes(noise, "little"))
                ctx.set(receiver.input.payload.count, len(word))
                ctx.set(receiver.input.payload.last, at + 8 >= len(frame))
                ctx.set(receiver.input.valid, 1)
                assert ctx.get(receiver.input.ready)
                await ctx.tick()
                ctx.set(receiver.input.valid, 0)
                while rng.random() < gap:
                    await ctx.tick()

    async def watch(ctx):
        body = {}
        while len(verdicts) < len(frames):
            await ctx.tick()
            if ctx.get(receiver.packet_valid):
                packet = receiver.packet
                verdicts.append((ctx.get(packet.refusal), ctx.get(packet.header.id)))
            if ctx.get(receiver.begin):
                body = {}
                bodies.append(body)
            if ctx.get(receiver.body_valid):
                body[ctx.get(receiver.body_index)] = ctx.get(receiver.body)

    simulate(receiver, send, watch)
    wanted = [judge(frame, columns=columns) for frame in frames]
    assert [code for code, _ in verdicts] == [NakCode(rule or 0) for rule in wanted]
    assert {0, 1, 3, 4, 5, 6} <= {int(rule or 0) for rule in wanted}
    for frame, (_, number) in zip(frames, verdicts, strict=True):
        assert number == (int.from_bytes(frame[4:6], "little") if len(frame) >= 8 else 0)
    long = [frame for frame in frames if len(frame) > 16]
    assert len(bodies) == len(long)
    for frame, rule, body in zip(
        long, (judge(f, columns=columns) for f in long), bodies, strict=True
    ):
        if rule is None:
            given = b"".join(body[i].to_bytes(8, "little") for i in range(len(body)))
            assert given == frame[16:-4]


@pytest.mark.parametrize("columns", [0, 256])
def test_bad_columns_are_refused(columns):
    with pytest.raises(ConfigError, match=f"columns must be 1 to 255, not {columns}"):
        PacketReceiver(columns=columns)
