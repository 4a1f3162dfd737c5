"""Random programs for the vector unit: every operation, place and error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pequin.config import BLOCK
from pequin_sim.golden.fp32 import F32
from pequin_sim.golden.vector import VectorCommand
from pequin_tb.vector.bench import Program, params

ONES = 32
"""Elements at the start of memory that hold 1.0 and are never written."""


@dataclass(frozen=True)
class Area:
    """Part of the memory and of the scalars that commands may use."""

    low: int
    high: int
    first_scalar: int
    scalars: int


def values(rng: np.random.Generator, count: int) -> F32:
    """Return values of mixed size; few are zero, subnormal, infinite or NaN."""
    x = (rng.standard_normal(count) * np.exp2(rng.integers(-12, 6, count))).astype(np.float32)
    odd = rng.random(count)
    x[odd < 0.02] = 0.0
    x[(odd >= 0.02) & (odd < 0.025)] = np.float32(1e-41)
    x[(odd >= 0.03) & (odd < 0.0305)] = np.inf
    x[(odd >= 0.031) & (odd < 0.0312)] = np.nan
    return x


class Maker:
    """Makes commands for a preset."""

    def __init__(self, preset: str, rng: np.random.Generator, max_length: int) -> None:
        self.params = params(preset)
        self.rng = rng
        self.max_length = max_length
        self.tag = self.flip = 0
        memory = values(rng, self.params.config.vector_elements)
        memory[:ONES] = 1.0
        self.program = Program(preset, memory)

    def pick(self, *items: Any) -> Any:
        """Choose one of the arguments."""
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return bool(self.rng.random() < probability)

    def next_tag(self) -> int:
        """Return the next command's tag."""
        self.tag = (self.tag + 1) % 256
        self.flip = int(self.rng.integers(2))
        return self.tag

    def place(self, area: Area, extent: int) -> int:
        """Return an aligned address with `extent` elements to the area's end."""
        last = (area.high - extent) // BLOCK
        return BLOCK * int(self.rng.integers(area.low // BLOCK, last + 1))

    def scalar(self, area: Area, vectors: int) -> int:
        """Return a register to read: of the half that the command does not write."""
        half = area.scalars // 2
        return area.first_scalar + half * self.flip + int(self.rng.integers(half - vectors + 1))

    def written(self, area: Area, vectors: int) -> int:
        """Return a register to write."""
        half = area.scalars // 2
        first = area.first_scalar + half * (1 - self.flip)
        return first + int(self.rng.integers(half - vectors + 1))

    def row_command(self, area: Area, queue: int, quantize: tuple[str, ...]) -> VectorCommand:
        """Return a command on vectors that the unit accepts."""
        span = area.high - area.low
        vectors = int(self.rng.integers(1, min(4, self.params.config.columns) + 1))
        limit = min(self.max_length, span // (3 * vectors) - 2 * BLOCK)
        op = self.pick("copy", "copy", "copy", "add", "sub", "mul", "rotary", "rotary_half")
        if queue and op == "rotary_half":
            op = "rotary"
        distance = 0 if queue else int(self.rng.integers(0, 5))
        length = int(self.rng.integers(1, max(2, limit)))
        if op == "rotary":
            step = 2 << distance
            length = max(step, length // step * step)
        if op == "rotary_half":
            length = max(64, length // 64 * 64)
        stride = -(-length // BLOCK) * BLOCK + BLOCK * int(self.rng.integers(2))
        where = self._disjoint(area, stride * vectors)
        if where is None:
            return self.scalar_command(area)
        fields: dict[str, Any] = {
            "op": op,
            "tag": self.next_tag(),
            "source": self.pick("drain", "drain", "blocks") if queue else "memory",
            "length": length,
            "vectors": vectors,
            "distance": distance if op == "rotary" else 0,
            "store": self.chance(0.7),
            "limits": self.chance(0.3),
            "a_stride": stride,
            "b_stride": self.pick(0, stride),
            "dst_stride": stride,
        }
        fields["a"], fields["b"], fields["dst"] = where
        if self.chance(0.2) and abs(fields["b"] - fields["a"]) >= stride * vectors:
            fields["dst"] = fields["a"]
        self._arithmetic(fields, area, op, vectors)
        self._reduction(fields, area, queue, vectors)
        self._quantize(fields, op, length, vectors, quantize)
        return VectorCommand(**fields)

    def _disjoint(self, area: Area, extent: int) -> tuple[int, int, int] | None:
        """Return places of a, b and dst such that dst meets neither."""
        for _ in range(50):
            a, b, dst = (self.place(area, extent) for _ in range(3))
            if abs(dst - a) >= extent and abs(dst - b) >= extent:
                return a, b, dst
        return None

    def _arithmetic(self, fields: dict[str, Any], area: Area, op: str, vectors: int) -> None:
        stepping = {n for n in ("s1", "s2", "s3", "multiplier", "addend") if self.chance(0.5)}
        fields["per_vector"] = frozenset(stepping)
        rotary = op in ("rotary", "rotary_half")
        if not rotary:
            fields["function"] = self.pick("pass", "pass", "exp2", "reciprocal")
            if op != "mul" and self.chance(0.4):
                fields["s1"] = self.scalar(area, vectors)
            if op in ("copy", "mul") and self.chance(0.4):
                fields["s2"] = self.scalar(area, vectors)
                fields["minus_s2"] = self.chance(0.5)
        fields["factor"] = self.pick("one", "one", "s3", "square", *([] if rotary else ["b"]))
        fields["s3"] = self.scalar(area, vectors)

    def _reduction(self, fields: dict[str, Any], area: Area, queue: int, vectors: int) -> None:
        fields["reduce"] = self.pick("none", "sum", "max", "arg_max")
        if fields["reduce"] == "none":
            return
        fields["out"] = self.written(area, vectors)
        fields["start"] = (
            fields["reduce"] == "max" and fields["factor"] != "s3" and self.chance(0.4)
        )
        if fields["reduce"] == "arg_max" and not queue:
            fields["rank"] = int(self.rng.integers(0, 4))
            if fields["rank"]:
                fields["store"] = False
        if self.chance(0.4):
            fields["multiplier"] = self.scalar(area, vectors)
        if self.chance(0.4):
            fields["addend"] = self.scalar(area, vectors)
        fields["finish"] = self.pick("pass", "exp2", "reciprocal", "rsqrt")

    def _quantize(
        self, fields: dict[str, Any], op: str, length: int, vectors: int, kinds: tuple[str, ...]
    ) -> None:
        spread = op == "rotary_half" or fields["distance"] != 0
        kind = self.pick("none", *kinds)
        if kind == "none" or spread or fields.get("rank") or (kind == "values" and length > 256):
            return
        config = self.params.config
        fields["quantize"] = kind
        blocks = -(-length // BLOCK)
        if kind == "activations":
            paired = self.chance(0.5)
            depth = config.act_blocks * (1 + paired)
            if blocks > depth:
                fields["quantize"] = "none"
                return
            columns = config.columns // (1 + paired)
            fields["paired"] = paired
            step = int(columns >= vectors)
            fields["column_step"] = step
            fields["column"] = int(self.rng.integers(columns - step * (vectors - 1)))
            room = depth - blocks
            fields["address_step"] = 0 if step else min(blocks, room // max(1, vectors - 1))
            room -= fields["address_step"] * (vectors - 1)
            fields["address"] = int(self.rng.integers(room + 1))
        else:
            fields["address"] = int(self.rng.integers(1 << 20))
            fields["address_step"] = int(self.rng.integers(1 << 10))
            fields["lane"] = int(self.rng.integers(32))

    def scalar_command(self, area: Area) -> VectorCommand:
        """Return a command on scalar registers."""
        vectors = int(self.rng.integers(1, 4))
        tag = self.next_tag()
        out = self.written(area, vectors)
        if self.chance(0.5):
            value = np.float32(self.rng.standard_normal() * 2)
            return VectorCommand(
                op="set_scalar",
                tag=tag,
                vectors=vectors,
                out=out,
                immediate=int(value.view(np.uint32)),
            )
        return VectorCommand(
            op="scalar",
            tag=tag,
            vectors=vectors,
            out=out,
            s1=self.scalar(area, vectors),
            multiplier=self.scalar(area, vectors) if self.chance(0.5) else None,
            addend=self.scalar(area, vectors) if self.chance(0.5) else None,
            finish=self.pick("pass", "exp2", "reciprocal", "rsqrt"),
            per_vector=frozenset({"s1", "addend"} if self.chance(0.5) else {"multiplier"}),
        )

    def limits_command(self) -> VectorCommand:
        """Return a command that sets limits."""
        columns = self.params.config.columns
        vectors = int(self.rng.integers(1, min(4, columns) + 1))
        start = int(self.rng.integers(0, max(1, self.max_length // 3)))
        end = start + int(self.rng.integers(0, self.max_length))
        return VectorCommand(
            op="set_limits",
            tag=self.next_tag(),
            vectors=vectors,
            out=int(self.rng.integers(columns - vectors + 1)),
            immediate=start | end << 16,
        )

    def spoil(self, c: VectorCommand, queue: int) -> VectorCommand:
        """Return a command with an error in it."""
        size = self.params.config.vector_elements
        changes: list[dict[str, Any]] = [
            {"length": 0},
            {"vectors": 0},
            {"store": True, "dst": c.dst | 4},
            {"store": True, "dst": size - BLOCK, "length": 33},
            {"function": "rsqrt"},
            {"start": True, "reduce": "sum"},
            {"quantize": "activations", "column": self.params.config.columns},
            {"quantize": "keys", "paired": True},
            {"source": "memory" if queue else "drain"},
            {"limits": True, "vectors": self.params.config.columns + 1},
            {"quantize": "values", "length": 257},
            {"op": "rotary_half", "length": 32, "function": "pass"},
        ]
        if not c.has_rows:
            changes = [{"vectors": 0}, {"out": self.params.config.scalars - 1, "vectors": 3}]
            if c.op == "set_limits":
                changes = [{"out": self.params.config.columns}]
        return c.replace(**changes[int(self.rng.integers(len(changes)))])

    def feed(self, c: VectorCommand) -> None:
        """Provide the drained rows or the blocks that a command will take."""
        if c.source == "drain":
            rows = values(self.rng, c.length * c.vectors).reshape(c.length, c.vectors)
            self.program.drained += list(rows)
        elif c.source == "blocks":
            for _ in range(c.vectors * -(-c.length // BLOCK)):
                scale = int(self.rng.integers(100, 140))
                scale = self.pick(scale, scale, scale, int(self.rng.integers(256)))
                self.program.blocks.append((self.rng.bytes(32), scale))

    def dump_scalars(self) -> None:
        """Store every scalar register to memory."""
        self.program.wait()
        config = self.params.config
        count = min(config.scalars, config.vector_elements // 64, 255)
        self.program.add(
            VectorCommand(
                tag=255,
                length=1,
                vectors=count,
                a=0,
                s1=0,
                per_vector=frozenset({"s1"}),
                store=True,
                dst=config.vector_elements - BLOCK * count,
                dst_stride=BLOCK,
            )
        )


def random_program(
    preset: str, seed: int, commands: int, *, max_length: int = 200, errors: float = 0.08
) -> Program:
    """Return a program with phases of both queues: one after the other, and side by side."""
    rng = np.random.default_rng(seed)
    maker = Maker(preset, rng, max_length)
    config = maker.params.config
    half = config.vector_elements // 2
    scalars = config.scalars // 2
    both = Area(ONES, config.vector_elements, 0, config.scalars)
    lower, upper = Area(ONES, half, 0, scalars), Area(half, 2 * half, scalars, scalars)
    while len(maker.program.steps) < commands:
        if maker.chance(0.3):
            _phase(maker, both, 1, ("activations", "keys"), errors, 4)
        elif maker.chance(0.5):
            _phase(maker, both, 0, ("activations", "keys", "values"), errors, 8)
        else:
            steps = len(maker.program.steps)
            _phase(maker, upper, 1, ("keys",), errors, 3, wait=False)
            drain = maker.program.steps[steps:]
            _phase(maker, lower, 0, ("activations",), errors, 6, wait=False)
            memory = maker.program.steps[steps + len(drain) :]
            maker.program.steps[steps:] = _shuffle(rng, drain, memory)
            maker.program.wait()
    maker.dump_scalars()
    return maker.program


def _shuffle(rng: np.random.Generator, first: list[Any], second: list[Any]) -> list[Any]:
    """Merge two lists at random, each in its order."""
    places = rng.permutation([0] * len(first) + [1] * len(second))
    sources = iter(first), iter(second)
    return [next(sources[int(i)]) for i in places]


def _phase(
    maker: Maker,
    area: Area,
    queue: int,
    quantize: tuple[str, ...],
    errors: float,
    count: int,
    wait: bool = True,
) -> None:
    for _ in range(int(maker.rng.integers(1, count + 1))):
        kind = maker.rng.random()
        if queue or kind < 0.7:
            command = maker.row_command(area, queue, quantize)
            if queue and not command.has_rows:
                continue
        elif kind < 0.9 or not wait:
            command = maker.scalar_command(area)
        else:
            command = maker.limits_command()
        if maker.chance(errors):
            command = maker.spoil(command, queue)
        else:
            maker.feed(command)
        maker.program.add(command, queue)
    if wait:
        maker.program.wait()
