"""The packed weight stream: fixed vectors, and an independent packer written beat by beat."""

import re
from pathlib import Path

import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim.layout import beat_count, pack_weights, unpack_weights
from pequin_sim.mx import MxTensor

DOC = Path(__file__).parents[2] / "docs" / "layout.md"

CASES = [(fmt, planes) for fmt, planes in (("mxfp4", 1), ("mxfp4", 2), ("mxint8", 1))]


def tensor(fmt, planes, rows, k, seed=0):
    rng = np.random.default_rng(seed)
    low, high = (0, 16) if fmt == "mxfp4" else (-128, 128)
    return MxTensor(
        fmt,
        rng.integers(low, high, (planes, rows, k)).astype(np.int8),
        rng.integers(0, 256, (planes, rows, k // 32)).astype(np.uint8),
    )


def payload_beats(t):
    """Yield (32 payload bytes, scale bytes) beat by beat, straight from the rules."""
    step = 2 if t.fmt == "mxfp4" else 1
    for first in range(0, t.rows, step):
        for plane in range(t.planes):
            for block in range(t.k // 32):
                data, scales = [], []
                for row in range(first, first + step):
                    inside = row < t.rows
                    e = [int(v) for v in t.elements[plane, min(row, t.rows - 1), 32 * block :][:32]]
                    e = e if inside else [0] * 32
                    scales.append(int(t.scales[plane, row, block]) if inside else 0)
                    if step == 2:
                        data += [e[i] + 16 * e[i + 1] for i in range(0, 32, 2)]
                    else:
                        data += [v % 256 for v in e]
                yield data, scales


def reference_stream(t, scaled):
    beats, per_chunk = list(payload_beats(t)), 16 if t.fmt == "mxfp4" else 32
    if not scaled:
        return [data for data, _ in beats]
    stream = []
    for start in range(0, len(beats), per_chunk):
        chunk = beats[start : start + per_chunk]
        scales = [s for _, pair in chunk for s in pair]
        stream.append(scales + [0] * (32 - len(scales)))
        stream += [data for data, _ in chunk]
    return stream


@pytest.mark.parametrize(("fmt", "planes"), CASES)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 33])
@pytest.mark.parametrize("k", [32, 64, 96, 512, 544])
def test_against_a_packer_that_goes_beat_by_beat(fmt, planes, rows, k):
    t = tensor(fmt, planes, rows, k, seed=rows * k)
    stream = pack_weights(t)
    np.testing.assert_array_equal(stream, reference_stream(t, scaled=True))
    count = beat_count(rows, k, fmt, planes)
    assert count.total == len(stream)
    assert count.payload == len(list(payload_beats(t)))
    back = unpack_weights(stream, rows, k, fmt, planes)
    np.testing.assert_array_equal(back.elements, t.elements)
    np.testing.assert_array_equal(back.scales, t.scales)


@pytest.mark.parametrize(("fmt", "planes"), CASES)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_unscaled_stream_is_the_payload_alone(fmt, planes, rows):
    t = tensor(fmt, planes, rows, 96)
    t.scales[:] = 0x7F
    stream = pack_weights(t, scaled=False)
    np.testing.assert_array_equal(stream, reference_stream(t, scaled=False))
    assert beat_count(rows, 96, fmt, planes, scaled=False) == (len(stream), 0)
    back = unpack_weights(stream, rows, 96, fmt, planes, scaled=False)
    np.testing.assert_array_equal(back.elements, t.elements)
    assert (back.scales == 0x7F).all()


@pytest.mark.parametrize(
    ("rows", "k", "fmt", "planes", "payload", "scale"),
    [
        (64, 2880, "mxfp4", 1, 2880, 180),
        (64, 2880, "mxfp4", 2, 5760, 360),
        (64, 2880, "mxint8", 1, 5760, 180),
        (1, 32, "mxfp4", 1, 1, 1),
        (1, 32, "mxint8", 1, 1, 1),
        (33, 32, "mxint8", 1, 33, 2),
        (33, 32, "mxfp4", 1, 17, 2),
        (32, 32, "mxfp4", 1, 16, 1),
    ],
)
def test_closed_form_counts(rows, k, fmt, planes, payload, scale):
    count = beat_count(rows, k, fmt, planes)
    assert count == (payload, scale)
    assert count.total == payload + scale


def test_bits_per_weight():
    for fmt, bits in (("mxfp4", 4.25), ("mxint8", 8.25)):
        assert beat_count(64, 2048, fmt).total * 256 / (64 * 2048) == bits


def hex_beats(stream):
    return [beat.tobytes().hex(" ", 4) for beat in stream]


def vector(elements, scales, fmt):
    return MxTensor(fmt, np.array(elements, np.int8), np.array(scales, np.uint8))


# Codes count up from 0 in row 0 and down from 15 in row 1; row 2 is all sixes (code 7).
UP, DOWN, SIXES = [k % 16 for k in range(32)], [15 - k % 16 for k in range(32)], [7] * 32

VECTORS = {
    "mxfp4-three-rows": (
        vector([[UP, DOWN, SIXES]], [[[0x7F], [0x80], [0x81]]], "mxfp4"),
        [
            "7f808100 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
            "10325476 98badcfe 10325476 98badcfe efcdab89 67452301 efcdab89 67452301",
            "77777777 77777777 77777777 77777777 00000000 00000000 00000000 00000000",
        ],
    ),
    "mxfp4-two-planes": (
        vector(
            [[UP + SIXES, DOWN + SIXES], [[1] * 64, [2] * 32 + [3] * 32]],
            [[[0x70, 0x71], [0x72, 0x73]], [[0x60, 0x61], [0x62, 0x63]]],
            "mxfp4",
        ),
        [
            "70727173 60626163 00000000 00000000 00000000 00000000 00000000 00000000",
            "10325476 98badcfe 10325476 98badcfe efcdab89 67452301 efcdab89 67452301",
            "77777777 77777777 77777777 77777777 77777777 77777777 77777777 77777777",
            "11111111 11111111 11111111 11111111 22222222 22222222 22222222 22222222",
            "11111111 11111111 11111111 11111111 33333333 33333333 33333333 33333333",
        ],
    ),
    "mxint8-two-rows": (
        vector([[list(range(32)), list(range(-1, -33, -1))]], [[[0x7E], [0x82]]], "mxint8"),
        [
            "7e820000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
            "00010203 04050607 08090a0b 0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f",
            "fffefdfc fbfaf9f8 f7f6f5f4 f3f2f1f0 efeeedec ebeae9e8 e7e6e5e4 e3e2e1e0",
        ],
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_fixed_vectors(name):
    t, expected = VECTORS[name]
    assert hex_beats(pack_weights(t)) == expected


@pytest.mark.parametrize("name", VECTORS)
def test_the_document_shows_the_fixed_vectors(name):
    shown = re.search(rf"```text {name}\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert shown is not None
    beats = [line.split("|")[1].strip() for line in shown.group(1).splitlines()]
    assert beats == VECTORS[name][1]


def test_a_chunk_runs_on_across_rows_and_ends_partial():
    # Three rows of 11 blocks are 33 MXINT8 blocks: one whole chunk, and one of a single block.
    t = tensor("mxint8", 1, 3, 352)
    stream = pack_weights(t)
    assert len(stream) == 35
    np.testing.assert_array_equal(stream[0], t.scales[0].reshape(-1)[:32])
    np.testing.assert_array_equal(stream[33], [t.scales[0, 2, 10], *[0] * 31])
    np.testing.assert_array_equal(stream[34].view(np.int8), t.elements[0, 2, 320:])


def test_bad_input():
    t = tensor("mxfp4", 1, 3, 64)
    with pytest.raises(InputError, match="needs every scale to be 0x7F"):
        pack_weights(t, scaled=False)
    stream = pack_weights(t)
    with pytest.raises(InputError, match=r"3 x 96 mxfp4 .* uint8 \[7, 32\], not uint8 \[5, 32\]"):
        unpack_weights(stream, 3, 96, "mxfp4")
    with pytest.raises(InputError, match=r"not int64 \[5, 32\]"):
        unpack_weights(stream.astype(np.int64), 3, 64, "mxfp4")
    with pytest.raises(InputError, match="at least one row, not 0"):
        beat_count(0, 32, "mxfp4")
    with pytest.raises(InputError, match="block size 32, not 40"):
        beat_count(1, 40, "mxfp4")
    with pytest.raises(InputError, match="mxint8 takes planes = 1, not 2"):
        beat_count(1, 32, "mxint8", planes=2)
    with pytest.raises(InputError, match="format 'mxfp8' is unknown"):
        beat_count(1, 32, "mxfp8")


@pytest.mark.parametrize(("beat", "byte"), [(0, 31), (0, 5), (3, 16), (4, 31)])
def test_padding_must_be_zero(beat, byte):
    stream = pack_weights(tensor("mxfp4", 1, 3, 64))
    stream[beat, byte] = 1
    with pytest.raises(InputError, match=r"padding .* is not zero"):
        unpack_weights(stream, 3, 64, "mxfp4")
