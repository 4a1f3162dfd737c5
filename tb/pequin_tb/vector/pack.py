"""Golden commands as the unit's command words, and words back as golden records."""

from __future__ import annotations

from typing import Any

from amaranth.lib import data

from pequin.config import TileParams
from pequin.fp32.special import Function
from pequin.mac.types import activation_write, result_group
from pequin.vector.types import (
    Factor,
    Op,
    Quantize,
    Reduce,
    ResponseKind,
    Source,
    kv_write,
    vector_command,
    vector_response,
)
from pequin_sim.golden.vector import BlockWrite, KvWrite, Response, VectorCommand

_ENUMS: dict[str, Any] = {
    "op": Op,
    "function": Function,
    "finish": Function,
    "factor": Factor,
    "source": Source,
    "quantize": Quantize,
    "reduce": Reduce,
}
_PER_VECTOR = ("s1", "s2", "s3", "multiplier", "addend")
_OPTIONAL = {"s1": "use_s1", "s2": "use_s2", "multiplier": "use_multiplier", "addend": "use_addend"}


def pack(layout: data.StructLayout, values: dict[str, int]) -> int:
    """Return a struct's bits; fields that are not named are zero."""
    word = 0
    for name, value in values.items():
        field = layout[name]
        if not 0 <= value < 1 << field.width:
            raise ValueError(f"{name} = {value} does not fit {field.width} bits")
        word |= value << field.offset
    return word


def unpack(layout: data.StructLayout, word: int) -> dict[str, int]:
    """Return a struct's fields as plain integers."""
    return {str(name): word >> field.offset & ((1 << field.width) - 1) for name, field in layout}


def command_word(params: TileParams, command: VectorCommand) -> int:
    """Return a command's bits."""
    values: dict[str, int] = {}
    for name in vector_command(params).members:
        if name in ("per_vector", *_OPTIONAL.values()):
            continue
        value = getattr(command, name)
        if name in _ENUMS:
            value = _ENUMS[name][value.upper()].value
        values[name] = int(value or 0)
    for name, flag in _OPTIONAL.items():
        values[flag] = int(getattr(command, name) is not None)
    values["per_vector"] = sum(
        1 << bit for bit, name in enumerate(_PER_VECTOR) if name in command.per_vector
    )
    return pack(vector_command(params), values)


def response(word: int) -> tuple[int, Response]:
    """Return the queue and the golden form of a response."""
    f = unpack(vector_response(), word)
    if f["kind"] == ResponseKind.DONE.value:
        return f["queue"], Response("done", f["tag"], f["status"])
    entry = Response("result", f["tag"], 0, f["vector"], f["rank"], f["value"], f["index"])
    return f["queue"], entry


def block_write(params: TileParams, word: int) -> BlockWrite:
    """Return the golden form of an activation-buffer write."""
    f = unpack(activation_write(params), word)
    return BlockWrite(f["column"], f["address"], f["elements"].to_bytes(32, "little"), f["scale"])


def kv_item(word: int) -> KvWrite:
    """Return the golden form of a KV write."""
    f = unpack(kv_write(), word)
    return KvWrite(
        bool(f["values"]),
        f["address"],
        f["lane"],
        f["elements"].to_bytes(32, "little"),
        f["scale"],
        bool(f["last"]),
    )


def drain_words(params: TileParams, rows: Any, first_row: int = 0) -> list[int]:
    """Return result groups for rows of drained values, uint32 [rows, vectors]."""
    layout = result_group(params)
    lanes = params.config.drain_lanes
    words = []
    for r, values in enumerate(rows):
        for start in range(0, len(values), lanes):
            part = [int(v) for v in values[start : start + lanes]]
            word = pack(
                layout,
                {
                    "mask": (1 << len(part)) - 1,
                    "row": (first_row + r) % (1 << params.config.index_bits),
                    "vector": start,
                },
            )
            base = layout["lanes"].offset
            for d, value in enumerate(part):
                word |= value << (base + d * _LANE_BITS)
            words.append(word)
    return words


_LANE_BITS = 35
"""Bits of a result lane: the value and its three flags."""
