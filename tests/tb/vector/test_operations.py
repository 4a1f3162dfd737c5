import numpy as np
import pytest

from pequin_sim.golden.vector import Response, Status, VectorCommand
from pequin_tb.vector import bench
from pequin_tb.vector.bench import Program, params, run

LANES = ["tiny", "fpga", "ref"]


def bits(x):
    return int(np.float32(x).view(np.uint32))


def program(preset, seed=0):
    rng = np.random.default_rng(seed)
    # The same numbers in every preset: as many as the smallest memory has.
    memory = np.zeros(params(preset).config.vector_elements, np.float32)
    memory[:1024] = rng.standard_normal(1024)
    return Program(preset, memory)


def add_every_operation(p, rng):
    """A program that fits `tiny`: each operation, chains from the drain, scatter."""
    p.add(VectorCommand(op="set_scalar", vectors=2, out=0, immediate=bits(-1.25)))
    p.add(VectorCommand(op="set_limits", vectors=2, immediate=3 | 37 << 16))
    p.wait()
    p.add(VectorCommand(tag=1, length=45, vectors=2, a_stride=64, dst=512, dst_stride=64, s1=0,
                        store=True, limits=True, reduce="max", out=4))  # fmt: skip
    p.add(VectorCommand(tag=2, length=45, vectors=2, a_stride=64, s2=4, minus_s2=True, factor="b",
                        b=256, function="exp2", reduce="sum", finish="reciprocal", out=6,
                        limits=True, quantize="activations", column_step=1,
                        per_vector=frozenset({"s2"})))  # fmt: skip
    p.add(VectorCommand(tag=3, op="rotary", length=64, b=128, dst=640, store=True))
    p.add(VectorCommand(tag=4, op="rotary", distance=3, length=64, b=128, dst=704, store=True))
    p.add(VectorCommand(tag=5, op="rotary_half", length=64, b=128, dst=768, store=True))
    p.add(VectorCommand(tag=6, length=50, a=640, quantize="values", address=77, lane=9))
    p.add(VectorCommand(tag=7, length=50, a=640, quantize="keys", address=99))
    p.add(VectorCommand(tag=8, length=90, reduce="arg_max", rank=3, out=8))
    p.wait()
    for tag, source in ((20, "drain"), (21, "drain"), (22, "blocks")):
        p.add(VectorCommand(tag=tag, op="add", source=source, length=70, vectors=2, b=0,
                            b_stride=128, dst=256, dst_stride=128, store=True, factor="square",
                            reduce="sum", finish="rsqrt", out=10, quantize="activations",
                            column_step=1), queue=1)  # fmt: skip
    p.drained += list(rng.standard_normal((140, 2)).astype(np.float32))
    p.blocks += [(rng.bytes(32), int(rng.integers(110, 130))) for _ in range(6)]
    p.wait()
    p.add(VectorCommand(tag=30, length=1, vectors=12, a=0, s1=0, dst=544, dst_stride=32,
                        store=True, per_vector=frozenset({"s1"})))  # fmt: skip


@pytest.mark.parametrize("pause", [0.0, 0.4])
@pytest.mark.parametrize("preset", LANES)
def test_every_operation(preset, pause):
    p = program(preset)
    add_every_operation(p, np.random.default_rng(1))
    run(p, pause=pause)


def test_presets_give_the_same_bits():
    outcomes = []
    for preset in LANES:
        p = program(preset)
        add_every_operation(p, np.random.default_rng(1))
        machine, responses = bench._golden(p, params(preset))
        outcomes.append((machine.memory[:1024].tobytes(), machine.activations, machine.kv,
                         responses))  # fmt: skip
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("preset", LANES)
def test_rows_that_wait_for_the_lanes_see_no_later_scalars_and_limits(preset):
    p = program(preset)
    p.add(VectorCommand(op="set_scalar", out=0, immediate=bits(2.0)))
    p.add(VectorCommand(op="set_limits", immediate=3 | 20 << 16))
    p.wait()
    # The drain queue goes first, and its blocks keep the lanes busy.
    p.add(VectorCommand(source="blocks", length=32, vectors=12, dst=512, dst_stride=32,
                        store=True), queue=1)  # fmt: skip
    p.blocks += [(bytes(range(32)), 127)] * 12
    scaled = VectorCommand(length=25, a=0, s1=0, limits=True, dst=128, store=True)
    for turn in range(4):
        p.add(scaled.replace(dst=128 + 32 * turn))
        p.add(VectorCommand(op="set_scalar", out=0, immediate=bits(3.0 + turn)))
        p.add(VectorCommand(op="set_limits", immediate=5 + turn | 18 << 16))
    run(p)


def test_an_arg_max_of_more_drained_vectors_than_entries_have_room():
    """All vectors begin before any ends: room for an entry is not needed before its last row."""
    p = program("ref")
    p.add(VectorCommand(source="drain", length=70, vectors=16, reduce="arg_max", dst=512,
                        dst_stride=96, store=True, out=8), queue=1)  # fmt: skip
    rows = np.random.default_rng(4).standard_normal((70, 16))
    p.drained += list(rows.astype(np.float32))
    run(p, pause=0.3)


def test_errors_are_answered_and_the_unit_goes_on():
    p = program("tiny")
    good = VectorCommand(length=40, dst=512, store=True)
    bad = [
        good.replace(length=0),
        good.replace(vectors=0),
        good.replace(a=4),
        good.replace(dst=1024 - 32),
        good.replace(a=992, length=33),
        good.replace(b_stride=32, op="add", b=960, vectors=2),
        good.replace(function="rsqrt"),
        good.replace(source="drain"),
        good.replace(op="rotary", length=41),
        good.replace(reduce="sum", out=16 - 1, vectors=2),
        good.replace(quantize="activations", column=2),
        good.replace(quantize="activations", address=7),
        good.replace(limits=True, vectors=3),
        VectorCommand(op="set_limits", out=2),
    ]
    for tag, command in enumerate(bad):
        p.add(command.replace(tag=2 * tag))
        p.add(good.replace(tag=2 * tag + 1))
    # The queues are ordered by responses alone, and both write the same place.
    p.wait()
    p.add(good.replace(tag=200), queue=1)
    p.add(VectorCommand(op="set_scalar", tag=201), queue=1)
    p.add(good.replace(tag=202, source="drain", length=3), queue=1)
    p.drained += [np.float32([i]) for i in range(3)]
    result = run(p)
    states = [r.status for r in result.responses[0]]
    assert all(states[0::2])
    assert not any(states[1::2])
    assert [r.status for r in result.responses[1]] == [Status.OPCODE, Status.OPCODE, 0]


def test_unknown_operations_are_answered():
    from pequin.vector.types import vector_command
    from pequin_tb.vector import pack

    layout = vector_command(params("tiny"))
    job_words = [pack.pack(layout, {"op": c, "length": 1, "vectors": 1, "tag": c}) for c in (9, 15)]
    answers = bench.play_words("tiny", job_words)
    assert answers == [Response("done", 9, Status.OPCODE), Response("done", 15, Status.OPCODE)]


def test_not_finite_is_an_event_with_the_tag():
    p = program("tiny")
    p.memory[5] = np.nan
    p.memory[40] = np.inf
    p.add(VectorCommand(tag=1, length=32, dst=512, store=True))
    p.add(VectorCommand(tag=2, length=5, dst=512, store=True))
    p.add(VectorCommand(tag=3, a=32, length=32, quantize="activations"))
    p.add(VectorCommand(tag=4, a=64, length=4, factor="square", reduce="sum", finish="rsqrt"))
    p.add(VectorCommand(tag=5, op="set_scalar", immediate=0xFF800000))
    result = run(p)
    assert [r.status for r in result.responses[0]] == [8, 0, 8, 0, 8]
    assert result.machine.activations[0].scale == 0xFF


def test_access_from_outside():
    for preset in LANES:
        rng = np.random.default_rng(5)
        words = [rng.bytes(32) for _ in range(6)]
        assert bench.write_and_read(preset, 64, words) == words
