"""The port in Amaranth's simulator: what a clock more or less would change."""

from pequin.config import TileConfig, TileParams
from pequin.host import HostPort
from pequin.host.types import HostCause
from pequin.tile.types import ControlKind, Memory
from pequin_sim.protocol import Ack, Hello, Read, Start, Stop, Welcome, decode, encode

PARAMS = TileParams(TileConfig.preset("tiny"))


async def send(ctx, port, frame):
    """Put a packet on the link; return after its last word."""
    for at in range(0, len(frame), 8):
        word = frame[at : at + 8]
        ctx.set(port.rx.payload.data, int.from_bytes(word, "little"))
        ctx.set(port.rx.payload.count, len(word))
        ctx.set(port.rx.payload.last, at + 8 >= len(frame))
        ctx.set(port.rx.valid, 1)
        assert ctx.get(port.rx.ready)
        await ctx.tick()
    ctx.set(port.rx.valid, 0)


async def receive(ctx, port, limit=100):
    """Take a packet from the link."""
    frame = b""
    ctx.set(port.tx.ready, 1)
    for _ in range(limit):
        if ctx.get(port.tx.valid):
            word = port.tx.payload
            frame += ctx.get(word.data).to_bytes(8, "little")[: ctx.get(word.count)]
            last = ctx.get(word.last)
            await ctx.tick()
            if last:
                return decode(frame)
        else:
            await ctx.tick()
    raise AssertionError(f"no packet in {limit} clocks")


def test_an_order_reaches_the_tile_in_four_clocks(simulate):
    port = HostPort(PARAMS)

    async def bench(ctx):
        for packet, kind in ((Start(pc=5), ControlKind.START), (Stop(), ControlKind.STOP)):
            await send(ctx, port, encode(packet))
            for _ in range(3):  # the clock after the last word is the first of the four
                assert not ctx.get(port.control.valid)
                await ctx.tick()
            assert ctx.get(port.control.valid)
            assert ctx.get(port.control.payload.kind) == kind
            ctx.set(port.control.ready, 1)
            await ctx.tick()
            ctx.set(port.control.ready, 0)

    simulate(port, bench)


def test_orders_are_acknowledged_when_the_tile_takes_them(simulate):
    port = HostPort(PARAMS)

    async def bench(ctx):
        await send(ctx, port, encode(Hello(id=1, credit=1000)))
        assert isinstance(await receive(ctx, port), Welcome)
        await send(ctx, port, encode(Start(id=2)))
        for _ in range(50):
            assert not ctx.get(port.tx.valid)
            await ctx.tick()
        ctx.set(port.control.ready, 1)
        assert await receive(ctx, port) == Ack(id=2, request=Start.TYPE)

    simulate(port, bench)


def test_causes(simulate):
    port, seen = HostPort(PARAMS), []

    async def watch(ctx):
        while True:
            await ctx.tick()
            seen.append(ctx.get(port.cause))

    async def bench(ctx):
        await ctx.tick().repeat(3)
        assert set(seen) == {HostCause.IDLE}
        seen.clear()
        await send(ctx, port, encode(Read(id=1, memory=Memory.KV.value, address=0, beats=1)))
        await ctx.tick().repeat(30)  # the tile does not take the access
        assert seen[-1] == HostCause.TILE
        ctx.set(port.accesses.ready, 1)
        ctx.set(port.answers.valid, 1)
        await ctx.tick().repeat(30)  # no credit
        assert seen[-1] == HostCause.CREDIT
        await send(ctx, port, encode(Hello(id=2, credit=1000)))
        await ctx.tick().repeat(30)  # nobody takes the words
        assert seen[-1] == HostCause.LINK
        await receive(ctx, port)
        await receive(ctx, port)
        await ctx.tick().repeat(3)
        assert seen[-1] == HostCause.IDLE
        assert {HostCause.RX, HostCause.TX} <= set(seen)

    # The watcher must not keep the simulation alive.
    from amaranth.sim import Simulator

    simulator = Simulator(port)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.add_testbench(watch, background=True)
    simulator.run()
