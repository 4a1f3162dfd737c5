"""Slots of a tile on the host's side: a STEP is checked before any of it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pequin.errors import InputError
from pequin_sim.compiler import CompiledDecoder
from pequin_sim.machine import Column, Step

WANTS_LOGITS = 1
"""Bit of the table's flags."""


class Request(NamedTuple):
    """One token to work on.

    Parameters
    ----------
    slot
        Its sequence's slot.
    token, position
        The token and its place in the sequence.
    wants_logits
        Whether the head is to work on it.
    start
        The first position that it attends to.
    """

    slot: int
    token: int
    position: int
    wants_logits: bool = True
    start: int = 0


class SlotTable:
    """Which slots of the KV buffer hold sequences, and how long these are.

    A sequence grows by the tokens of each step; its positions follow each other without a gap, in
    one step in the order of the table. A step that breaks a rule changes nothing.

    Parameters
    ----------
    compiled
        The program that takes the steps.
    """

    def __init__(self, compiled: CompiledDecoder) -> None:
        plan = compiled.plan
        self._plan = plan
        self._stride = plan.map.kv.slot
        self._slots = plan.params.config.kv_beats // self._stride
        self._lengths: dict[int, int] = {}

    @property
    def slots(self) -> int:
        """Sequences that the KV buffer holds."""
        return self._slots

    def length(self, slot: int) -> int:
        """Return the tokens that a slot's sequence has in the KV cache.

        Raises
        ------
        InputError
            The slot does not exist, or is free.
        """
        self._exists(slot)
        if slot not in self._lengths:
            raise InputError(f"slot {slot} is free: admit a sequence first")
        return self._lengths[slot]

    def admit(self) -> int:
        """Take the first free slot for a new sequence and return it.

        Raises
        ------
        InputError
            All slots are taken.
        """
        for slot in range(self._slots):
            if slot not in self._lengths:
                self._lengths[slot] = 0
                return slot
        raise InputError(
            f"all {self._slots} slots are taken: a sequence has {self._stride} of the KV buffer's "
            f"{self._plan.params.config.kv_beats} beats"
        )

    def release(self, slot: int) -> None:
        """Free a slot.

        Raises
        ------
        InputError
            The slot does not exist, or is free.
        """
        self.length(slot)
        del self._lengths[slot]

    def step(self, requests: Sequence[Request]) -> Step:
        """Check the columns of a step, let their sequences grow, and return the step.

        Raises
        ------
        InputError
            There is no column or too many, a slot is not in use, a token does not exist, a
            position is taken, left out, out of order or beyond the KV cache, or `start` is after
            it.
        """
        most = self._plan.options.batch
        if not 1 <= len(requests) <= most:
            raise InputError(f"a step has 1 to {most} columns, not {len(requests)}")
        lengths = dict(self._lengths)
        columns = []
        for number, request in enumerate(requests):
            try:
                columns.append(self._column(request, lengths))
            except InputError as error:
                raise InputError(f"column {number}: {error}") from None
        self._lengths = lengths
        return Step(columns)

    def _column(self, request: Request, lengths: dict[int, int]) -> Column:
        """Check a column against those before it, which have let the sequences grow."""
        slot, token, position, wants, start = request
        before = self.length(slot)
        if not 0 <= token < self._plan.shape.vocab:
            raise InputError(f"token {token} does not exist: there are {self._plan.shape.vocab}")
        self._position(slot, position, lengths[slot], before)
        if not 0 <= start <= position:
            raise InputError(f"start must be 0 to the position, {position}, not {start}")
        lengths[slot] += 1
        return Column(
            slot=slot,
            token=token,
            position=position,
            start=start,
            flags=WANTS_LOGITS if wants else 0,
            kv_base=slot * self._stride,
        )

    def _position(self, slot: int, position: int, due: int, before: int) -> None:
        """Check that a position is the one that is due, and that it has room."""
        limit = self._plan.options.max_positions
        if position >= limit:
            raise InputError(
                f"position {position} of slot {slot} is beyond its KV cache of {limit} positions"
            )
        if before <= position < due:
            raise InputError(f"position {position} of slot {slot} is in the step already")
        if position != due:
            raise InputError(
                f"position {position} of slot {slot} is out of order: position {due} is due"
            )

    def _exists(self, slot: int) -> None:
        if not 0 <= slot < self._slots:
            raise InputError(f"slot {slot} does not exist: there are {self._slots}")
