"""Memories of the golden machine, and what is on its way between units."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pequin.config import BEAT_BYTES, BLOCK, TileParams
from pequin.errors import InputError
from pequin_sim.golden.vector import VectorMachine
from pequin_sim.machine.events import Event, Fault
from pequin_sim.machine.order import Clock
from pequin_sim.machine.races import Range

Beats = npt.NDArray[np.uint8]


@dataclass(eq=False)
class Product:
    """What a command has put into a stream.

    Parameters
    ----------
    unit, pc
        Whose it is.
    start, end
        What comes before its first and before its last item.
    """

    unit: int
    pc: int
    start: Clock = field(default_factory=list)
    end: Clock = field(default_factory=list)


@dataclass(eq=False, kw_only=True)
class WeightBeats(Product):
    """Beats of one `stream` or `kv` command, uint8 [beats, 32]."""

    beats: Beats


@dataclass(eq=False, kw_only=True)
class ResultRows(Product):
    """Results of one `mac` command: uint32 [rows, vectors]; `taken` rows are gone."""

    values: npt.NDArray[np.uint32]
    taken: int = 0


@dataclass(eq=False, kw_only=True)
class QuantizedBlocks(Product):
    """Blocks of one `dma` command: int8 [blocks, 32] and uint8 [blocks]; `taken` are gone."""

    elements: npt.NDArray[np.int8]
    scales: npt.NDArray[np.uint8]
    taken: int = 0


@dataclass(eq=False, kw_only=True)
class Effects:
    """What a command did.

    Parameters
    ----------
    reads, writes
        Places.
    product
        What it put into a stream.
    first
        The product whose first item it took, or that was under way.
    ended
        Products whose last item it took.
    taken
        Rows or blocks that it took.
    tokens
        TOKEN events.
    fault
        The error with which it ended; None when it completed.
    fault_unit
        The unit that tells the error, if it is another one.
    values
        Its results, for tracing.
    """

    reads: list[Range] = field(default_factory=list)
    writes: list[Range] = field(default_factory=list)
    product: Product | None = None
    first: Product | None = None
    ended: list[Product] = field(default_factory=list)
    taken: int = 0
    tokens: list[Event] = field(default_factory=list)
    fault: Fault | None = None
    fault_unit: str | None = None
    values: npt.NDArray[np.uint32] | None = None


class State:
    """Everything that commands read and write.

    Parameters
    ----------
    params
        Sizes.
    hbm
        uint8 [beats, 32], the beginning of the store; the rest is zero. It is read in place.

    Attributes
    ----------
    unit
        The golden vector unit: vector memory, scalars, limits.
    elements, scales
        Activation buffer: int8 [columns, act_blocks, 32] and uint8 [columns, act_blocks].
    kv
        KV buffer, uint8 [kv_beats, 32].
    kv_blocks
        Blocks of a token, 0 until it is configured.
    fifo, kv_beats, results, blocks
        Streams: to `mac` from `stream` and from `kv`, to `drain` from `mac` and from `dma`.
    top
        For each vector, (value as a float, row, bits) of the best results, best first.

    Raises
    ------
    InputError
        `hbm` is not an array of beats or larger than the store.
    """

    def __init__(self, params: TileParams, hbm: Beats) -> None:
        c = params.config
        self.params = params
        self.store_beats = c.store_bytes // BEAT_BYTES
        if hbm.dtype != np.uint8 or hbm.ndim != 2 or hbm.shape[1] != BEAT_BYTES:
            raise InputError(f"hbm is uint8 [beats, 32], not {hbm.dtype} {list(hbm.shape)}")
        if len(hbm) > self.store_beats:
            raise InputError(
                f"{len(hbm)} beats do not fit the store of {self.store_beats} beats "
                f"(store_bytes = {c.store_bytes})"
            )
        self.hbm = hbm
        self.unit = VectorMachine(params)
        self.elements = np.zeros((c.columns, c.act_blocks, BLOCK), np.int8)
        self.scales = np.zeros((c.columns, c.act_blocks), np.uint8)
        self.kv = np.zeros((c.kv_beats, BEAT_BYTES), np.uint8)
        self.clear()

    def clear(self) -> None:
        """Empty the units, as after an error; memories keep their content."""
        c = self.params.config
        self.kv_blocks = 0
        self.fifo: deque[WeightBeats] = deque()
        self.kv_beats: deque[WeightBeats] = deque()
        self.results: deque[ResultRows] = deque()
        self.blocks: deque[QuantizedBlocks] = deque()
        self.unit.drained.clear()
        self.unit.blocks.clear()
        self.top: list[list[tuple[float, int, int]]] = [[] for _ in range(c.columns)]

    def read_hbm(self, start: int, beats: int) -> Beats:
        """Return beats of the store; it must have them."""
        there = self.hbm[start : start + beats]
        if len(there) == beats:
            return there
        return np.pad(there, ((0, beats - len(there)), (0, 0)))

    @property
    def vector_bits(self) -> npt.NDArray[np.uint32]:
        """Vector memory as bits, uint32 [vector_elements]."""
        return self.unit.memory.view(np.uint32)

    def sizes(self) -> dict[str, int]:
        """Return the places of each memory that programs write."""
        c = self.params.config
        return {
            "vector": c.vector_elements,
            "scalars": c.scalars,
            "limits": c.columns,
            "activations": c.columns * c.act_blocks,
            "kv": c.kv_beats * BEAT_BYTES,
            "kv_blocks": 1,
        }
