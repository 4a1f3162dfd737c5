"""Programs that would never end, or whose streams do not fit together, are refused."""

import numpy as np
import pytest

from pequin_sim.machine import ProgramError

STREAM = "set stream.beats, {}\nlaunch stream{}\n"
MAC = "set mac.mode, {{scaled{}}}\nset mac.last_row, {}\nlaunch mac{}\n"
DRAIN = "set drain.mode, {{source=drain, store}}\nset drain.shape, {{length={}, vectors=1}}\n"
DRAIN += "launch drain{}\n"


def stream(beats=2, joins=""):
    return STREAM.format(beats, joins)


def mac(rows=2, joins="", mode=""):
    return MAC.format(mode, rows - 1, joins)


def drain(rows=2, joins=""):
    return DRAIN.format(rows, joins)


REFUSED = {
    "a wait for nothing": ("wait 5", "deadlock: seq (pc 0) waits on semaphore 5"),
    "a launch that waits for nothing": (
        "launch dma, wait 5",
        "deadlock: dma (pc 0) waits on semaphore 5, which nothing earlier",
    ),
    "a signal that comes later": ("wait 5\nsignal 5", "seq (pc 0) waits on semaphore 5"),
    "more waits than signals": (
        "signal 5\nwait 5\nwait 5",
        "signalled often enough (signals so far: 1, taken: 1)",
    ),
    "its own signal": (
        "set kv.kind, 2\nset kv.blocks, 1\nlaunch kv, wait 3, signal 3",
        "kv (pc 2) waits on semaphore 3",
    ),
    "two signallers": (
        "signal 1\nset dma.count, 1\nlaunch dma, signal 1",
        "semaphore 1 has two signallers: seq (pc 0) and dma (pc 2)",
    ),
    "two waiters": (
        "signal 1\nsignal 1\nwait 1\nset dma.count, 1\nlaunch dma, wait 1",
        "semaphore 1 has two waiters: seq (pc 2) and dma (pc 4)",
    ),
    "weights that come later": (
        mac() + stream(),
        "deadlock: mac (pc 2) takes its weights from stream",
    ),
    "weights from the other source": (
        stream() + mac(mode=", source=kv"),
        "deadlock: mac (pc 4) takes its weights from kv",
    ),
    "results that come later": (drain() + stream() + mac(), "deadlock: drain (pc 2) takes 2 rows"),
    "too few results": (
        stream() + mac() + drain(3),
        "drain (pc 7) takes 3 rows of results, but earlier mac commands leave only 2",
    ),
    "too few blocks": (
        "set dma.kind, 1\nset dma.count, 2\nlaunch dma\n"
        + drain(65).replace("source=drain", "source=blocks"),
        "drain (pc 5) takes 3 blocks, but earlier dma commands leave only 2",
    ),
    "too many beats": (
        stream(3) + mac(),
        "mac (pc 4) takes 2 beats (2 rows of 32, mxfp4, 1 planes, scaled), but the stream "
        "command that belongs to it (pc 1) brings 3",
    ),
    "two stream commands for one of mac": (
        stream(1) + stream(1) + mac(),
        "mac (pc 6) takes 2 beats",
    ),
    "another number of vectors": (
        stream() + mac().replace("launch", "set mac.last_vector, 1\nlaunch") + drain(),
        "drain (pc 8) takes rows of 1 vectors, but those of mac (pc 5) have 2",
    ),
    "weights left over": (stream() + "halt", "halts with stream beats of pc 1"),
    "keys left over": (
        "set kv.rows, 1\nset kv.blocks, 1\nlaunch kv\nhalt",
        "halts with kv beats of pc 2",
    ),
    "results left over": (stream() + mac() + "halt", "halts with results of pc 4"),
    "some results left over": (stream() + mac() + drain(1) + "halt", "halts with results of pc 4"),
    "blocks left over": (
        "set dma.kind, 1\nset dma.count, 1\nlaunch dma\nhalt",
        "halts with blocks",
    ),
    "a command that races with itself": (
        "set vector.mode, {store}\nset vector.shape, {length=64, vectors=1}\nset vector.dst, 32\n"
        "launch vector",
        "vector (pc 3): command 0 writes elements 32 to 95 and reads operand a there",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_programs(run, name):
    source, message = REFUSED[name]
    with pytest.raises(ProgramError) as caught:
        run(source + "\nhalt")
    assert message in str(caught.value)


def test_owners_of_semaphores_are_of_one_start(build):
    machine = build("signal 1\nhalt\nset dma.count, 1\nlaunch dma, signal 1\nhalt")
    machine.run()
    assert machine.run(start=2).state == "halted"


def test_results_in_parts(run):
    source = stream() + mac() + drain(1) + drain(1) + stream() + mac() + stream() + mac()
    assert run(source + drain(4) + "halt").state == "halted"


def test_a_fifo_that_is_full_stops_the_sequencer(run):
    """More launches of stream than its queue holds, before the first of mac."""
    sixty = "launch stream\n" * 60
    pairs = "launch mac\n" * 60
    setup = "set stream.beats, {0}\nset mac.mode, {{scaled, sink=top_k}}\nset mac.last_row, {1}\n"
    small = setup.format(2, 1)
    alternating = small + "launch stream\nlaunch mac\n" * 60 + "halt"
    assert run(alternating, preset="tiny").state == "halted"
    with pytest.raises(ProgramError) as caught:
        run(small + sixty + pairs + "halt", preset="tiny")
    message = str(caught.value)
    assert "waits for a place in the queue of stream" in message
    assert "stream (pc " in message
    assert run(small + sixty + pairs + "halt", preset="tiny", capacity=False).state == "halted"


def test_a_long_stream_needs_its_mac_command(run):
    """A FIFO of 32 beats: the stream waits, and the sequencer waits for the stream's signal."""
    rows, mode = 100, ", sink=top_k"
    load = stream(54, ", signal 1")
    good = load + mac(rows, "", mode) + "wait 1\nhalt"
    assert run(good, preset="tiny").state == "halted"
    bad = load + "wait 1\n" + mac(rows, "", mode) + "halt"
    with pytest.raises(ProgramError) as caught:
        run(bad, preset="tiny")
    assert "the sequencer (pc 2) waits on semaphore 1" in str(caught.value)
    assert "stream (pc 1) waits for room in the weight FIFO (32 beats)" in str(caught.value)
    # The FIFO of this preset has room for all of it.
    assert run(bad).state == "halted"


def test_results_need_a_drain_command(run):
    load = stream() + mac(2, ", signal 1")
    assert run(load + drain() + "wait 1\nhalt").state == "halted"
    with pytest.raises(ProgramError, match="mac \\(pc 4\\) waits for a drain command"):
        run(load + "wait 1\n" + drain() + "halt")


def test_blocks_need_a_drain_command(run):
    load = "set dma.kind, 1\nset dma.count, 2\nlaunch dma, signal 1\n"
    take = drain(64).replace("source=drain", "source=blocks")
    assert run(load + take + "wait 1\nhalt").state == "halted"
    with pytest.raises(ProgramError, match="dma \\(pc 2\\) waits for a drain command"):
        run(load + "wait 1\n" + take + "halt")


def test_keys_need_their_mac_command(run):
    load = "set kv.rows, 1\nset kv.blocks, 1\nlaunch kv, signal 1\n"
    take = mac(1, "", ", format=mxint8, source=kv, sink=top_k")
    assert run(load + take + "wait 1\nhalt").state == "halted"
    with pytest.raises(ProgramError, match="kv \\(pc 2\\) waits for a mac command"):
        run(load + "wait 1\n" + take + "halt")


def test_a_circle_that_the_order_of_execution_hides(run):
    """drain waits for vector, vector for dma, and dma for drain to take its block."""
    head = "set dma.kind, 1\nset dma.count, 1\nset drain.mode, {source=blocks, store}\n"
    head += "set drain.shape, {length=32, vectors=1}\nlaunch dma, signal 1\n"
    head += "set vector.mode, {op=set_scalar}\nset vector.shape, {vectors=1}\n"
    good = head + "launch vector, signal 2\nlaunch drain, wait 2\nwait 1\nhalt"
    assert run(good).state == "halted"
    bad = head + "launch vector, wait 1, signal 2\nlaunch drain, wait 2\nhalt"
    with pytest.raises(ProgramError) as caught:
        run(bad)
    for text in (
        "deadlock: the sequencer (pc 9) has halted",
        "vector (pc 7) waits for semaphore 1",
        "drain (pc 8) waits for semaphore 2",
        "dma (pc 4) waits for a drain command",
    ):
        assert text in str(caught.value)


def test_a_queue_full_of_registers_behind_a_waiting_launch(run):
    """drain's queue has 8 places, and its head waits for a signal behind 8 registers."""
    head = "set dma.kind, 1\nset dma.count, 1\nset drain.mode, {source=blocks, store}\n"
    head += "set drain.shape, {length=32, vectors=1}\nlaunch dma\n"
    fill = "set drain.b, 0\n"
    source = "set vector.mode, {op=set_scalar}\nset vector.shape, {vectors=1}\nwait 3\n"
    source = head + "launch drain, signal 3\n" + fill * 8 + source + "launch vector\nhalt"
    assert run(source, preset="tiny").state == "halted"
    # stream's queue: a command that waits for room, and registers behind it.
    setup = "set mac.mode, {scaled, sink=top_k}\nset mac.last_row, 99\n"
    text = stream(54) + "set stream.beats, 1\n" * 8
    assert run(setup + text + "launch mac\nhalt").state == "halted"
    with pytest.raises(ProgramError, match="waits for a place in the queue of stream"):
        run(setup + text + "launch mac\nhalt", preset="tiny")


def test_many_rows_through_a_small_fifo(run):
    source = "set mac.last_block, 7\n" + stream(425) + mac(100) + drain(100, ", signal 1")
    source = source.replace("store}", "reduce=sum}") + "wait 1\nhalt"
    hbm = np.zeros((425, 32), np.uint8)
    assert run(source, hbm, preset="tiny").state == "halted"
