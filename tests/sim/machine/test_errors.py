"""Errors of the units: code, unit, program counter and detail, as docs/isa.md has them."""

import numpy as np
import pytest

from pequin_sim.layout import pack_weights
from pequin_sim.machine import ErrorCode, EventKind
from pequin_sim.mx import MxTensor, quantize

STORE = (1 << 26) // 32
M = 0xFFFFFFFF


def command(unit, **words):
    """Return commands that set words and launch."""
    text = "".join(f"set {unit}.{name}, {value}\n" for name, value in words.items())
    return text + f"launch {unit}\n"


def failed(run, source, hbm=None, **options):
    """Return (unit, code, detail) of the error with which a source ends."""
    result = run(source + "halt", hbm, **options)
    assert result.state == "error"
    error = result.events[-1]
    assert error.kind is EventKind.ERROR
    launches = [n for n, line in enumerate(source.splitlines()) if line.startswith("launch")]
    assert error.pc == launches[-1]
    return error.unit, ErrorCode(error.code), error.detail


@pytest.mark.parametrize(
    ("words", "code", "detail"),
    [
        ({"beats": 0}, "COMMAND", 0),
        ({"address": 77, "beats": 0}, "COMMAND", 77),
        ({"address": STORE, "beats": 1}, "HBM_ADDRESS", STORE),
        ({"address": STORE - 1, "beats": 2}, "HBM_ADDRESS", STORE - 1),
        ({"address": M, "beats": M}, "HBM_ADDRESS", M),
    ],
)
def test_stream(run, words, code, detail):
    assert failed(run, command("stream", **words)) == ("stream", ErrorCode[code], detail)


def test_the_last_beat_of_the_store_is_inside(run):
    result = run(command("dma", source=STORE - 1, count=1) + "halt")
    assert result.state == "halted"


@pytest.mark.parametrize(
    ("words", "code", "detail"),
    [
        ({"kind": 3}, "COMMAND", 3),
        ({"kind": M}, "COMMAND", M),
        ({"kind": 2, "blocks": 0}, "COMMAND", 2),
        ({"kind": 2, "blocks": 8}, "COMMAND", 2),
        ({"kind": 0, "rows": 0, "blocks": 1}, "COMMAND", 0),
        ({"kind": 0, "rows": 1, "blocks": 0}, "COMMAND", 0),
        ({"kind": 0, "rows": 1, "blocks": 8}, "COMMAND", 0),
        ({"kind": 1, "rows": 0, "granules": 1}, "COMMAND", 1),
        ({"kind": 1, "rows": 1, "granules": 0}, "COMMAND", 1),
        ({"kind": 1, "rows": 225, "granules": 1}, "COMMAND", 1),
        ({"kind": 0, "address": 12, "rows": 1, "blocks": 1}, "KV_ADDRESS", 12),
        ({"kind": 0, "address": 8, "step": 4, "rows": 33, "blocks": 1}, "KV_ADDRESS", 12),
        ({"kind": 0, "address": 16384, "rows": 1, "blocks": 1}, "KV_ADDRESS", 16384),
        # The scale beat is inside, the second block is not.
        ({"kind": 0, "address": 16368, "rows": 9, "blocks": 1}, "KV_ADDRESS", 16384),
        # Rows first, then granules: the second granule's first row.
        ({"kind": 1, "address": 16272, "step": 72, "rows": 32, "granules": 2}, "KV_ADDRESS", 16384),
        ({"kind": 1, "address": 16320, "rows": 32, "granules": 1}, "KV_ADDRESS", 16384),
        ({"kind": 1, "step": 8, "rows": 1, "granules": M}, "KV_ADDRESS", 16384),
    ],
)
def test_kv(run, words, code, detail):
    assert failed(run, command("kv", **words)) == ("kv", ErrorCode[code], detail)


def test_a_step_that_is_not_used_may_be_misaligned(run):
    source = command("kv", kind=0, step=3, rows=32, blocks=1)
    source += "set mac.mode, {format=mxint8, scaled, source=kv, sink=top_k}\n"
    source += "set mac.last_row, 31\nlaunch mac\nhalt"
    assert run(source).state == "halted"


CONFIGURED = (
    command("kv", kind=2, blocks=2).replace("launch kv", "launch kv, signal 0") + "wait 0\n"
)


@pytest.mark.parametrize(
    ("words", "code", "detail"),
    [
        ({"kind": 3, "count": 1}, "COMMAND", 3),
        ({"kind": 0, "count": 0}, "COMMAND", 0),
        ({"kind": 1, "count": 0}, "COMMAND", 1),
        ({"kind": 2, "count": 0}, "COMMAND", 2),
        ({"kind": 0, "count": 1, "dst": 4}, "COMMAND", 0),
        ({"kind": 0, "count": 2, "dst": (1 << 18) - 8}, "COMMAND", 0),
        ({"kind": 2, "count": 1, "dst": (1 << 18) - 24}, "COMMAND", 2),
        ({"kind": 0, "count": M}, "COMMAND", 0),
        ({"kind": 0, "source": STORE - 1, "count": 2}, "HBM_ADDRESS", STORE - 1),
        ({"kind": 1, "source": STORE - 33, "count": 32}, None, None),
        ({"kind": 1, "source": STORE - 33, "count": 33}, "HBM_ADDRESS", STORE - 33),
        ({"kind": 2, "source": 4, "count": 1}, "KV_ADDRESS", 4),
        ({"kind": 2, "source": 8, "step": 1, "count": 2}, "KV_ADDRESS", 9),
        ({"kind": 2, "source": 16384, "count": 1}, "KV_ADDRESS", 16386),
        ({"kind": 2, "source": 16376, "step": 16, "count": 9}, "KV_ADDRESS", 16394),
    ],
)
def test_dma(run, words, code, detail):
    source = CONFIGURED + command("dma", **words)
    if code is None:
        source += "set drain.mode, {source=blocks, store}\n"
        source += "set drain.shape, {length=1024, vectors=1}\nlaunch drain\nhalt"
        assert run(source).state == "halted"
        return
    assert failed(run, source) == ("dma", ErrorCode[code], detail)


def test_scales_of_v_need_a_configuration(run):
    source = command("dma", kind=2, source=16, count=1)
    assert failed(run, source) == ("dma", ErrorCode.KV_ADDRESS, 16)


@pytest.mark.parametrize("unit", ["vector", "drain"])
@pytest.mark.parametrize(
    ("mode", "others", "status"),
    [
        ({"op": 9}, {}, 1),
        ({"op": 15}, {"vectors": 0}, 3),
        ({"source": 3}, {}, 1),
        ({"source": 3}, {"length": 0}, 3),
        ({"function": 3}, {}, 1),
        ({}, {"vectors": 0}, 2),
        ({}, {"length": 0}, 2),
        ({"store": 1}, {"dst": 16}, 4),
        ({"store": 1}, {"dst": (1 << 18) - 32, "length": 33}, 4),
        ({}, {"a": 1 << 18}, 4),
        ({"op": 9}, {"dst_stride": 1 << 31}, 4),
        ({"quantize": 1}, {"column": 16}, 4),
        ({"quantize": 1, "paired": 1}, {"column": 8}, 4),
        ({"limits": 1}, {"vectors": 17, "length": 1}, 4),
        ({"quantize": 1}, {"address": 256}, 4),
    ],
)
def test_refused_vector_commands(run, unit, mode, others, status):
    mode = {"source": int(unit == "drain"), **mode}
    others = {"length": 32, "vectors": 1, **others}
    source = f"set {unit}.mode, {{{', '.join(f'{k}={v}' for k, v in mode.items())}}}\n"
    shape = {name: others.pop(name) for name in ("length", "vectors")}
    source += f"set {unit}.shape, {{length={shape['length']}, vectors={shape['vectors']}}}\n"
    for name, value in others.items():
        word = f"place, {{{name}={value}}}" if name == "column" else f"{name}, {value}"
        source += f"set {unit}.{word}\n"
    assert failed(run, source + f"launch {unit}\n") == (unit, ErrorCode.VECTOR, status)


def test_a_field_that_the_preset_has_not(run):
    source = "set vector.mode, {op=set_limits}\nset vector.shape, {vectors=1}\n"
    source += "set vector.scalars, {s2=16}\nlaunch vector\n"
    assert failed(run, source, preset="tiny") == ("vector", ErrorCode.VECTOR, 4)
    assert run(source + "halt").state == "halted"


def test_data_that_are_not_finite(run):
    hbm = np.full((1, 32), 0xFF, np.uint8)
    source = command("dma", count=1).replace("launch dma", "launch dma, signal 0")
    source += "set vector.mode, {store, reduce=arg_max}\nset vector.shape, {length=8, vectors=1}\n"
    source += "set vector.dst, 64\nlaunch vector, wait 0, signal 1\n"
    result = run(source + "halt", hbm)
    token, error = result.events
    assert token.kind is EventKind.TOKEN
    assert (error.unit, error.code, error.detail) == ("vector", ErrorCode.VECTOR, 8)
    # What the command wrote is written.
    assert (result.vector[64:72] == 0x7FC00000).all()


def test_a_sum_that_overflows(run):
    hbm = np.full(8, 2.0**40, np.float32).view(np.uint8).reshape(1, 32)
    source = command("dma", count=1).replace("launch dma", "launch dma, signal 0")
    source += "set vector.mode, {reduce=sum}\nset vector.shape, {length=8, vectors=1}\n"
    assert failed(run, source + "launch vector, wait 0\n", hbm) == (
        "vector",
        ErrorCode.VECTOR,
        16,
    )


def appended(kind, length, address, vectors=1, lane=0, step=0):
    return (
        f"set vector.mode, {{quantize={kind}}}\n"
        f"set vector.shape, {{length={length}, vectors={vectors}}}\n"
        f"set vector.address, {address}\nset vector.address_step, {step}\n"
        f"set vector.extra, {{lane={lane}}}\nlaunch vector\n"
    )


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        (("keys", 96, 64), 66),
        (("keys", 32, 67), 67),
        (("values", 64, 68), 68),
        (("values", 65, 64), 128),
        (("keys", 32, 16376, 1, 0), 16376),
        (("keys", 32, 16256, 1, 31), None),
        (("keys", 32, 16312, 1, 31), None),
        (("keys", 64, 16320, 1, 31), 16320),
        (("values", 64, 16320), 16320),
        (("values", 64, 16256), 16312),
        (("values", 64, 64, 2, 0, 4), 68),
    ],
)
def test_writes_that_miss_their_granule(run, words, detail):
    source = CONFIGURED + appended(*words)
    if detail is None:
        assert run(source + "halt").state == "halted"
        return
    assert failed(run, source) == ("kv", ErrorCode.KV_ADDRESS, detail)


def test_writes_before_a_configuration(run):
    assert failed(run, appended("keys", 32, 64)) == ("kv", ErrorCode.KV_ADDRESS, 64)


def product(w, mode="scaled", scale=127, element=64, **words):
    """Return (source, hbm) of a matrix times one vector, written into the buffer by a hook."""
    stream = pack_weights(w)
    words = {"last_block": w.blocks - 1, "last_row": w.rows - 1, **words}
    source = f"set stream.beats, {len(stream)}\nlaunch stream\nset mac.mode, {{{mode}}}\n"
    source += "".join(f"set mac.{name}, {value}\n" for name, value in words.items())

    def fill(record, machine):
        machine.memory.elements[:] = element
        machine.memory.scales[:] = scale

    return source + "launch mac\n", stream, fill


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("format=mxint8, two_planes", {}),
        ("scaled", {"last_block": 256}),
        ("scaled", {"last_vector": 16}),
        ("paired", {"last_vector": 8}),
        ("scaled", {"base": 256}),
        ("scaled", {"base": 254, "last_block": 2}),
        ("paired", {"base": 255, "last_block": 2}),
        ("scaled", {"last_row": 1 << 18}),
        ("scaled", {"last_row": M, "first_row": 1}),
        ("scaled", {"last_row": 7, "first_row": (1 << 18) - 7}),
    ],
)
def test_impossible_mac_commands(run, mode, words):
    from pequin_sim import isa

    names = [part.partition("=") for part in mode.split(", ")]
    word = isa.pack_word("mac", 0, **{n: v or 1 for n, _, v in names})
    source, stream, _ = product(quantize(np.ones((2, 32))), mode, **words)
    assert failed(run, source, stream) == ("mac", ErrorCode.COMMAND, word)


def test_the_last_place_of_everything(run):
    source, stream, _ = product(
        quantize(np.ones((2, 96))),
        "scaled, paired, sink=top_k",
        base=254,
        last_vector=7,
        first_row=(1 << 18) - 2,
    )
    assert run(source + "halt", stream).state == "halted"


def with_scales(w, places):
    scales = w.scales.copy()
    for place, scale in places.items():
        scales[(0, *place)] = scale
    return MxTensor(w.fmt, w.elements, scales)


@pytest.mark.parametrize(
    ("places", "scale", "flags", "row"),
    [
        ({(3, 1): 0xFF}, 127, 1, 3),
        ({(2, 0): 0xF0}, 127, 6, 2),
        ({(1, 0): 0xF0, (4, 1): 0xFF}, 127, 7, 1),
    ],
)
def test_flags_of_results(run, places, scale, flags, row):
    w = with_scales(quantize(np.ones((5, 64))), places)
    source, stream, fill = product(w, scale=scale, first_row=100)
    detail = flags | (100 + row) << 8
    assert failed(run, source, stream, hook=fill) == ("mac", ErrorCode.MAC, detail)


def test_tokens_come_before_the_error_of_their_command(run):
    w = with_scales(quantize(np.ones((5, 64))), {(3, 1): 0xFF})
    source, stream, fill = product(w, "scaled, sink=top_k, select_first, select_last")
    result = run(source + "halt", stream, hook=fill)
    *tokens, error = result.events
    assert [t.value for t in tokens] == [0, 1, 2, 4]
    assert error.code == ErrorCode.MAC


def test_a_failed_command_gives_no_signal(build):
    machine = build("launch stream, signal 5\nhalt\nwait 5\nhalt")
    result = machine.run()
    assert result.error.code == ErrorCode.COMMAND
    assert result.commands[0].signals == (5,)
    assert machine.order.semaphores[5].signals == 0
