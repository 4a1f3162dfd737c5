import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim.compiler import Each, Loop, ProgramBuilder
from pequin_sim.isa import LaunchWord, decode, is_legal


def listing(program):
    return [(i.mnemonic, i) for i in map(decode, program.words)]


def count(program, mnemonic):
    return sum(name == mnemonic for name, _ in listing(program))


def sets(program):
    return [(i.unit, i.reg, i.rs, i.imm) for name, i in listing(program) if name == "set"]


def test_registers_are_numbered_by_name():
    b = ProgramBuilder()
    assert b.zero.number == 0
    first, second = b.register("a"), b.register("b")
    assert (first.number, second.number) == (1, 2)
    assert b.register("a") is first
    for n in range(13):
        b.register(f"r{n}")
    with pytest.raises(InputError, match="no register is left for 'one more'"):
        b.register("one more")


def test_known_registers_are_not_set_again():
    b = ProgramBuilder()
    r = b.register("r")
    b.let(r, 5)
    for _ in range(3):
        b.launch("stream", address=r + 100, beats=7)
    b.launch("stream", address=r + 101, beats=7)
    b.add_constant(r, 1)
    b.launch("stream", address=r + 101, beats=7)
    assert sets(b.finish()) == [
        (2, 0, 1, 100),
        (2, 1, 0, 7),
        (2, 0, 1, 101),
        (2, 0, 1, 101),
    ]


def test_nothing_is_assumed_after_reset():
    b = ProgramBuilder()
    b.launch("kv", kind="configure", blocks=0)
    assert sets(b.finish()) == [(3, 0, 0, 2), (3, 4, 0, 0)]


def test_fields_share_words_and_negative_strides_wrap():
    b = ProgramBuilder()
    lane = b.register("lane")
    b.launch(
        "vector",
        loops=[Loop(4, {"a": -32, "s2": 2, "out": 2})],
        words={"extra": lane},
        op="copy",
        length=40,
        vectors=3,
        s2=9,
        out=200,
        per_vector=("s1", "s2"),
    )
    found = {reg: (rs, imm) for _, reg, rs, imm in sets(b.finish())}
    assert found[1] == (0, 40 | 3 << 16)
    assert found[8] == (0, 9 << 8 | 200 << 24)
    assert found[9] == (1, 3 << 16)
    assert found[16 + 2] == (0, 2**32 - 32)
    assert found[16 + 8] == (0, 2 << 8 | 2 << 24)
    assert found[16 + 15] == (0, 4)
    assert found[16 + 3] == (0, 0)


def test_a_level_without_a_stride_clears_that_of_the_launch_before():
    b = ProgramBuilder()
    b.launch("mac", loops=[Loop(2, {"base": 5})], base=0)
    b.launch("mac", loops=[Loop(2)], base=0)
    assert sets(b.finish())[-1] == (1, 16 + 5, 0, 0)


def test_loops_of_one_iteration_are_left_out():
    b = ProgramBuilder()
    b.launch("kv", loops=[Loop(1, {"address": 8}), Loop(3, {"address": 16})], kind="keys")
    program = b.finish()
    assert LaunchWord.unpack(decode(program.words[-1]).imm).levels == 1
    assert (3, 17, 0, 16) in sets(program)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unit": "tensor"}, "unit 'tensor' does not exist"),
        ({"unit": "stream", "rows": 3}, "stream has no field 'rows'"),
        ({"unit": "mac", "format": "fp8"}, "mac.format cannot be 'fp8'"),
        ({"unit": "vector", "length": 70000}, "vector.length has 16 bits: 70000 does not fit"),
        ({"unit": "kv", "loops": [Loop(70000)]}, "1 to 65535 iterations, not 70000"),
        ({"unit": "kv", "loops": [Loop(2, {"rows": 1})]}, "word rows of kv has no stride"),
        ({"unit": "kv", "loops": [Loop(2)] * 4}, "up to 3 loop levels, not 4"),
        ({"unit": "kv", "wait": ("a", "b", "c")}, "up to two semaphores, not 3"),
    ],
)
def test_bad_launches_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        ProgramBuilder().launch(**arguments)


def test_registers_go_only_where_addition_keeps_the_fields_apart():
    b = ProgramBuilder()
    r, s = b.register("r"), b.register("s")
    with pytest.raises(InputError, match=r"vector\.vectors cannot take a register"):
        b.launch("vector", vectors=r)
    with pytest.raises(InputError, match="word 1 of vector can take one register, not r, s"):
        b.launch("vector", length=r, words={"shape": s})


def test_semaphores_have_one_signaller_and_one_waiter():
    b = ProgramBuilder()
    b.launch("stream", signal="a", address=0, beats=1)
    b.launch("mac", wait="a", base=0)
    with pytest.raises(InputError, match="semaphore 'a' has the signaller stream; drain"):
        b.launch("drain", signal="a", op="copy")
    with pytest.raises(InputError, match="semaphore 'a' has the waiter mac; seq"):
        b.wait("a")
    b.launch("mac", signal="b", base=0)
    with pytest.raises(InputError, match="semaphore 'b' has no waiter"):
        b.finish()


def test_a_semaphore_that_nobody_signals_is_refused():
    b = ProgramBuilder()
    b.wait("never")
    with pytest.raises(InputError, match="semaphore 'never' has no signaller"):
        b.finish()


def test_there_are_32_semaphores():
    b = ProgramBuilder()
    for n in range(32):
        b.signal(f"s{n}")
    with pytest.raises(InputError, match="no semaphore is left for 's32'"):
        b.signal("s32")


def test_each_is_told_from_last():
    b = ProgramBuilder()
    b.launch("drain", signal=Each("s"), op="copy")
    b.launch("vector", wait=(Each("s"), "t"), op="copy")
    b.signal("t")
    launches = [LaunchWord.unpack(i.imm) for name, i in listing(b.finish()) if name == "launch"]
    assert (launches[0].signal, launches[0].signal_each) == (0, True)
    assert (launches[1].wait_a, launches[1].wait_a_each) == (0, True)
    assert (launches[1].wait_b, launches[1].wait_b_each) == (1, False)


def test_both_ways_of_a_branch_are_respected():
    b = ProgramBuilder()
    r = b.register("r")
    b.launch("stream", address=1, beats=2)
    b.when(
        "eq",
        r,
        b.zero,
        lambda: b.launch("stream", address=9, beats=2),
        lambda: b.launch("stream", address=9, beats=3),
    )
    b.launch("stream", address=9, beats=3)
    assert sets(b.finish()) == [
        (2, 0, 0, 1),
        (2, 1, 0, 2),
        (2, 0, 0, 9),
        (2, 0, 0, 9),
        (2, 1, 0, 3),
        (2, 1, 0, 3),
    ]


def test_a_branch_not_taken_leaves_what_was_known():
    b = ProgramBuilder()
    r = b.register("r")
    b.launch("stream", address=1, beats=2)
    b.when("eq", r, b.zero, lambda: b.launch("stream", address=9, beats=2))
    b.launch("stream", address=1, beats=2)
    assert sets(b.finish())[-2:] == [(2, 0, 0, 9), (2, 0, 0, 1)]


def test_a_loop_keeps_what_all_its_iterations_keep():
    b = ProgramBuilder()
    r = b.register("r")
    b.let(r, 4)
    b.launch("stream", address=1, beats=2)
    calls = []

    def body():
        calls.append(1)
        b.launch("stream", address=1, beats=2)  # the address differs on the way back
        b.launch("stream", address=r, beats=2)
        b.add_constant(r, -1)
        b.leave("eq", r, b.zero)

    b.repeat(body, "top")
    b.launch("stream", address=r, beats=2)
    program = b.finish()
    assert len(calls) == 2
    assert sets(program) == [(2, 0, 0, 1), (2, 1, 0, 2), (2, 0, 0, 1), (2, 0, 1, 0), (2, 0, 1, 0)]
    assert program.labels == {"top": 4}
    branches = [i.imm for name, i in listing(program) if name == "beq"]
    assert branches == [11, 4]


def test_a_placed_label_forgets_everything():
    b = ProgramBuilder()
    label = b.label("here")
    b.launch("stream", address=1, beats=2)
    b.place(label)
    b.launch("stream", address=1, beats=2)
    b.jump(label)
    program = b.finish()
    assert count(program, "set") == 4
    assert decode(program.words[-1]).imm == 3


def test_labels_must_be_placed():
    b = ProgramBuilder()
    b.jump(b.label("nowhere"))
    with pytest.raises(InputError, match="label 'nowhere' was never placed"):
        b.finish()
    with pytest.raises(InputError, match="there is no loop around it"):
        b.leave("eq", b.zero, b.zero)


def test_every_instruction_is_legal_and_knows_its_section():
    b = ProgramBuilder("listing")
    r, s = b.register("r"), b.register("s")
    b.section("one")
    b.step()
    b.table(r, "position")
    b.table(r, "token", column=1)
    for name in ("add", "sub", "and", "mul"):
        b.compute(name, r, r, s)
    for name in ("andi", "shl", "shr"):
        b.compute(name, r, r, 3)
    b.multiply(r, s, 8, s)
    b.multiply(r, s, 9, s)
    b.let(r, s)
    b.section("two")
    b.event(r, 7)
    b.halt()
    program = b.finish()
    assert all(is_legal(i) for _, i in listing(program))
    assert program.lines[0].text == "one"
    assert program.lines[-1].text == "two"
    assert program.words.dtype == np.uint64
