"""Arrays of values to RAM images of stream payloads, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Shape
from amaranth.lib import data

from pequin.errors import InputError

Words = npt.NDArray[np.uint8]


def word_bytes(layout: data.Layout) -> int:
    """Return the bytes of a word that holds one payload."""
    return -(-Shape.cast(layout).width // 8)


def pack(layout: data.StructLayout, fields: Mapping[str, Any], count: int) -> Words:
    """Return payloads as uint8 [count, bytes], least significant byte first.

    Parameters
    ----------
    layout
        The payload's structure.
    fields
        For each field an integer array [count] (or one integer), or for a wide field of whole
        bytes a uint8 array [count, bytes]. Fields that are not given are zero.
    count
        Payloads.

    Raises
    ------
    InputError
        A name is unknown or a value does not fit its field.
    """
    bits = np.zeros((count, 8 * word_bytes(layout)), np.uint8)
    for name, values in fields.items():
        field = layout[name]
        width = Shape.cast(field.shape).width
        array = np.asarray(values)
        if array.ndim == 2:
            columns: npt.NDArray[Any] = np.unpackbits(
                array.astype(np.uint8), axis=1, bitorder="little"
            )
        else:
            array = np.broadcast_to(array.astype(np.int64), (count,))
            if width < 63 and (array.min(initial=0) < 0 or array.max(initial=0) >> width):
                raise InputError(
                    f"field {name} has {width} bits; values reach from {array.min()} to "
                    f"{array.max()}"
                )
            columns = (array[:, None] >> np.arange(width)) & 1
        bits[:, field.offset : field.offset + width] = columns[:, :width]
    return np.packbits(bits, axis=1, bitorder="little")


def unpack(layout: data.Layout, words: Words) -> dict[str, npt.NDArray[np.int64]]:
    """Return every leaf of the payloads as int64 [count], by dotted name (`lanes.0.value`)."""
    bits = np.unpackbits(words, axis=1, bitorder="little")
    return {
        name: (bits[:, offset : offset + width].astype(np.int64) << np.arange(width)).sum(axis=1)
        for name, offset, width in _leaves(layout, "", 0)
    }


def _leaves(shape: Any, prefix: str, offset: int) -> list[tuple[str, int, int]]:
    while not isinstance(shape, data.Layout) and hasattr(shape, "as_shape"):
        inner = shape.as_shape()
        if not isinstance(inner, data.Layout):
            break
        shape = inner
    if not isinstance(shape, data.Layout):
        return [(prefix, offset, Shape.cast(shape).width)]
    found = []
    for key, field in shape:
        name = f"{prefix}.{key}" if prefix else str(key)
        found += _leaves(field.shape, name, offset + field.offset)
    return found
