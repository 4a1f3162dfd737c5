"""What commands of each unit compute, against float64 and against bytes placed by hand."""

import numpy as np
import pytest

from pequin_sim.layout import pack_weights
from pequin_sim.machine import EventKind, Range
from pequin_sim.mx import MxTensor, dequantize, quantize, quantize_activations

ONE = 0x3F800000


def beats(values):
    """Return float32 values as beats."""
    raw = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8)
    return np.pad(raw, (0, -len(raw) % 32)).reshape(-1, 32)


def floats(result, start, shape):
    count = int(np.prod(shape))
    return result.vector[start : start + count].view(np.float32).reshape(shape)


class Image:
    """HBM content, put together piece by piece."""

    def __init__(self):
        self.parts, self.length = [], 0

    def add(self, data):
        """Append beats; return their address."""
        self.parts.append(data)
        self.length += len(data)
        return self.length - len(data)

    @property
    def beats(self):
        return np.concatenate(self.parts)


def load(source, count, target=0, signal=0):
    """Return the text of a row of fp32 from HBM to vector memory."""
    return (
        f"set dma.kind, 0\nset dma.source, {source}\nset dma.dst, {target}\n"
        f"set dma.count, {count}\nlaunch dma, signal {signal}\n"
    )


def quantized(vectors, k, paired=False, wait=0, signal=1, a=0):
    return (
        f"set vector.mode, {{quantize=activations, paired={int(paired)}}}\n"
        f"set vector.shape, {{length={k}, vectors={vectors}}}\n"
        f"set vector.a, {a}\nset vector.a_stride, {k}\n"
        f"set vector.place, {{column_step=1}}\nlaunch vector, wait {wait}, signal {signal}\n"
    )


def multiply(address, count, mode, rows, k, vectors, wait=1):
    return (
        f"set stream.address, {address}\nset stream.beats, {count}\nlaunch stream\n"
        f"set mac.mode, {{{mode}}}\nset mac.last_block, {k // 32 - 1}\n"
        f"set mac.last_row, {rows - 1}\nset mac.last_vector, {vectors - 1}\n"
        f"launch mac, wait {wait}\n"
    )


def drained(rows, vectors, target, extra=""):
    return (
        f"set drain.mode, {{source=drain, store{extra}}}\n"
        f"set drain.shape, {{length={rows}, vectors={vectors}}}\n"
        f"set drain.dst, {target}\nset drain.dst_stride, {-(-rows // 32) * 32}\nlaunch drain\n"
    )


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(
    ("fmt", "planes", "rows", "k", "vectors"),
    [("mxfp4", 1, 33, 96, 3), ("mxfp4", 2, 5, 64, 1), ("mxint8", 1, 33, 160, 8)],
)
def test_a_product_of_matrices(run, fmt, planes, rows, k, vectors, scaled, paired):
    rng = np.random.default_rng(rows + k)
    w = quantize(rng.normal(size=(rows, k)), fmt, planes=planes)
    if not scaled:
        w = MxTensor(w.fmt, w.elements, np.full_like(w.scales, 0x7F))
    x = rng.normal(size=(vectors, k)).astype(np.float32)
    image = Image()
    stream = pack_weights(w, scaled)
    address, acts = image.add(stream), image.add(beats(x))
    mode = f"format={fmt}, two_planes={planes - 1}, scaled={int(scaled)}, paired={int(paired)}"
    source = load(acts, len(beats(x))) + quantized(vectors, k, paired)
    source += multiply(address, len(stream), mode, rows, k, vectors)
    result = run(source + drained(rows, vectors, 8192) + "halt", image.beats)
    pitch = -(-rows // 32) * 32
    got = floats(result, 8192, (vectors, pitch))[:, :rows]
    expected = dequantize(quantize_activations(x)) @ dequantize(w).T
    # fp32 results, and terms on a grid of 2^-24.
    assert np.abs(got - expected).max() < 1e-6 * np.abs(expected).max() + k / 32 * 2.0**-24
    assert result.state == "halted"


def test_pairing_splits_even_and_odd_blocks(run):
    x = np.arange(1, 161, dtype=np.float32)
    image = Image()
    source = load(image.add(beats(x)), 20) + quantized(1, 160, True) + "halt"
    result = run(source, image.beats)
    expected = quantize_activations(x[np.newaxis])
    blocks = expected.elements.reshape(5, 32)
    for n in range(5):
        assert np.array_equal(result.activations[n % 2, n // 2], blocks[n])
        assert result.scales[n % 2, n // 2] == expected.scales[0, 0, n]
    assert result.commands[1].writes == (
        Range("activations", 0, 3),
        Range("activations", 256, 258),
    )


def test_padding_of_the_stream_is_not_looked_at(run):
    """An odd row's partner and the rest of a scale beat may hold anything, even NaN scales."""
    w = quantize(np.ones((1, 32)))
    stream = pack_weights(w)
    dirty = stream.copy()
    dirty[0, 1:] = 0xFF
    dirty[1, 16:] = 0x77
    outputs = []
    for data in (stream, dirty):
        image = Image()
        address, acts = image.add(data), image.add(beats(np.ones(32)))
        source = load(acts, 4) + quantized(1, 32) + multiply(address, 2, "scaled", 1, 32, 1)
        outputs.append(run(source + drained(1, 1, 1024) + "halt", image.beats).vector[1024])
    assert outputs[0] == outputs[1] == np.float32(32).view(np.uint32)


def test_top_k_over_several_commands(run):
    """Three matrices are one vocabulary; the lowest row wins a tie."""
    k, vectors = 64, 2
    rng = np.random.default_rng(3)
    w = rng.integers(-3, 4, (90, k)).astype(np.float64)
    w[70] = w[11]
    x = rng.integers(-8, 9, (vectors, k)).astype(np.float32)
    x[1] = w[11] * 4
    image = Image()
    acts = image.add(beats(x))
    source = load(acts, len(beats(x))) + quantized(vectors, k)
    wait = ", wait 1"
    for first, last, extra in ((0, 33, "select_first"), (33, 60, ""), (60, 90, "select_last")):
        stream = pack_weights(quantize(w[first:last]))
        mode = ", ".join(filter(None, ["scaled", "sink=top_k", extra]))
        part = multiply(image.add(stream), len(stream), mode, last - first, k, vectors)
        part = part.replace(", wait 1", wait).replace(
            "launch mac", f"set mac.first_row, {first}\nlaunch mac"
        )
        source, wait = source + part, ""
    result = run(source + "halt", image.beats)
    exact = x.astype(np.float64) @ w.T
    assert len(result.tokens) == 16
    for v in range(vectors):
        order = sorted(range(90), key=lambda r, v=v: (-exact[v, r], r))[:8]
        got = [e for e in result.tokens if e.vector == v]
        assert [e.rank for e in got] == list(range(8))
        assert [e.value for e in got] == order
        values = np.array([e.detail for e in got], np.uint32).view(np.float32)
        assert np.array_equal(values, exact[v, order].astype(np.float32))
        assert {(e.unit, e.pc, e.kind) for e in got} == {("mac", 0, EventKind.TOKEN)}


def test_top_k_with_fewer_rows_than_places(run):
    image = Image()
    stream = pack_weights(quantize(np.array([[1.0] * 32, [2.0] * 32])))
    address, acts = image.add(stream), image.add(beats(np.ones(32)))
    mode = "scaled, sink=top_k, select_first, select_last"
    source = load(acts, 4) + quantized(1, 32) + multiply(address, 2, mode, 2, 32, 1)
    result = run(source + "halt", image.beats)
    assert [(e.rank, e.value) for e in result.tokens] == [(0, 1), (1, 0)]


def test_rows_of_blocks_become_vectors(run):
    """An embedding: a row of MXINT8 blocks, dequantized by the drain queue."""
    table = np.random.default_rng(5).normal(size=(3, 1056)).astype(np.float32)
    rows = [quantize(row[np.newaxis], "mxint8") for row in table]
    image = Image()
    places = [image.add(pack_weights(row)) for row in rows]
    source = "set dma.kind, {}\nset dma.count, 33\n".format("1")
    for place in (places[2], places[0]):
        source += f"set dma.source, {place}\nlaunch dma\n"
    source += (
        "set drain.mode, {source=blocks, store}\nset drain.shape, {length=1056, vectors=2}\n"
        "set drain.dst, 64\nset drain.dst_stride, 1056\nlaunch drain\nhalt"
    )
    result = run(source, image.beats)
    got = floats(result, 64, (2, 1056))
    for have, row in zip(got, (rows[2], rows[0]), strict=True):
        assert np.array_equal(have, dequantize(row)[0].astype(np.float32))
    assert result.commands[0].reads == (Range("hbm", places[2], places[2] + 35),)


def test_an_argmax_in_the_vector_unit(run):
    x = np.array([3, -1, 7, 7, 2, 0, 1, 5], np.float32)
    image = Image()
    source = load(image.add(beats(x)), 1)
    source += (
        "set vector.mode, {reduce=arg_max, rank=2}\nset vector.shape, {length=8, vectors=1}\n"
        "set vector.scalars, {out=3}\nlaunch vector, wait 0\nhalt"
    )
    result = run(source, image.beats)
    assert [(e.rank, e.value) for e in result.tokens] == [(0, 2), (1, 3), (2, 7)]
    assert result.scalars[3] == np.float32(7).view(np.uint32)


def test_softmax_and_limits(run):
    """Masked probabilities: zero outside of the limits, e^x over their sum inside."""
    x = np.random.default_rng(8).normal(size=64).astype(np.float32)
    image = Image()
    source = load(image.add(beats(x)), 8)
    source += (
        "set vector.mode, {op=set_limits}\nset vector.shape, {length=64, vectors=1}\n"
        f"set vector.immediate, {40 << 16 | 3}\nlaunch vector, wait 0\n"
        "set vector.mode, {reduce=max, limits}\nset vector.scalars, {out=1}\nlaunch vector\n"
        "set vector.mode, {function=exp2, use_s2, minus_s2, reduce=sum, store, limits, "
        "finish=reciprocal}\nset vector.scalars, {s2=1, out=2}\nset vector.dst, 64\n"
        "launch vector\n"
        "set vector.mode, {use_s1, store}\nset vector.scalars, {s1=2}\nset vector.a, 64\n"
        "set vector.dst, 128\nlaunch vector\nhalt"
    )
    result = run(source, image.beats)
    got = floats(result, 128, (64,))
    power = np.where((np.arange(64) >= 3) & (np.arange(64) < 40), 2.0 ** x.astype(float), 0)
    assert np.abs(got - power / power.sum()).max() < 2.0**-20
    assert not got[:3].any()
    assert not got[40:].any()
    assert list(result.limits[0]) == [3, 40]


def appended(a, tokens, heads, dim, kind, base):
    """Return commands that append one token after another to the granules of all heads."""
    size = 8 + 64 * (dim // 32)
    text = f"set vector.mode, {{quantize={kind}}}\n"
    text += f"set vector.shape, {{length={dim}, vectors={heads}}}\nset vector.a_stride, {dim}\n"
    text += f"set vector.address_step, {size * -(-tokens // 32)}\n"
    for t in range(tokens):
        text += f"set vector.a, {a + t * heads * dim}\nset vector.extra, {{lane={t % 32}}}\n"
        text += f"set vector.address, {base + t // 32 * size}\nlaunch vector\n"
    return text


def signals(*numbers):
    """Return commands of the vector unit that signal semaphores."""
    text = "set vector.mode, {op=set_scalar}\nset vector.scalars, 0\n"
    return text + "".join(f"launch vector, signal {number}\n" for number in numbers)


def attention(rows, blocks, base, kv, target):
    """Return commands that multiply a KV stream with a vector of the activation buffer."""
    scaled = int(kv.startswith("set kv.kind, 0"))
    return (
        f"{kv}set mac.mode, {{format=mxint8, scaled={scaled}, source=kv}}\n"
        f"set mac.last_block, {blocks - 1}\nset mac.last_row, {rows - 1}\n"
        f"set mac.base, {base}\n"
    ), drained(rows, 1, target)


@pytest.mark.parametrize(("dim", "tokens"), [(64, 45), (32, 32), (96, 33), (224, 3)])
def test_keys_and_values_as_streams(run, dim, tokens):
    """Write two heads of K and V, then Q K and P V of the second through the array."""
    heads, head, blocks, count = 2, 1, dim // 32, -(-tokens // 32)
    size, base = 8 + 64 * blocks, 64
    rng = np.random.default_rng(dim)
    k, v = rng.normal(size=(2, tokens, heads, dim)).astype(np.float32)
    q = rng.normal(size=dim).astype(np.float32)
    p = np.zeros(32 * count, np.float32)
    p[:tokens] = rng.random(tokens)
    image, place, source = Image(), {}, "set dma.kind, 0\n"
    for n, (name, x) in enumerate((("k", k), ("v", v), ("q", q), ("p", p))):
        place[name] = n << 15
        source += f"set dma.source, {image.add(beats(x))}\nset dma.dst, {n << 15}\n"
        source += f"set dma.count, {len(beats(x))}\nlaunch dma{', signal 0' if n == 3 else ''}\n"
    source += f"set kv.kind, 2\nset kv.blocks, {blocks}\nlaunch kv, signal 1\n"
    source += "set vector.mode, {op=set_scalar}\nset vector.shape, {vectors=1}\n"
    source += "launch vector, wait 0, wait 1\n"
    source += appended(place["k"], tokens, heads, dim, "keys", base)
    source += appended(place["v"], tokens, heads, dim, "values", base)
    source += "set vector.mode, {quantize=activations}\n"
    for name, length, address in (("q", dim, 0), ("p", 32 * count, 100)):
        source += f"set vector.shape, {{length={length}, vectors=1}}\n"
        source += f"set vector.a, {place[name]}\nset vector.address, {address}\nlaunch vector\n"
    source += signals(2, 3, 4)
    granule, out = base + head * size * count, 1 << 17
    kv = f"set kv.kind, 0\nset kv.address, {granule}\nset kv.step, {size}\n"
    kv += f"set kv.rows, {tokens}\nset kv.blocks, {blocks}\nlaunch kv, wait 2\n"
    given, taken = attention(tokens, blocks, 0, kv, out)
    source += given + "launch mac, wait 3\n" + taken
    kv = f"set kv.kind, 1\nset kv.rows, {dim}\nset kv.blocks, {count}\nlaunch kv\n"
    given, taken = attention(dim, count, 100, kv, out + 4096)
    source += given + "launch mac\n" + taken
    source += f"set dma.kind, 2\nset dma.source, {granule}\nset dma.dst, {out + 8192}\n"
    source += f"set dma.count, {count}\nset dma.step, {size}\nlaunch dma, wait 4\nhalt"
    result = run(source, image.beats)
    keys = quantize_activations(k[:, head])
    scores = dequantize(keys) @ dequantize(quantize_activations(q[np.newaxis]))[0]
    assert np.abs(floats(result, out, (tokens,)) - scores).max() < 1e-5
    scale = floats(result, out + 8192, (32 * count,))[:tokens]
    expected = 2.0 ** np.floor(np.log2(np.abs(v[:, head]).max(axis=1)))
    assert np.array_equal(scale, expected.astype(np.float32))
    # V's scales are left to P: the array sees elements / 64.
    elements = np.clip(np.rint(v[:, head] / expected[:, np.newaxis] * 64), -127, 127) / 64
    weights = dequantize(quantize_activations(p[np.newaxis]))[0, :tokens]
    assert np.abs(floats(result, out + 4096, (dim,)) - weights @ elements).max() < 1e-5
    check_granule(result.kv[granule : granule + size], keys, elements, expected, tokens)


def check_granule(granule, keys, elements, scales, tokens):
    """Compare the first granule, byte by byte, with the table of the contract."""
    blocks = keys.blocks
    first = min(tokens, 32)
    for t in range(first):
        for b in range(blocks):
            n = t * blocks + b
            assert granule[n // 32, n % 32] == keys.scales[0, t, b]
            block = keys.elements[0, t, 32 * b : 32 * b + 32].view(np.uint8)
            assert np.array_equal(granule[8 + n], block)
        assert granule[blocks, t] == int(np.log2(scales[t])) + 127
        column = granule[8 + 32 * blocks :, t].view(np.int8)
        assert np.array_equal(column[: elements.shape[1]], (elements[t] * 64).astype(np.int8))


def test_scales_of_v_as_powers_of_two(run):
    """0x00 is 0.0 and 0xFF is NaN."""
    source = (
        "set kv.kind, 2\nset kv.blocks, 1\nlaunch kv, signal 0\n"
        "set dma.kind, 2\nset dma.source, 8\nset dma.count, 1\nlaunch dma, wait 0\nhalt"
    )

    def fill(record, machine):
        if record.unit == "kv":
            machine.memory.kv[9] = [0, 1, 127, 128, 254, 255, *[126] * 26]

    result = run(source, hook=fill)
    values = result.vector[:32].view(np.float32)
    expected = [0.0, 2.0**-126, 1.0, 2.0, 2.0**127, np.nan, *[0.5] * 26]
    assert np.array_equal(values, np.array(expected, np.float32), equal_nan=True)
    assert result.vector[5] == 0x7FC00000


def test_every_field_of_a_vector_command_arrives():
    from pequin_sim import isa
    from pequin_sim.machine.vectors import command_of, fields_of

    plain = {
        "op": ("rotary", 4),
        "function": ("exp2", 1),
        "factor": ("square", 3),
        "source": ("blocks", 2),
        "store": (True, 1),
        "quantize": ("values", 3),
        "paired": (True, 1),
        "limits": (True, 1),
        "reduce": ("arg_max", 3),
        "start": (True, 1),
        "rank": (5, 5),
        "minus_s2": (True, 1),
        "finish": ("rsqrt", 3),
        "distance": (6, 6),
        "length": (65535, 65535),
        "vectors": (255, 255),
        "a": (96, 96),
        "b": (64, 64),
        "dst": (32, 32),
        "a_stride": (128, 128),
        "b_stride": (160, 160),
        "dst_stride": (192, 192),
        "s3": (200, 200),
        "out": (17, 17),
        "lane": (31, 31),
        "column": (9, 9),
        "column_step": (3, 3),
        "address": (0xFFFFF8, 0xFFFFF8),
        "address_step": (0x80, 0x80),
        "immediate": (0xDEADBEEF, 0xDEADBEEF),
    }
    nothing = command_of(fields_of((0,) * 14))
    for name, (expected, number) in plain.items():
        words = [0] * 14
        place = isa.UNIT_FIELDS["vector"][name]
        words[place.word] = number << place.low
        command = command_of(fields_of(tuple(words)))
        assert getattr(command, name) == expected
        assert command.replace(**{name: getattr(nothing, name)}) == nothing
    for name in ("s1", "s2", "multiplier", "addend"):
        words = [0] * 14
        place = isa.UNIT_FIELDS["vector"][name]
        words[place.word] = 77 << place.low
        assert getattr(command_of(fields_of(tuple(words))), name) is None
        words[0] |= isa.pack_word("vector", 0, **{f"use_{name}": 1})
        assert getattr(command_of(fields_of(tuple(words))), name) == 77
    for bit, name in enumerate(("s1", "s2", "s3", "multiplier", "addend")):
        words = [0] * 14
        words[9] = 1 << 16 + bit
        assert command_of(fields_of(tuple(words))).per_vector == {name}
