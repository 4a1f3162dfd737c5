"""Commands of the golden vector unit, and what it answers and writes."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Literal

ALIGN = 32
VALUE_ELEMENTS = 256
KV_ADDRESSES = 1 << 24

Op = Literal[
    "copy", "add", "sub", "mul", "rotary", "rotary_half", "scalar", "set_scalar", "set_limits"
]
Function = Literal["pass", "exp2", "reciprocal", "rsqrt"]


class Status(enum.IntFlag):
    """How a command ended."""

    OPCODE = 1
    LENGTH = 2
    RANGE = 4
    NOT_FINITE = 8
    OVERFLOW = 16


@dataclass(frozen=True, kw_only=True)
class VectorCommand:
    """A command; docs/vector.md describes the fields.

    Addresses, strides and lengths are in elements. `s1`, `s2`, `multiplier` and `addend` are
    scalar registers or None; `s3` counts when `factor` is `s3` or `start` is set. The names in
    `per_vector` step with the vector.
    """

    op: Op = "copy"
    function: Function = "pass"
    factor: Literal["one", "s3", "b", "square"] = "one"
    source: Literal["memory", "drain", "blocks"] = "memory"
    tag: int = 0
    length: int = 1
    vectors: int = 1
    a: int = 0
    a_stride: int = 0
    b: int = 0
    b_stride: int = 0
    dst: int = 0
    dst_stride: int = 0
    distance: int = 0
    s1: int | None = None
    s2: int | None = None
    minus_s2: bool = False
    s3: int = 0
    per_vector: frozenset[str] = frozenset()
    store: bool = False
    quantize: Literal["none", "activations", "keys", "values"] = "none"
    paired: bool = False
    limits: bool = False
    reduce: Literal["none", "sum", "max", "arg_max"] = "none"
    start: bool = False
    rank: int = 0
    out: int = 0
    multiplier: int | None = None
    addend: int | None = None
    finish: Function = "pass"
    column: int = 0
    column_step: int = 0
    address: int = 0
    address_step: int = 0
    lane: int = 0
    immediate: int = 0

    def replace(self, **changes: object) -> VectorCommand:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    @property
    def has_rows(self) -> bool:
        """Whether it works on vectors."""
        return self.op in ("copy", "add", "sub", "mul", "rotary", "rotary_half")

    @property
    def reads_b(self) -> bool:
        """Whether operand b takes part."""
        return self.factor == "b" or self.op in ("add", "sub", "mul", "rotary", "rotary_half")


@dataclass(frozen=True)
class Response:
    """An arg-max entry, or with `kind` "done" a command's end."""

    kind: Literal["done", "result"]
    tag: int
    status: int = 0
    vector: int = 0
    rank: int = 0
    value: int = 0
    index: int = 0


@dataclass(frozen=True)
class BlockWrite:
    """A block for the activation buffer."""

    column: int
    address: int
    elements: bytes
    scale: int


@dataclass(frozen=True)
class KvWrite:
    """A block of K, or with `values` one element of V repeated in all bytes."""

    values: bool
    address: int
    lane: int
    elements: bytes
    scale: int
    last: bool
