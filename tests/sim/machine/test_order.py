"""Races: found although the order of execution hides them, and not found where there are none."""

import numpy as np
import pytest

from pequin_sim.layout import pack_weights
from pequin_sim.machine import RaceError
from pequin_sim.mx import quantize

CONFIGURE = "set kv.kind, 2\nset kv.blocks, 1\nlaunch kv, signal 20\nwait 20\n"


def dma(dst, count=1, joins="", source=0):
    return (
        f"set dma.kind, 0\nset dma.source, {source}\nset dma.dst, {dst}\n"
        f"set dma.count, {count}\nlaunch dma{joins}\n"
    )


def vector(mode, joins="", **words):
    text = f"set vector.mode, {{{mode}}}\n"
    defaults = {"shape": "{length=32, vectors=1}", "a": 0, "dst": 1024, "scalars": 0, "place": 0}
    for name, value in {**defaults, **words}.items():
        text += f"set vector.{name}, {value}\n"
    return f"{text}launch vector{joins}\n"


def blocks(count, joins=""):
    return f"set dma.kind, 1\nset dma.count, {count}\nlaunch dma{joins}\n"


def drain(mode, joins="", length=32, dst=1024, **words):
    text = f"set drain.mode, {{{mode}}}\nset drain.shape, {{length={length}, vectors=1}}\n"
    for name, value in {"dst": dst, **words}.items():
        text += f"set drain.{name}, {value}\n"
    return f"{text}launch drain{joins}\n"


STREAM = "set stream.beats, 2\nlaunch stream{}\n"
MAC = (
    "set mac.mode, {{scaled, sink={sink}}}\nset mac.last_row, 1\nset mac.base, {base}\n"
    "launch mac{joins}\n"
)


def mac(joins="", base=0, sink="top_k", stream=""):
    return STREAM.format(stream) + MAC.format(sink=sink, base=base, joins=joins)


def weights():
    return pack_weights(quantize(np.ones((2, 32))))


# Each program has two accesses to one place, in units that nothing joins; {0} and {1} are the
# places of a signal and of the wait for it.
PAIRS = {
    "vector memory, write then read": (
        dma(0, 4, "{0}") + vector("store", "{1}"),
        ("write, read", "vector", 0, 32),
    ),
    "vector memory, read then write": (
        vector("store", "{0}") + dma(16, 1, "{1}"),
        ("read, write", "vector", 16, 24),
    ),
    "vector memory, write then write": (
        vector("store", "{0}") + dma(1048, 1, "{1}"),
        ("write, write", "vector", 1048, 1056),
    ),
    "second operand": (
        dma(64, 4, "{0}") + vector("op=add, store", "{1}", b=64),
        ("write, read", "vector", 64, 96),
    ),
    "second of several vectors": (
        dma(96, 1, "{0}")
        + vector("store", "{1}", shape="{length=32, vectors=3}", a_stride=96, dst_stride=32),
        ("write, read", "vector", 96, 104),
    ),
    "scalars": (
        vector("op=set_scalar", "{0}", scalars="{out=5}")
        + blocks(1)
        + drain("source=blocks, use_s1, store", "{1}", scalars="{s1=5}"),
        ("write, read", "scalars", 5, 6),
    ),
    "scalars of each vector": (
        blocks(1)
        + drain("source=blocks, reduce=sum", "{0}", scalars="{out=7}")
        + vector(
            "use_s2, store",
            "{1}",
            shape="{length=32, vectors=3}",
            scalars="{s2=5}",
            extra="{per_vector=s2}",
            dst_stride=32,
        ),
        ("write, read", "scalars", 7, 8),
    ),
    "limits": (
        vector("op=set_limits", "{0}", immediate=5)
        + blocks(1)
        + drain("source=blocks, limits, store", "{1}"),
        ("write, read", "limits", 0, 1),
    ),
    "activations, write then read": (
        vector("quantize=activations", "{0}", address=3) + mac("{1}", base=3),
        ("write, read", "activations", 3, 4),
    ),
    "activations, read then write": (
        mac("{0}", base=3) + vector("quantize=activations", "{1}", address=3),
        ("read, write", "activations", 3, 4),
    ),
    "keys": (
        CONFIGURE
        + vector("quantize=keys", "{0}", address=64)
        + "set kv.kind, 0\nset kv.address, 64\nset kv.rows, 1\nlaunch kv{1}\n"
        + "set mac.mode, {{format=mxint8, scaled, source=kv, sink=top_k}}\nlaunch mac\n",
        ("write, read", "kv", 72 * 32, 73 * 32),
    ),
    "scales of values": (
        CONFIGURE
        + vector("quantize=values", "{0}", address=64, extra="{lane=9}")
        + "set dma.kind, 2\nset dma.source, 64\nset dma.count, 1\nset dma.dst, 4096\n"
        + "launch dma{1}\n",
        ("write, read", "kv", 65 * 32 + 9, 65 * 32 + 10),
    ),
    "configuration": (
        "set kv.kind, 2\nset kv.blocks, 1\nlaunch kv{0}\n"
        + vector("quantize=keys", "{1}", address=64),
        ("write, read", "kv_blocks", 0, 1),
    ),
}


def filled(name, signal, wait):
    text = PAIRS[name][0]
    # Doubled brackets come from templates that know nothing of fields in brackets.
    text = text.replace("{0}", signal).replace("{1}", wait)
    return text.replace("{{", "{").replace("}}", "}") + "halt"


@pytest.mark.parametrize("name", PAIRS)
def test_two_accesses_that_nothing_orders(run, name):
    kind, memory, start, stop = PAIRS[name][1]
    result = run(filled(name, "", ""), weights(), races="collect")
    (race,) = result.races
    assert race.kind == kind
    assert (race.place.memory, race.place.start, race.place.stop) == (memory, start, stop)
    by_pc = {c.pc: c for c in result.commands}
    for access in (race.earlier, race.later):
        command = by_pc[access.pc]
        assert any(r.memory == memory for r in (*command.reads, *command.writes))
    assert race.earlier.pc < race.later.pc
    assert f"(pc {race.earlier.pc})" in str(race)
    assert f"(pc {race.later.pc})" in str(race)


@pytest.mark.parametrize("name", PAIRS)
def test_a_semaphore_between_them(run, name):
    assert run(filled(name, ", signal 1", ", wait 1"), weights()).state == "halted"


@pytest.mark.parametrize("name", PAIRS)
def test_a_signal_from_before_the_first_access_orders_nothing(run, name):
    source = "signal 1\n" + filled(name, "", ", wait 1")
    assert len(run(source, weights(), races="collect").races) == 1


def test_a_race_is_an_error_unless_collected(run):
    source = dma(0, 4) + vector("store") + "halt"
    message = r"dma command 1 \(pc 4\) writes and vector command 1 \(pc 11\) reads vector 0 to 31"
    with pytest.raises(RaceError, match=message):
        run(source)
    assert run(source, races="off").races == []


def test_neighbours_do_not_meet(run):
    source = dma(32, 4) + vector("store") + dma(1056, 4) + "halt"
    assert run(source).state == "halted"


def test_two_reads_do_not_meet(run):
    source = blocks(1) + drain("source=blocks, op=add, store", b=0) + vector("store", dst=2048)
    assert run(source + "halt").state == "halted"


def test_a_unit_is_in_order_with_itself(run):
    source = vector("store") + vector("store", a=1024, dst=2048) + vector("store") + "halt"
    assert run(source).state == "halted"


def test_order_is_carried_on_by_a_third_unit(run):
    """dma -> sequencer -> vector, and dma -> vector -> drain."""
    source = dma(0, 4, ", signal 1") + "wait 1\n" + vector("store") + "halt"
    assert run(source).state == "halted"
    source = dma(0, 4, ", signal 1") + vector("op=set_scalar", ", wait 1, signal 2")
    source += blocks(1) + drain("source=blocks, op=add, store", ", wait 2", b=0) + "halt"
    assert run(source).state == "halted"


def test_a_wait_holds_for_all_later_commands_and_a_signal_for_all_earlier_ones(run):
    source = dma(0, 4) + dma(512, 1, ", signal 1")
    source += vector("op=set_scalar", ", wait 1") + vector("store") + "halt"
    assert run(source).state == "halted"


def test_an_earlier_signal_says_nothing_about_later_commands(run):
    source = dma(512, 1, ", signal 1") + dma(0, 4) + vector("store", ", wait 1") + "halt"
    assert len(run(source, races="collect").races) == 1


def test_a_signal_of_the_last_command_is_not_there_for_the_first(run):
    """Each of three commands signals; the reader of the second's place waits twice."""
    loop = "set dma.dst.stride1, 64\nset dma.count1, 3\nset dma.count, 4\n"
    source = loop + "launch dma, loops 1, signal 1 each\n"
    once = vector("op=set_scalar", ", wait 1") + vector("store", a=64)
    twice = vector("op=set_scalar", ", wait 1") + vector("store", ", wait 1", a=64)
    assert len(run(source + once + "halt", races="collect").races) == 1
    assert run(source + twice + "halt").state == "halted"


def test_the_sequencer_s_wait_covers_what_it_launches_later(run):
    source = dma(0, 4, ", signal 1") + vector("op=set_scalar") + "wait 1\n"
    assert run(source + vector("store") + "halt").state == "halted"
    late = dma(0, 4, ", signal 1") + vector("store") + "wait 1\nhalt"
    assert len(run(late, races="collect").races) == 1


def test_weights_carry_the_order_to_the_array(run):
    """stream waits for the activations: mac, which takes its beats, comes after them."""
    source = vector("quantize=activations", ", signal 1") + mac(stream=", wait 1") + "halt"
    assert run(source, weights()).state == "halted"


def test_results_carry_the_order_to_the_drain(run):
    """mac waits for dma; the drain command that takes its results may overwrite what dma wrote."""
    source = dma(1024, 4, ", signal 1") + mac(", wait 1", sink="drain")
    source += drain("source=drain, store", length=2) + "halt"
    assert run(source, weights()).state == "halted"
    source = dma(1024, 4, ", signal 1") + mac(sink="drain")
    source += drain("source=drain, store", length=2) + "halt"
    assert len(run(source, weights(), races="collect").races) == 1


def test_a_drain_command_runs_while_its_results_are_computed(run):
    """It may not write activations that its own mac command reads."""
    source = mac(sink="drain") + drain("source=drain, quantize=activations", length=2) + "halt"
    (race,) = run(source, weights(), races="collect").races
    assert (race.kind, race.place.memory) == ("read, write", "activations")


def test_after_the_last_row_the_activations_are_free(run):
    source = mac(sink="drain") + drain("source=drain, store", ", signal 1", length=2)
    source += vector("quantize=activations", ", wait 1") + "halt"
    assert run(source, weights()).state == "halted"
    # One of the two rows is left: the array may still be at work.
    source = mac(sink="drain") + drain("source=drain, store", ", signal 1", length=1)
    source += vector("quantize=activations", ", wait 1")
    source += drain("source=drain, store", length=1) + "halt"
    assert len(run(source, weights(), races="collect").races) == 1


def test_blocks_do_not_say_that_earlier_rows_are_written(run):
    """dma gives blocks while what it wrote before may be under way."""
    source = dma(0, 4) + blocks(1) + drain("source=blocks, op=add, store", b=0) + "halt"
    (race,) = run(source, races="collect").races
    assert race.kind == "write, read"


def test_kv_is_watched_byte_by_byte(run):
    """The next token's keys may be written while the last one's are read; its V may not."""
    before = CONFIGURE + vector("quantize=keys", ", signal 1", address=64)
    source = "set kv.kind, {}\nset kv.address, 64\nset kv.rows, {}\nlaunch kv, wait 1\n"
    source += "set mac.mode, {{format=mxint8, scaled={}, source=kv, sink=top_k}}\n"
    source += "set mac.last_row, {}\nlaunch mac\n"
    keys = vector("quantize=keys", address=64, extra="{lane=1}") + "halt"
    assert run(before + source.format(0, 1, 1, 0) + keys).state == "halted"
    values = vector("quantize=values", address=64, extra="{lane=1}") + "halt"
    races = run(before + source.format(1, 32, 0, 31) + values, races="collect").races
    assert [r.place.memory for r in races] == ["kv"]


def test_an_overflow_that_timing_may_bring(run):
    """300 signals, each taken at once in program order; but the waiter may be late."""
    body = "set dma.dst, 8\nset dma.count, 1\nset kv.kind, 2\nset kv.blocks, 1\nli r1, 300\n"
    body += "again: launch dma, signal 1{}\nlaunch kv, wait 1{}\naddi r1, r1, -1\n"
    body += "bne r1, r0, again\nhalt"
    races = run(body.format("", ""), races="collect").races
    assert len(races) == 45
    assert races[0].kind == "overflow"
    assert "semaphore 1 may exceed 255" in str(races[0])
    # The waiter answers each one, and the sequencer waits for the answer.
    answered = body.format("", ", signal 2\nwait 2")
    assert run(answered).state == "halted"
