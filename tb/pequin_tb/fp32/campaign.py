"""Random and directed operands for the fp32 units, their golden answers, and the comparison."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pequin.export import elaborate
from pequin_sim.golden import fp32, special
from pequin_sim.golden.vector_sum import fixed_terms
from pequin_sim.images import read_image, write_image
from pequin_sim.runner import simulate
from pequin_tb.fp32.player import FIXED_WIDTH, RESULTS, UnitPlayer

Bits = npt.NDArray[np.uint32]

FLUSH_PAIRS = ((0x21CAFBFE, 0x1E216DBD), (0x21B00005, 0x1E3A2E86))
"""Products below 2**-126 that must be flushed; the second rounds to 2**-126 with 24 bits."""


def corners() -> Bits:
    """Return operands at the edges of every class, as uint32 bits without repetition."""
    exponents = [0, 1, 2, 23, 24, 63, 64, 94, 95, 102, 103, 104, 117, 118, 119, 120]
    exponents += [124, 125, 126, 127, 128, 129, 133, 134, 135, 149, 150, 151]
    exponents += [157, 158, 159, 190, 191, 229, 230, 253, 254, 255]
    fractions = [0, 1, 2, 3, 0x3FFFFF, 0x400000, 0x400001, 0x555555, 0x7FFFFD, 0x7FFFFE, 0x7FFFFF]
    magnitudes = [e << 23 | f for e in exponents for f in fractions]
    magnitudes += [bits for pair in FLUSH_PAIRS for bits in pair]
    magnitudes += [0x42FC0000, 0x42FC0001, 0x42FFFFFF, 0x43000000]
    both = np.array(magnitudes, np.uint32)
    return np.unique(np.concatenate([both, both | np.uint32(0x80000000)]))


def directed_pairs() -> tuple[Bits, Bits]:
    """Return every pair of corner operands."""
    pool = corners()
    a, b = np.meshgrid(pool, pool, indexing="ij")
    return a.ravel(), b.ravel()


def random_pairs(count: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Return random operand pairs: all bits, near exponents, near the flush limit, corners."""
    a = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    b = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    kind = rng.integers(0, 8, count)
    exponent = (a >> 23 & 0xFF).astype(np.int64)
    near = np.clip(exponent + rng.integers(-27, 28, count), 0, 255)
    under = np.clip(127 + rng.integers(-3, 2, count) - (exponent - 1), 0, 255)
    over = np.clip(254 + 127 + rng.integers(-2, 3, count) - exponent, 0, 255)
    small = rng.integers(95, 140, count)
    for code, field in ((1, near), (2, near), (3, under), (4, over)):
        b = np.where(kind == code, b & 0x807FFFFF | (field << 23).astype(np.uint32), b)
    a = np.where(kind == 5, a & 0x807FFFFF | (small << 23).astype(np.uint32), a)
    # Almost equal operands cancel; few bits make halfway cases likely.
    close = a ^ np.uint32(0x80000000) ^ (b & 3)
    b = np.where(kind == 2, close, b)
    a, b = (np.where(kind == 6, v & 0xFFFFF000, v).astype(np.uint32) for v in (a, b))
    pool = corners()
    a = np.where(kind == 7, pool[rng.integers(0, len(pool), count)], a)
    return a.astype(np.uint32), b.astype(np.uint32)


def golden(a: Bits, b: Bits) -> dict[str, npt.NDArray[np.generic]]:
    """Return every unit's expected bits, by the name of its field in `RESULTS`."""
    x, y = fp32.from_bits(a), fp32.from_bits(b)
    terms, overflow = fixed_terms(x, width=64)
    to_int, invalid = fp32.to_int(x)
    functions = [fp32.to_bits(f(x)) for f in (special.exp2, special.reciprocal, special.rsqrt)]
    mixed = np.choose(b & 3, [a, *functions])
    return {
        "add": fp32.to_bits(fp32.add(x, y)),
        "sub": fp32.to_bits(fp32.sub(x, y)),
        "mul": fp32.to_bits(fp32.mul(x, y)),
        "max": fp32.to_bits(fp32.maximum(x, y)),
        "compare": fp32.compare(x, y),
        "from_int": fp32.to_bits(fp32.from_int(a.view(np.int32))),
        "to_int": to_int.view(np.uint32),
        "invalid": invalid,
        "exp2": functions[0],
        "reciprocal": functions[1],
        "rsqrt": functions[2],
        "mixed": mixed.astype(np.uint32),
        "to_fixed": terms.view(np.uint64),
        "overflow": overflow,
        "from_fixed": _from_fixed(a, b),
    }


def _from_fixed(a: Bits, b: Bits) -> Bits:
    """Round (b:a << 16) >> b[5:0], an 80-bit number in units of 2**-32, to fp32."""
    assert FIXED_WIDTH == 80
    both = (b.astype(np.uint64) << np.uint64(32) | a).view(np.int64)
    shift = (b & 63).astype(np.int64)
    sticky = np.where(shift > 16, both & ((np.int64(1) << np.maximum(shift - 16, 0)) - 1), 0)
    del sticky  # bits shifted out never reach the number: the shift comes before the rounding
    left = np.maximum(16 - shift, 0)
    value = both >> np.maximum(shift - 16, 0)
    # Round 64 bits to 24 by hand, since float64 would round them to 53 first.
    negative = value < 0
    magnitude = np.where(negative, -value, value).view(np.uint64)
    length = np.zeros(magnitude.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        high = magnitude >> (length + step).astype(np.uint64) != 0
        length += np.where(high, step, 0)
    drop = np.maximum(length - 23, 0).astype(np.uint64)
    one = np.uint64(1)
    kept = magnitude >> drop
    rest = magnitude - (kept << drop)
    half = np.where(drop > 0, one << np.maximum(drop, one) - one, one << np.uint64(63))
    up = (rest > half) | ((rest == half) & (kept & one == 1))
    rounded = (kept + up).astype(np.float64) * 2.0 ** (drop.astype(np.float64) + left - 32)
    return fp32.to_bits(np.where(negative, -rounded, rounded).astype(np.float32))


def run(a: Bits, b: Bits, depth: int) -> int:
    """Play operands in runs of `depth` and compare all units; return the pairs played.

    Raises
    ------
    AssertionError
        A unit's result differs; the message has the unit and the operands.
    """
    design = elaborate(UnitPlayer(depth), "unit_player")
    for start in range(0, len(a), depth):
        part = slice(start, start + depth)
        _run_once(design, a[part], b[part], depth)
    return len(a)


def _run_once(design: object, a: Bits, b: Bits, depth: int) -> None:
    words = np.zeros((depth, 8), np.uint8)
    words[: len(a), :4] = a.view(np.uint8).reshape(-1, 4)
    words[: len(a), 4:] = b.view(np.uint8).reshape(-1, 4)
    with tempfile.TemporaryDirectory() as name:
        load, dump = Path(name) / "operands", Path(name) / "results"
        write_image(load, words)
        simulate(
            design,  # type: ignore[arg-type]
            test_module="pequin_tb.fp32.play",
            job={"depth": depth},
            plusargs=[f"+operands.load={load}", f"+results.dump={dump}"],
        )
        image = read_image(dump, RESULTS.size // 8)
    compare(image[: len(a)], a, b)


def compare(image: npt.NDArray[np.uint8], a: Bits, b: Bits) -> None:
    """Compare a result image with the golden answers."""
    words = np.ascontiguousarray(image).view(np.uint32).astype(np.uint64)
    expected = golden(a, b)
    for name, field in RESULTS:
        if name not in expected:
            continue
        word, bit = divmod(field.offset, 32)
        value = words[:, word]
        if field.width == 64:
            value = value | words[:, word + 1] << np.uint64(32)
        value = value >> np.uint64(bit) & np.uint64((1 << field.width) - 1)
        wrong = np.flatnonzero(value != expected[name].astype(np.uint64))
        if len(wrong):
            i = wrong[0]
            raise AssertionError(
                f"{name} of {a[i]:#010x}, {b[i]:#010x} ({fp32.from_bits(a)[i]}, "
                f"{fp32.from_bits(b)[i]}) is {int(value[i]):#x}, expected "
                f"{int(expected[name][i]):#x}; {len(wrong)} of {len(a)} differ"
            )
