"""Payloads, interfaces and causes of the control parts."""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.tile.types import PC_BITS, QueueItem, UnitId

IN_FLIGHT = 16
"""Commands of a unit that may be handed over and not yet completed."""

FETCH_CLOCKS = 2
"""Clocks from an accepted fetch to its instruction."""


class QueueCause(enum.Enum, shape=3):
    """What a command queue did in a clock.

    ISSUE: handed a command over. SET: took a register's value or a launch. UNIT: a command waits
    for the unit. SEMAPHORE: a command waits for a semaphore. EMPTY: there is nothing to do.
    """

    ISSUE = 0
    SET = 1
    UNIT = 2
    SEMAPHORE = 3
    EMPTY = 4


class SequencerCause(enum.Enum, shape=3):
    """What the sequencer did in a clock.

    EXECUTE: worked on an instruction. FETCH: no instruction has arrived yet. QUEUE, EVENT: a
    unit's queue or the host takes nothing at present. SEMAPHORE, STEP: the instruction waits for
    one. IDLE: no program runs.
    """

    EXECUTE = 0
    FETCH = 1
    QUEUE = 2
    EVENT = 3
    SEMAPHORE = 4
    STEP = 5
    IDLE = 6


class FetchPort(wiring.Signature):
    """Reading of instructions, seen from the sequencer.

    `instruction` and `failed` belong to the address that was accepted `FETCH_CLOCKS` clocks
    before; they cannot be held up.

    Members
    -------
    address : Out(stream of PC_BITS)
    instruction : In(64)
    failed : In(1)
        The stored word has an error that cannot be corrected; `instruction` is
        meaningless.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "address": Out(stream.Signature(unsigned(PC_BITS))),
                "instruction": In(64),
                "failed": In(1),
            }
        )


def unit_item() -> data.StructLayout:
    """Return an item for a unit's queue: `unit` (`UnitId`) and `item` (`QueueItem`)."""
    return data.StructLayout({"unit": UnitId, "item": QueueItem})
