"""Conversations with the stub of `pequin.harness.tile_stub`.

Job keys beside those of `pequin_tb.host.bench`: `seed`, and those that a test names.
"""

from __future__ import annotations

import functools
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from pequin_sim.protocol import (
    Ack,
    Column,
    Event,
    EventKind,
    HostSession,
    MemoryId,
    Nak,
    Packet,
    Read,
    Rule,
    Start,
    Step,
    Stop,
    Write,
    decode,
    encode,
    judge,
)
from pequin_sim.protocol.packets import ACCESS_ERROR
from pequin_tb.host.bench import connect
from pequin_tb.host.damage import damage
from pequin_tb.host.link import LinkTimeout, RequestRefused, TileLink
from pequin_tb.host.monitor import check_link, frame_id
from pequin_tb.job import finish, load

STUB_BEATS = 1024
"""Beats of each of the stub's memories."""

HBM_ADDRESS, HBM_ECC, STOPPED, BUSY = 8, 9, 14, 16
"""Error codes of the tile."""


async def opened(dut: Any, **session: Any) -> TileLink:
    """Connect and say HELLO."""
    link = await connect(dut, HostSession(strict=False, **session), hold=0)
    await link.open()
    return link


def columns_of(link: TileLink) -> int:
    """Return the columns that the tile has told."""
    assert link.session.welcome is not None
    return link.session.welcome.sizes.columns


async def conclude(dut: Any, link: TileLink, **result: Any) -> None:
    """Check the whole conversation and report."""
    await ClockCycles(dut.clk, 2)
    violations = check_link(link.posted, link.frames, columns=columns_of(link))
    assert not violations, violations[:5]
    assert not link.session.pending, link.session.pending
    counts = int(dut.counts.value)
    finish(
        {
            "events": len(link.events),
            "packets": len(link.frames),
            "clocks": int(dut.clocks.value),
            "counts": [counts >> 48 * i & (1 << 48) - 1 for i in range(7)],
            **result,
        }
    )
    link.close()


@cocotb.test()
async def memories(dut: Any) -> None:
    """Random writes and reads of random lengths against a copy in numpy."""
    rng = np.random.default_rng(load()["seed"])
    link = await opened(dut)
    copy = np.zeros((len(MemoryId), STUB_BEATS, 32), np.uint8)
    for _ in range(load()["count"]):
        memory = int(rng.integers(len(MemoryId)))
        beats = int(rng.integers(1, 200))
        address = int(rng.integers(STUB_BEATS - 24 - beats))
        if rng.random() < 0.5:
            data = rng.integers(0, 256, (beats, 32), np.uint8)
            copy[memory, address : address + beats] = data
            await link.write(memory, address, data)
        else:
            found = await link.read(memory, address, beats)
            assert (found == copy[memory, address : address + beats]).all(), (memory, address)
    await conclude(dut, link)


@cocotb.test()
async def steps(dut: Any) -> None:
    """Send STEPs of random columns; every field must arrive."""
    rng = np.random.default_rng(load()["seed"])
    link = await opened(dut)
    await link.start(77)
    assert int(dut.pc.value) == 77
    for _ in range(load()["count"]):
        count = int(rng.integers(1, columns_of(link) + 1))
        fields = rng.integers(0, 1 << 32, (count, 6), np.int64)
        await link.step([Column(**dict(zip(NAMES, map(int, row), strict=True))) for row in fields])
        for number, row in enumerate(fields):
            event = await link.wait_event()
            wanted = (EventKind.TOKEN, number << 8, int(row[1] + 1) & MASK, int(row.sum()) & MASK)
            assert (event.kind, event.code, event.value, event.detail) == wanted
        done = await link.wait_event()
        assert (done.kind, done.value) == (EventKind.DONE, count)
    await conclude(dut, link)


MASK = 0xFFFFFFFF
NAMES = tuple(Column.__dataclass_fields__)


@cocotb.test()
async def orders(dut: Any) -> None:
    """START, a second START, CLEAR, STOP, START again."""
    link = await opened(dut)
    await link.start(3)
    await link.start(9)
    event = await link.wait_event(EventKind.ERROR)
    assert (event.code, event.pc) == (BUSY, 9)
    assert int(dut.pc.value) == 3
    for _ in range(3):
        await link.clear()
    assert int(dut.clears.value) == 3
    await link.stop()
    assert (await link.wait_event(EventKind.ERROR)).code == STOPPED
    assert int(dut.running.value) == 0
    await link.start(9)
    assert int(dut.pc.value) == 9
    await link.step([Column(token=1)])
    assert (await link.wait_event(EventKind.DONE)).value == 1
    await conclude(dut, link)


@cocotb.test()
async def a_step_waits(dut: Any) -> None:
    """While a STEP waits: a second one is refused, reads and STOP get through; STOP drops it."""
    link = await opened(dut)
    dut.hold.value = 1
    await link.start()
    await link.step([Column(token=1), Column(token=2)])
    with pytest.raises(RequestRefused, match="BUSY"):
        await link.step([Column(token=3)])
    await link.write(MemoryId.KV, 5, bytes(range(32)))
    assert (await link.read(MemoryId.KV, 5, 1)).tobytes() == bytes(range(32))
    await link.stop()
    assert (await link.wait_event(EventKind.ERROR)).code == STOPPED
    dut.hold.value = 0
    await link.start()
    with pytest.raises(LinkTimeout, match="an event did not come in 2000 clocks"):
        await link.wait_event(timeout_clocks=2000)
    await link.step([Column(token=7)])
    assert (await link.wait_event(EventKind.TOKEN)).value == 8
    assert (await link.wait_event(EventKind.DONE)).value == 1
    await conclude(dut, link)


@cocotb.test()
async def refused_accesses(dut: Any) -> None:
    """Addresses and memories that do not exist, and an ECC error: the first bad beat is named."""
    link = await opened(dut)
    last = STUB_BEATS - 1
    ones = bytes([1]) * 32
    cases: list[tuple[Packet, int, int]] = [
        (Read(memory=MemoryId.KV, address=last - 1, beats=4), ACCESS_ERROR, 2),
        (Read(memory=MemoryId.HBM, address=last, beats=64), HBM_ADDRESS, 1),
        (Read(memory=MemoryId.HBM, address=995, beats=10), HBM_ECC, 5),
        (Write(memory=MemoryId.KV, address=last, data=2 * ones), ACCESS_ERROR, 1),
        (Write(memory=MemoryId.KV, address=MASK, data=ones), ACCESS_ERROR, 0),
        (Read(memory=7, address=0, beats=1), ACCESS_ERROR, 0),
        (Write(memory=255, address=0, data=ones), ACCESS_ERROR, 0),
    ]
    for packet, error, beat in cases:
        answer = await link.answer(link.send(packet))
        assert isinstance(answer, Nak), answer
        assert (answer.code, answer.error, answer.beat) == (Rule.MEMORY, error, beat)
    # The beats before the refused one are written, and the next request is not disturbed.
    assert (await link.read(MemoryId.KV, last, 1)).tobytes() == ones
    await conclude(dut, link)


@cocotb.test()
async def damaged(dut: Any) -> None:
    """Good packets and damaged ones mixed: each is answered as the decoder in Python says."""
    job = load()
    rng = np.random.default_rng(job["seed"])
    link = await opened(dut)
    dut.hold.value = 1
    await link.start()
    limit = columns_of(link)
    copy = np.zeros((STUB_BEATS, 32), np.uint8)
    seen: dict[str, int] = {}
    for round_ in range(job["count"]):
        address, beats = int(rng.integers(64)), int(rng.integers(1, 9))
        data = rng.integers(0, 256, (beats, 32), np.uint8)
        good = encode(
            Write(id=round_ & 0x7FFF, memory=MemoryId.KV, address=address, data=data.tobytes())
        )
        frame = damage(good, rng)
        rule = judge(frame, columns=limit)
        before = len(link.strays)
        link.post(frame)
        if rule is None:
            packet = decode(frame)
            assert isinstance(packet, Write)
            if packet.memory == MemoryId.KV:
                copy[packet.address : packet.address + beats] = data
            await link.until(functools.partial(_acked, link, packet.id), "an ACK")
        else:
            refused = functools.partial(_refused, link, before)
            await link.until(refused, f"a refusal {rule.name}")
            nak = link.strays[-1]
            assert (nak.code, nak.id) == (rule, frame_id(frame)), (nak, rule, frame[:16].hex())
            if rule == Rule.LENGTH and len(frame) < 2000:
                assert nak.detail == len(frame)
        name = "good" if rule is None else rule.name
        seen[name] = seen.get(name, 0) + 1
        if round_ % 8 == 7:
            assert (await link.read(MemoryId.KV, 0, 80) == copy[:80]).all()
    await conclude(dut, link, seen=seen)


def _refused(link: TileLink, before: int) -> bool:
    return len(link.strays) > before


def _acked(link: TileLink, number: int) -> bool:
    return any(isinstance(p, Ack) and p.id == number for p in link.unasked)


@cocotb.test()
async def floods(dut: Any) -> None:
    """Garbage without pause while the tile may not answer: what finds no place is counted."""
    job = load()
    rng = np.random.default_rng(job["seed"])
    link = await connect(dut, HostSession(automatic=False, strict=False), hold=0)
    count = job["count"]
    # Without HELLO there is no credit: sixteen refusals wait, the rest is dropped.
    link.post(*(rng.bytes(int(rng.integers(1, 40))) for _ in range(count)))
    await ClockCycles(dut.clk, 12 * count)
    assert link.frames == []
    # HELLO finds no place either; CREDIT needs none.
    link.grant(1 << 20)
    await link.until(
        lambda: sum(1 if n.code != Rule.OVERRUN else n.detail for n in link.strays) == count,
        "a refusal of everything",
    )
    assert len(link.strays) == 17
    await link.open()
    await link.write(MemoryId.KV, 0, bytes(64))
    await conclude(dut, link)


@cocotb.test()
async def overrun(dut: Any) -> None:
    """More memory requests than allowed while the tile may not answer."""
    link = await connect(dut, HostSession(automatic=False, strict=False), hold=0)
    frames = [encode(Read(id=i, memory=MemoryId.KV, address=i, beats=2)) for i in range(6)]
    link.post(*frames)
    await ClockCycles(dut.clk, 500)
    assert link.frames == []
    # STOP is not held up by any of this.
    link.post(encode(Start(id=20, pc=4)), encode(Stop(id=21)))
    await ClockCycles(dut.clk, 200)
    assert int(dut.pc.value) == 4
    assert int(dut.running.value) == 0
    link.grant(1 << 20)
    await link.until(lambda: len(link.unasked) + len(link.strays) == 8, "all answers")
    assert [(n.id, n.code) for n in link.strays] == [(4, Rule.OVERRUN), (5, Rule.OVERRUN)]
    assert (await link.wait_event()).code == STOPPED
    await link.open()
    await conclude(dut, link)


@cocotb.test()
async def credit(dut: Any) -> None:
    """Grant little: not a byte more is sent, and small packets pass a large one."""
    link = await opened(dut, window=100, automatic=False)
    sent = link.session.received
    reads = [link.send(Read(memory=MemoryId.KV, address=0, beats=8)) for _ in range(2)]
    await ClockCycles(dut.clk, 500)
    assert link.session.received == sent, "276 bytes do not fit into the rest of 100"
    await link.start(5)
    await link.step([Column(token=1)])
    await ClockCycles(dut.clk, 500)
    # WELCOME 60 and the two ACKs 40 fill it: the events wait, and the program with them.
    assert link.session.received == 100
    assert link.events == []
    link.grant(100 + 72)
    await link.until(lambda: len(link.events) == 2, "two events")
    link.grant(172 + 275)
    await ClockCycles(dut.clk, 500)
    assert link.session.received == 172
    link.grant(172 + 276)
    await link.answer(reads[0])
    link.grant(172)  # an old grant does not take anything back
    await ClockCycles(dut.clk, 500)
    assert link.session.received == 448
    link.grant(1 << 20)
    await link.answer(reads[1])
    await conclude(dut, link)


@cocotb.test()
async def mixed(dut: Any) -> None:
    """Run steps and reads at the same time through a narrow window."""
    job = load()
    rng = np.random.default_rng(job["seed"])
    link = await opened(dut, window=2200)
    copy = rng.integers(0, 256, (256, 32), np.uint8)
    await link.write(MemoryId.HBM, 0, copy)
    await link.start()
    tokens: list[Event] = []

    async def decode_steps() -> None:
        for number in range(job["count"]):
            await link.request(Step(columns=(Column(token=number),)))
            tokens.append(await link.wait_event(EventKind.TOKEN))
            await link.wait_event(EventKind.DONE)

    task = cocotb.start_soon(decode_steps())
    while not task.done():
        address, beats = int(rng.integers(128)), int(rng.integers(1, 128))
        assert (await link.read(MemoryId.HBM, address, beats) == copy[address:][:beats]).all()
    await task
    assert [event.value for event in tokens] == [n + 1 for n in range(job["count"])]
    await conclude(dut, link)
