"""Random programs for the smallest tile: launches of every unit, joined by random semaphores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pequin_sim.layout import pack_weights
from pequin_sim.mx import quantize

PLACES = 6
"""Places of 32 elements in vector memory that all commands share."""

_SOURCES = 8
"""Rows of 32 fp32 in HBM, 4 beats each; the matrix comes behind them."""

_KEYS = 64
"""Beat of the KV buffer where the granule lies."""

_MATRIX = 4 * _SOURCES
_CONFIGURED = 31
_KINDS = ("dma", "copy", "sum", "use", "quantize", "mac", "keys", "read")
_SHAPE = "set vector.shape, {length=32, vectors=1}\n"


def program_image() -> npt.NDArray[np.uint8]:
    """Return what the programs read from HBM: rows of fp32 and a matrix, uint8 [beats, 32]."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(_MATRIX, 8)).astype(np.float32).view(np.uint8)
    return np.concatenate([rows, pack_weights(quantize(rng.normal(size=(2, 32))))])


class RandomProgram:
    """Straight-line text in which only some commands are ordered.

    A semaphore belongs to one pair of units, so that it has one signaller and one waiter. Whether
    the commands race is for the golden machine to say.

    Parameters
    ----------
    rng
        Where every choice comes from.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._pairs: dict[tuple[str, str], int] = {}
        self._lines = ["set kv.kind, 2", "set kv.blocks, 1", f"launch kv, signal {_CONFIGURED}"]
        self._lines.append(f"wait {_CONFIGURED}")

    @property
    def text(self) -> str:
        """The program so far, and its end."""
        return "\n".join([*self._lines, "event r0, 1", "halt", ""])

    def section(self, launches: int, joins: int, *, fence: bool = False) -> None:
        """Add some launches.

        Parameters
        ----------
        launches
            At least so many.
        joins
            Tries to join two of them by a semaphore.
        fence
            Wait at the end until all units have completed everything.
        """
        parts: list[_Launch] = []
        while len(parts) < launches:
            self._add(parts)
        last = {part.unit: part for part in parts} if fence else {}
        for part in last.values():
            part.signal = self._semaphore(part.unit, "seq")
        self._join(parts, joins)
        self._lines += [part.text() for part in parts]
        self._lines += [f"wait {part.signal}" for part in last.values() if part.signal is not None]

    def refresh(self) -> None:
        """Load all places of vector memory and of the activation buffer anew, and wait."""
        parts = []
        for place in range(PLACES):
            parts.append(_Launch("dma", _load(place, place)))
        loaded = parts[-1].signal = self._semaphore("dma", "vector")
        for place in range(PLACES):
            parts.append(_Launch("vector", _quantize(place, place)))
        if loaded is not None:
            parts[PLACES].waits.append(loaded)
        parts[-1].signal = self._semaphore("vector", "seq")
        self._lines += [part.text() for part in parts]
        self._lines.append(f"wait {parts[-1].signal}")

    def _place(self, count: int = PLACES) -> int:
        return int(self.rng.integers(count))

    def _semaphore(self, signaller: str, waiter: str) -> int | None:
        """Return the semaphore of a pair of units; None when there are no more."""
        pair = (signaller, waiter)
        if pair not in self._pairs and len(self._pairs) < _CONFIGURED:
            self._pairs[pair] = len(self._pairs)
        return self._pairs.get(pair)

    def _join(self, parts: list[_Launch], joins: int) -> None:
        for _ in range(joins):
            first, second = sorted(int(n) for n in self.rng.integers(len(parts), size=2))
            one, other = parts[first], parts[second]
            if first < second and one.signal is None and len(other.waits) < 2:
                number = self._semaphore(one.unit, other.unit)
                if number is not None:
                    one.signal = number
                    other.waits.append(number)

    def _add(self, parts: list[_Launch]) -> None:
        kind = self.rng.choice(_KINDS)
        a, b = self._place(), self._place()
        following = 32 * ((a + 1) % PLACES)
        if kind == "dma":
            parts.append(_Launch("dma", _load(self._place(_SOURCES), a)))
        elif kind == "copy":
            add = f"set vector.mode, {{op=add, store}}\n{_SHAPE}set vector.b, {32 * a}\n"
            copy = f"set vector.mode, {{store}}\n{_SHAPE}"
            dst = 32 * b if a != b else following
            text = add if a != b else copy
            text += f"set vector.a, {32 * a}\nset vector.dst, {dst}\n"
            parts.append(_Launch("vector", text))
        elif kind == "sum":
            text = f"set vector.mode, {{reduce=sum}}\n{_SHAPE}set vector.a, {32 * a}\n"
            parts.append(_Launch("vector", f"{text}set vector.scalars, {{out={b}}}\n"))
        elif kind == "use":
            text = f"set vector.mode, {{use_s1, store}}\n{_SHAPE}set vector.a, {32 * a}\n"
            text += f"set vector.scalars, {{s1={b}}}\nset vector.dst, {following}\n"
            parts.append(_Launch("vector", text))
        elif kind == "quantize":
            parts.append(_Launch("vector", _quantize(a, b)))
        elif kind == "keys":
            text = f"set vector.mode, {{quantize=keys}}\n{_SHAPE}set vector.a, {32 * a}\n"
            text += f"set vector.address, {_KEYS}\nset vector.extra, {{lane={self._place(4)}}}\n"
            parts.append(_Launch("vector", text))
        elif kind == "read":
            self._multiply(parts, a, b, "kv")
        else:
            self._multiply(parts, a, b, "fifo")

    def _multiply(self, parts: list[_Launch], a: int, b: int, source: str) -> None:
        """Two rows of weights from HBM, or two keys, times a block; drained to vector memory."""
        if source == "kv":
            text = f"set kv.kind, 0\nset kv.address, {_KEYS}\nset kv.rows, 2\n"
            parts.append(_Launch("kv", text))
            mode = "{format=mxint8, scaled, source=kv}"
        else:
            text = f"set stream.address, {_MATRIX}\nset stream.beats, 2\n"
            parts.append(_Launch("stream", text))
            mode = "{scaled}"
        text = f"set mac.mode, {mode}\nset mac.last_row, 1\nset mac.base, {b}\n"
        parts.append(_Launch("mac", text))
        text = "set drain.mode, {source=drain, store}\nset drain.shape, {length=2, vectors=1}\n"
        parts.append(_Launch("drain", f"{text}set drain.dst, {32 * a}\n"))


class _Launch:
    """Registers of a unit and its launch."""

    def __init__(self, unit: str, registers: str) -> None:
        self.unit, self.registers = unit, registers
        self.signal: int | None = None
        self.waits: list[int] = []

    def text(self) -> str:
        waits = "".join(f", wait {number}" for number in self.waits)
        signal = "" if self.signal is None else f", signal {self.signal}"
        return f"{self.registers}launch {self.unit}{waits}{signal}"


def _load(source: int, place: int) -> str:
    return (
        f"set dma.kind, 0\nset dma.source, {4 * source}\nset dma.dst, {32 * place}\n"
        "set dma.count, 4\n"
    )


def _quantize(place: int, block: int) -> str:
    return (
        f"set vector.mode, {{quantize=activations}}\n{_SHAPE}set vector.a, {32 * place}\n"
        f"set vector.address, {block}\n"
    )
