"""Unit registers, loops, and what a launch does with semaphores."""

import itertools

import pytest

from pequin_sim import isa
from pequin_sim.machine import ErrorCode, ProgramError
from pequin_sim.machine.registers import UnitRegisters


@pytest.mark.parametrize("unit", isa.UNIT_NAMES[1:])
def test_every_word_and_every_stride_of_a_unit(unit):
    registers = UnitRegisters(isa.UNITS[unit])
    count = len(isa.WORD_NAMES[unit])
    words = [1000 + w for w in range(count)]
    strides = {(w, level): 7 * w + 100**level for w in isa.STRIDED[unit] for level in (1, 2, 3)}
    counts = {1: 2, 2: 3, 3: 4}
    for w, value in enumerate(words):
        registers.set(w, value)
    for (w, level), value in strides.items():
        registers.set(16 * level + w, value)
    for level, value in counts.items():
        registers.set(16 * level + 15, value)
    for levels in range(4):
        ranges = [range(counts[level]) for level in range(levels, 0, -1)]
        expected = []
        for place in itertools.product(*ranges):
            command = list(words)
            for level, i in zip(range(levels, 0, -1), place, strict=True):
                for w in isa.STRIDED[unit]:
                    command[w] += i * strides[w, level]
            expected.append(tuple(command))
        total, commands = registers.commands(levels)
        assert list(commands) == expected
        assert total == len(expected)


def test_words_are_modulo_two_to_the_32():
    registers = UnitRegisters(isa.UNITS["stream"])
    registers.set(0, 64)
    registers.set(16, -8)
    registers.set(31, 3)
    assert [w[0] for w in registers.commands(1)[1]] == [64, 56, 48]
    registers.set(0, 0)
    assert [w[0] for w in registers.commands(1)[1]] == [0, 2**32 - 8, 2**32 - 16]


def test_a_register_is_rs_plus_imm_and_keeps_its_value(run):
    result = run(
        "li r2, 40\nset dma.dst, r2 + 8\nset dma.count, 1\nlaunch dma\n"
        "set dma.dst, r2 - 32\nlaunch dma\nlaunch dma\nhalt"
    )
    assert [c.words for c in result.commands] == [
        (0, 0, 48, 1, 0),
        (0, 0, 8, 1, 0),
        (0, 0, 8, 1, 0),
    ]
    assert [(c.unit, c.number, c.pc) for c in result.commands] == [
        ("dma", 1, 3),
        ("dma", 2, 5),
        ("dma", 3, 6),
    ]


def test_no_iterations_are_an_error_once_its_semaphores_are_there(run):
    source = "set kv.kind, 2\nset kv.count2, 0\nlaunch kv, loops {}, wait 4\nhalt"
    result = run("signal 4\n" + source.format(2))
    error = result.error
    assert (error.unit, error.code, error.detail, error.pc) == ("kv", ErrorCode.COMMAND, 2, 3)
    with pytest.raises(ProgramError, match="kv \\(pc 2\\) waits on semaphore 4"):
        run(source.format(2))
    # At a level that is not used, they do not matter.
    result = run("signal 4\nset kv.blocks, 1\n" + source.format(1))
    assert result.state == "halted"


LOOP = "set kv.kind, 2\nset kv.blocks, 1\nset kv.count1, 3\n"


def semaphores(result):
    return [(c.waits, c.signals) for c in result.commands]


def test_signals_and_waits_of_a_launch(run):
    once = run(f"signal 1\nsignal 2\n{LOOP}launch kv, loops 1, wait 1, wait 2, signal 3\nhalt")
    assert semaphores(once) == [((1, 2), ()), ((), ()), ((), (3,))]
    many = "signal 1\nsignal 1\nsignal 1\nsignal 2\n"
    mixed = run(f"{many}{LOOP}launch kv, loops 1, wait 1 each, wait 2, signal 3 each\nhalt")
    assert semaphores(mixed) == [((1, 2), (3,)), ((1,), (3,)), ((1,), (3,))]
    second = run(f"{many}{LOOP}launch kv, loops 1, wait 2, wait 1 each, signal 3\nhalt")
    assert semaphores(second) == [((2, 1), ()), ((1,), ()), ((1,), (3,))]


def test_two_waits_on_one_semaphore_take_two(run):
    body = "set kv.kind, 2\nset kv.blocks, 1\nlaunch kv, wait 1, wait 1\nhalt"
    assert run("signal 1\nsignal 1\n" + body).state == "halted"
    with pytest.raises(ProgramError, match="waits on semaphore 1"):
        run("signal 1\n" + body)


def test_a_semaphore_counts_to_255(run):
    source = "li r1, {}\nagain: signal 7\naddi r1, r1, -1\nbne r1, r0, again\nhalt"
    assert run(source.format(255)).state == "halted"
    error = run(source.format(256)).error
    assert (error.unit, error.code, error.detail, error.pc) == ("seq", ErrorCode.SEMAPHORE, 7, 1)


def test_an_overflow_names_the_signalling_unit(run):
    source = "set kv.kind, 2\nset kv.blocks, 1\nset kv.count1, 256\n"
    result = run(f"{source}launch kv, loops 1, signal 9 each\nhalt")
    error = result.error
    assert (error.unit, error.code, error.detail, error.pc) == ("kv", ErrorCode.SEMAPHORE, 9, 3)
    assert len(result.commands) == 256
