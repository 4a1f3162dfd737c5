"""Golden vector unit: commands on vectors, bit for bit, whatever the number of lanes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK, TileParams
from pequin_sim.golden import fp32, special
from pequin_sim.golden.fp32 import F32
from pequin_sim.golden.vector_check import check, check_races
from pequin_sim.golden.vector_command import (
    KV_ADDRESSES,
    VALUE_ELEMENTS,
    BlockWrite,
    KvWrite,
    Response,
    Status,
    VectorCommand,
)
from pequin_sim.golden.vector_sum import fixed_sum, fixed_terms, sum_to_fp32
from pequin_sim.mx import quantize_activations

__all__ = [
    "BlockWrite",
    "KvWrite",
    "Response",
    "Status",
    "VectorCommand",
    "VectorMachine",
    "check",
    "check_races",
    "dequantize",
    "quantize_value",
]

_FUNCTIONS = {
    "exp2": special.exp2,
    "reciprocal": special.reciprocal,
    "rsqrt": special.rsqrt,
    "pass": lambda x: np.asarray(x, np.float32),
}


@dataclass
class VectorMachine:
    """The vector unit's state, and execution of commands in program order.

    Parameters
    ----------
    params
        Sizes.
    memory
        float32 [vector_elements].
    scalars
        float32 [scalars].
    limits
        int64 [columns, 2]: start and end of each vector's live elements.
    activations, kv
        What commands wrote, in order.
    drained
        Results to come, each float32 [vectors] of one matrix row.
    blocks
        Quantized blocks to come: (32 elements, scale).
    """

    params: TileParams
    memory: F32 = field(default_factory=lambda: np.zeros(0, np.float32))
    scalars: F32 = field(default_factory=lambda: np.zeros(0, np.float32))
    limits: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    activations: list[BlockWrite] = field(default_factory=list)
    kv: list[KvWrite] = field(default_factory=list)
    drained: deque[F32] = field(default_factory=deque)
    blocks: deque[tuple[bytes, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Allocate what was not given."""
        config = self.params.config
        if not len(self.memory):
            self.memory = np.zeros(config.vector_elements, np.float32)
        if not len(self.scalars):
            self.scalars = np.zeros(config.scalars, np.float32)
        if not len(self.limits):
            self.limits = np.zeros((config.columns, 2), np.int64)

    def run(self, commands: Sequence[VectorCommand], queue: int = 0) -> list[Response]:
        """Execute commands one after another; return their responses."""
        return [response for command in commands for response in self.execute(command, queue)]

    def execute(self, c: VectorCommand, queue: int = 0) -> list[Response]:
        """Execute one command; return its responses, the end last."""
        status = check(self.params, c, queue)
        entries: list[Response] = []
        if not status:
            check_races(c)
            if c.has_rows:
                status, entries = self._rows(c)
            else:
                status = self._scalar_command(c)
        return [*entries, Response("done", c.tag, int(status))]

    def _scalar_command(self, c: VectorCommand) -> Status:
        status = Status(0)
        for v in range(c.vectors):
            if c.op == "set_limits":
                self.limits[c.out + v] = c.immediate & 0xFFFF, c.immediate >> 16
                continue
            if c.op == "set_scalar":
                value = fp32.mul(fp32.from_bits(np.uint32(c.immediate)), np.float32(1))
            else:
                x = self.scalars[self._index(c, "s1", c.s1 or 0, v)]
                value = self._finish(c, x, v)
            self.scalars[c.out + v] = value
            if not np.isfinite(value):
                status |= Status.NOT_FINITE
        return status

    def _index(self, c: VectorCommand, name: str, index: int, v: int) -> int:
        return index + (v if name in c.per_vector else 0)

    def _finish(self, c: VectorCommand, x: npt.ArrayLike, v: int) -> F32:
        """finish(x * s[multiplier] + s[addend]), each step rounded."""
        one, nothing = np.float32(1), np.float32(-0.0)
        multiplier = (
            one
            if c.multiplier is None
            else self.scalars[self._index(c, "multiplier", c.multiplier, v)]
        )
        addend = (
            nothing if c.addend is None else self.scalars[self._index(c, "addend", c.addend, v)]
        )
        return np.asarray(_FUNCTIONS[c.finish](fp32.add(fp32.mul(x, multiplier), addend)))

    def _rows(self, c: VectorCommand) -> tuple[Status, list[Response]]:
        """Execute a command on vectors."""
        status = Status(0)
        entries: list[Response] = []
        rows = self._operand_a(c)
        written: list[tuple[int, list[BlockWrite]]] = []
        for v in range(c.vectors):
            output, taken, live, bad = self._vector(c, rows[v], v)
            if bad:
                status |= Status.NOT_FINITE
            if c.store:
                at = c.dst + v * c.dst_stride
                self.memory[at : at + c.length] = output
            if c.quantize != "none":
                written.append((v, self._quantize(c, output, v)))
            if c.reduce != "none":
                more, found = self._reduce(c, taken, live, v)
                status |= more
                entries += found
        self._emit_blocks(c, written)
        return status, entries

    def _operand_a(self, c: VectorCommand) -> list[F32]:
        """Return operand a of every vector, flushed nowhere."""
        if c.source == "memory":
            starts = [c.a + v * c.a_stride for v in range(c.vectors)]
            return [self.memory[at : at + c.length].copy() for at in starts]
        if c.source == "drain":
            rows = [self.drained.popleft()[: c.vectors] for _ in range(c.length)]
            return list(np.stack(rows).T.copy())
        vectors = []
        for _ in range(c.vectors):
            parts = [self.blocks.popleft() for _ in range(-(-c.length // BLOCK))]
            vectors.append(np.concatenate([dequantize(*part) for part in parts])[: c.length])
        return vectors

    def _vector(
        self, c: VectorCommand, a: F32, v: int
    ) -> tuple[F32, F32, npt.NDArray[np.bool_], bool]:
        """Return y, what reductions take, the live elements, and whether any is not finite."""
        b = self.memory[c.b + v * c.b_stride :][: c.length].copy()
        t = self._sum(c, a, b, v)
        f = np.asarray(_FUNCTIONS[c.function](t))
        factor: npt.ArrayLike = {
            "one": np.float32(1),
            "s3": self.scalars[min(self._index(c, "s3", c.s3, v), len(self.scalars) - 1)],
            "b": fp32.mul(b, np.float32(1)),
            "square": f,
        }[c.factor]
        y = fp32.mul(f, factor)
        output = f if c.factor == "square" else y
        taken = f if c.function == "exp2" and c.factor != "square" else y
        places = np.arange(c.length)
        live = np.ones(c.length, np.bool_)
        if c.limits:
            start, end = self.limits[v]
            live = (places >= start) & (places < end)
        bad = bool((~(np.isfinite(t) & np.isfinite(y)) & live).any())
        return np.where(live, output, np.float32(0)), taken, live, bad

    def _sum(self, c: VectorCommand, a: F32, b: F32, v: int) -> F32:
        """Return t."""
        if c.op in ("rotary", "rotary_half"):
            return self._rotate(c, a, b)
        s1 = np.float32(1) if c.s1 is None else self.scalars[self._index(c, "s1", c.s1, v)]
        product = fp32.mul(a, b if c.op == "mul" else s1)
        if c.op in ("add", "sub"):
            operand: npt.ArrayLike = fp32.mul(b, np.float32(1))
            minus = c.op == "sub"
        else:
            operand = (
                np.float32(-0.0) if c.s2 is None else self.scalars[self._index(c, "s2", c.s2, v)]
            )
            minus = c.minus_s2 and c.s2 is not None
        return fp32.sub(product, operand) if minus else fp32.add(product, operand)

    def _rotate(self, c: VectorCommand, a: F32, table: F32) -> F32:
        """Rotate pairs: x0 * cos - x1 * sin, and x1 * cos + x0 * sin."""
        place = np.arange(c.length)
        apart = c.length // 2 if c.op == "rotary_half" else 1 << c.distance
        first = place[(place // apart) % 2 == 0]
        second = first + apart
        cosine, sine = table[first], table[second]
        t = np.empty(c.length, np.float32)
        t[first] = fp32.sub(fp32.mul(a[first], cosine), fp32.mul(a[second], sine))
        t[second] = fp32.add(fp32.mul(a[second], cosine), fp32.mul(a[first], sine))
        return t

    def _reduce(
        self, c: VectorCommand, taken: F32, live: npt.NDArray[np.bool_], v: int
    ) -> tuple[Status, list[Response]]:
        """Reduce a vector; write its scalar; return arg-max entries."""
        status = Status(0)
        if c.reduce == "sum":
            terms, overflow = fixed_terms(taken[live])
            if overflow.any():
                status |= Status.OVERFLOW
            value = self._finish(c, sum_to_fp32(fixed_sum(terms)), v)
            self.scalars[c.out + v] = value
            return status | (Status(0) if np.isfinite(value) else Status.NOT_FINITE), []
        entries = []
        for rank, (key, index) in enumerate(self._best(c, taken, live, v)):
            best = fp32.from_order_key(key) if key else np.float32(-np.inf)
            value = self._finish(c, best, v)
            if not np.isfinite(value) and key:
                status |= Status.NOT_FINITE
            if rank == 0:
                self.scalars[c.out + v] = value
            if c.reduce == "arg_max":
                bits = int(fp32.to_bits(value).reshape(-1)[0])
                entries.append(Response("result", c.tag, 0, v, rank, bits, index))
        return status, entries

    def _best(
        self, c: VectorCommand, taken: F32, live: npt.NDArray[np.bool_], v: int
    ) -> list[tuple[int, int]]:
        """Return order keys and places of the best elements; key 0 and place 65,535 for none."""
        keys = fp32.order_key(taken)
        if c.reduce == "arg_max":
            keys = np.where(keys == 0x7FFFFFFF, 0x80000000, keys)
        places = np.flatnonzero(live)
        order = places[np.lexsort((places, -keys[places]))]
        found = [(int(keys[i]), int(i)) for i in order[: c.rank + 1]]
        found += [(0, 0xFFFF)] * (c.rank + 1 - len(found))
        if c.start:
            floor = int(fp32.order_key(self.scalars[self._index(c, "s3", c.s3, v)]))
            found[0] = max(found[0], (floor, 0xFFFF), key=lambda item: item[0])
        return found

    def _quantize(self, c: VectorCommand, y: F32, v: int) -> list[BlockWrite]:
        """Quantize a vector; values come back as one block with the scale of all."""
        if c.quantize == "values":
            elements, scale = quantize_value(y)
            return [BlockWrite(0, 0, elements, scale)]
        padded = np.zeros(-(-c.length // BLOCK) * BLOCK, np.float32)
        padded[: c.length] = y
        tensor = quantize_activations(padded[np.newaxis])
        codes = tensor.elements.reshape(-1, BLOCK)
        scales = tensor.scales.reshape(-1)
        column, base = c.column + v * c.column_step, c.address + v * c.address_step
        blocks = []
        for i, (code, exponent) in enumerate(zip(codes, scales, strict=True)):
            place, address = column, base + i
            if c.paired:
                place, address = 2 * column + (address & 1), address >> 1
            blocks.append(BlockWrite(place, address, code.astype(np.int8).tobytes(), int(exponent)))
        return blocks

    def _emit_blocks(self, c: VectorCommand, written: list[tuple[int, list[BlockWrite]]]) -> None:
        """Append blocks in the order in which the unit writes them."""
        if c.quantize == "values":
            for v, (block,) in written:
                base = (c.address + v * c.address_step) % KV_ADDRESSES
                for d in range(c.length):
                    element = block.elements[d : d + 1] * BLOCK
                    self.kv.append(
                        KvWrite(True, base + d, c.lane, element, block.scale, d + 1 == c.length)
                    )
            return
        ordered = [block for _, blocks in written for block in blocks]
        if c.source == "drain" and written:
            count = len(written[0][1])
            ordered = [blocks[i] for i in range(count) for _, blocks in written]
        if c.quantize == "activations":
            self.activations += ordered
        elif c.quantize == "keys":
            self.kv += [self._key(c, written, block) for block in ordered]

    def _key(
        self, c: VectorCommand, written: list[tuple[int, list[BlockWrite]]], block: BlockWrite
    ) -> KvWrite:
        last = any(block is blocks[-1] for _, blocks in written)
        return KvWrite(
            False, block.address % KV_ADDRESSES, c.lane, block.elements, block.scale, last
        )


def quantize_value(y: F32) -> tuple[bytes, int]:
    """Quantize a vector as one block: the largest exponent is the scale."""
    padded = np.zeros(VALUE_ELEMENTS, np.float32)
    padded[: len(y)] = y
    amax = np.float32(np.abs(padded).max())
    # A block of 32 that holds the largest magnitude has the same scale for every element.
    blocks = np.zeros((VALUE_ELEMENTS, BLOCK), np.float32)
    blocks[:, 0], blocks[:, 1] = padded, amax
    tensor = quantize_activations(blocks)
    elements = tensor.elements.reshape(-1, BLOCK)[: len(y), 0].astype(np.int8)
    return elements.tobytes(), int(tensor.scales.reshape(-1)[0])


@np.errstate(all="ignore")
def dequantize(elements: bytes, scale: int) -> F32:
    """Return fp32 values of an MXINT8 block; exact, flushed, infinite when too large."""
    values = np.frombuffer(elements, np.int8).astype(np.float64)
    if scale == 0xFF:
        return np.full(len(values), np.nan, np.float32)
    exact = values * 2.0 ** (scale - 127 - 6)
    flushed = np.where(np.abs(exact) < fp32.MIN_NORMAL, np.copysign(0.0, exact), exact)
    return flushed.astype(np.float32)
