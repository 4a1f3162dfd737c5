"""Deadlocks of full queues: the sequencer waits for room, and a unit for what comes later.

The golden machine executes in program order, as if queues and FIFOs had no end. This model gives
them their sizes and only counts items. Each part waits for one thing at a time, so that whether
they all stop does not depend on their timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pequin.config import TileParams
from pequin_sim.isa import SEMAPHORES, UNIT_NAMES, UNITS
from pequin_sim.machine.events import ProgramError
from pequin_sim.machine.state import Effects, QuantizedBlocks, ResultRows, WeightBeats

COMMANDS_AHEAD = 16
"""`stream` commands that may have begun before the `mac` command of the first one."""


@dataclass
class Work:
    """What is left of a command.

    Parameters
    ----------
    waits, signals
        Semaphores.
    beats
        `stream`, `kv`: beats to bring; `mac`: beats to take.
    from_kv
        `mac`: they come from `kv`.
    rows, blocks
        Results, and quantized blocks: to give (`mac`, `dma`) or to take (`drain`).
    begun
        It has taken its semaphores.
    """

    waits: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    beats: int = 0
    from_kv: bool = False
    rows: int = 0
    blocks: int = 0
    begun: bool = False

    @classmethod
    def of(cls, effects: Effects, waits: tuple[int, ...], signals: tuple[int, ...]) -> Work:
        """Return what an executed command has to do."""
        work = cls(waits, signals)
        for product in (effects.product, effects.first):
            if isinstance(product, WeightBeats):
                work.beats = len(product.beats)
                work.from_kv = product.unit == UNITS["kv"]
        if isinstance(effects.product, ResultRows):
            work.rows = len(effects.product.values)
        elif isinstance(effects.product, QuantizedBlocks):
            work.blocks = len(effects.product.scales)
        if isinstance(effects.first, ResultRows):
            work.rows = effects.taken
        elif isinstance(effects.first, QuantizedBlocks):
            work.blocks = effects.taken
        return work

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not (self.beats or self.rows or self.blocks)


@dataclass
class _Item:
    """A place in a unit's queue: a register's value, or a launch with its commands."""

    pc: int
    works: deque[Work]


class Capacity:
    """Queues, FIFO and semaphores with their sizes.

    Parameters
    ----------
    params
        Sizes: `queue_items`, `fifo_beats`.
    """

    def __init__(self, params: TileParams) -> None:
        self._items = params.config.queue_items
        self._room = params.config.fifo_beats
        self._queues: dict[int, deque[_Item]] = {u: deque() for u in range(1, len(UNITS))}
        self._counts = [0] * SEMAPHORES
        self._level = 0
        self._ahead = 0
        self._steps: dict[int, Callable[[Work], bool]] = {
            UNITS["mac"]: self._mac,
            UNITS["stream"]: self._stream,
            UNITS["dma"]: self._dma,
        }

    def start(self) -> None:
        """Set the semaphores to zero."""
        self._counts = [0] * SEMAPHORES

    def halt(self, pc: int) -> None:
        """Let the units finish.

        Raises
        ------
        ProgramError
            They cannot.
        """
        self._until(lambda: not any(self._queues.values()), pc, "has halted")

    def set(self, unit: int, pc: int) -> None:
        """Append a register's value to a unit's queue."""
        self._append(unit, _Item(pc, deque()))

    def launch(self, unit: int, pc: int, works: Iterable[Work]) -> None:
        """Append a launch to a unit's queue."""
        self._append(unit, _Item(pc, deque(works)))

    def wait(self, number: int, pc: int) -> None:
        """Let the sequencer take a semaphore."""
        self._until(lambda: self._counts[number] > 0, pc, f"waits on semaphore {number}")
        self._counts[number] -= 1

    def signal(self, number: int) -> None:
        """Let the sequencer signal a semaphore."""
        self._counts[number] += 1

    def _append(self, unit: int, item: _Item) -> None:
        queue = self._queues[unit]
        full = f"waits for a place in the queue of {UNIT_NAMES[unit]}"
        self._until(lambda: len(queue) < self._items, item.pc, full)
        queue.append(item)

    def _until(self, goal: Callable[[], bool], pc: int, why: str) -> None:
        """Let the units work until the goal is reached.

        Raises
        ------
        ProgramError
            They all wait, and the goal is not reached.
        """
        while not goal():
            if not any([self._work(unit) for unit in self._queues]):
                stuck = "; ".join(self._describe())
                raise ProgramError(f"deadlock: the sequencer (pc {pc}) {why}, and {stuck}")

    def _describe(self) -> list[str]:
        found = []
        for unit, queue in self._queues.items():
            if not queue:
                continue
            work = queue[0].works[0]
            name = f"{UNIT_NAMES[unit]} (pc {queue[0].pc})"
            if not work.begun:
                zero = [str(s) for s in self._lacking(work)]
                reason = f"semaphore {', '.join(zero)}" if zero else "a mac command"
            else:
                reason = {
                    "stream": f"room in the weight FIFO ({self._room} beats)",
                    "kv": "a mac command",
                    "mac": "a drain command" if work.rows else "weights",
                    "drain": "results or blocks",
                    "dma": "a drain command",
                }.get(UNIT_NAMES[unit], "nothing")
            found.append(f"{name} waits for {reason}")
        return found

    def _head(self, unit: int) -> Work | None:
        """Return the command that a unit has begun."""
        queue = self._queues[unit]
        if not queue or not queue[0].works or not queue[0].works[0].begun:
            return None
        return queue[0].works[0]

    def _work(self, unit: int) -> bool:
        """Let a unit do what it can with the head of its queue; return whether it did anything."""
        queue = self._queues[unit]
        if not queue:
            return False
        works = queue[0].works
        if not works:
            queue.popleft()
            return True
        work = works[0]
        if not work.begun:
            return self._begin(unit, work)
        moved = unit in self._steps and self._steps[unit](work)
        if not work.done:
            return moved
        for number in work.signals:
            self._counts[number] += 1
        works.popleft()
        if not works:
            queue.popleft()
        return True

    def _lacking(self, work: Work) -> list[int]:
        """Return the semaphores that a command waits for."""
        return [s for s in work.waits if self._counts[s] < work.waits.count(s)]

    def _begin(self, unit: int, work: Work) -> bool:
        if self._lacking(work):
            return False
        if unit == UNITS["stream"]:
            if self._ahead == COMMANDS_AHEAD:
                return False
            self._ahead += 1
        elif unit == UNITS["mac"] and not work.from_kv:
            self._ahead -= 1
        for number in work.waits:
            self._counts[number] -= 1
        work.begun = True
        return True

    def _stream(self, work: Work) -> bool:
        beats = min(self._room - self._level, work.beats)
        self._level += beats
        work.beats -= beats
        return beats > 0

    def _mac(self, work: Work) -> bool:
        """Take beats and give rows, evenly, as far as there are beats and rows are wanted."""
        kv = self._head(UNITS["kv"])
        there = (kv.beats if kv else 0) if work.from_kv else self._level
        drain = self._head(UNITS["drain"])
        rows = min(work.rows, drain.rows if drain else 0)
        allowed = -(-work.beats * rows // work.rows) if work.rows else work.beats
        beats = min(there, allowed)
        if beats < work.beats:
            rows = min(rows, work.rows * beats // work.beats)
        if drain:
            drain.rows -= rows
        work.rows -= rows
        work.beats -= beats
        if not work.from_kv:
            self._level -= beats
        elif kv:
            kv.beats -= beats
        return beats + rows > 0

    def _dma(self, work: Work) -> bool:
        drain = self._head(UNITS["drain"])
        blocks = min(work.blocks, drain.blocks if drain else 0)
        if drain:
            drain.blocks -= blocks
        work.blocks -= blocks
        return blocks > 0
