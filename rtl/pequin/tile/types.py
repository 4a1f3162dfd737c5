"""Payloads and enumerations between the parts of a tile; docs/isa.md says what they mean."""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from pequin.config import BEAT_BYTES

BEAT_BITS = 8 * BEAT_BYTES
"""Bits of a beat."""

PC_BITS = 16
"""Bits of a program address (instructions)."""

SEMAPHORES = 32
"""Semaphores of a tile."""

SEMAPHORE_MAX = 255
"""Highest count of a semaphore."""

TABLE_FIELDS = 6
"""Fields of a column in the table of a step."""

COUNT_FIELD = 15
"""Field of the step's table that holds the number of columns."""

STAMP_BITS = 48
"""Bits of a clock stamp."""


class UnitId(enum.Enum, shape=4):
    """Numbers of the units in instructions, events and registers."""

    SEQ = 0
    MAC = 1
    STREAM = 2
    KV = 3
    VECTOR = 4
    DRAIN = 5
    DMA = 6


COMMAND_WORDS = {
    UnitId.MAC: 6,
    UnitId.STREAM: 2,
    UnitId.KV: 5,
    UnitId.VECTOR: 14,
    UnitId.DRAIN: 14,
    UnitId.DMA: 5,
}
"""Words of each unit's command, from word 0 on; the units that have a command queue."""

STRIDED_WORDS = {
    UnitId.MAC: (3, 5),
    UnitId.STREAM: (0,),
    UnitId.KV: (1,),
    UnitId.VECTOR: (2, 3, 4, 8, 10, 11, 13),
    UnitId.DRAIN: (2, 3, 4, 8, 10, 11, 13),
    UnitId.DMA: (1, 2),
}
"""Words of each unit's command that a loop level's stride is added to."""


class ErrorCode(enum.Enum, shape=8):
    """Causes of an ERROR event."""

    NONE = 0
    ILLEGAL = 1
    PC = 2
    TABLE = 3
    UNIT = 4
    SEMAPHORE = 5
    VECTOR = 6
    MAC = 7
    HBM_ADDRESS = 8
    HBM_ECC = 9
    SRAM_ECC = 10
    KV_ADDRESS = 11
    COMMAND = 12
    WATCHDOG = 13
    STOPPED = 14
    ACCESS = 15
    BUSY = 16
    """A START while a program runs; nothing else happens."""


class Memory(enum.Enum, shape=4):
    """Memories that the host reaches, each in beats of 32 bytes.

    VECTOR: 8 fp32 elements a beat. PROGRAM: 4 instructions a beat. ACTIVATIONS: beat
    2 * (column * act_blocks + address) has the elements of a block, the next one its scale in
    byte 0. SCALARS: 8 registers a beat, read only. REGISTERS: status, semaphores and counters,
    8 words of 32 bits a beat.
    """

    HBM = 0
    VECTOR = 1
    KV = 2
    PROGRAM = 3
    ACTIVATIONS = 4
    SCALARS = 5
    REGISTERS = 6


class ControlKind(enum.Enum, shape=2):
    """What the host tells the tile.

    START: set the semaphores to zero and run from `pc`, once the units have ended what an earlier
    program left them; while a program runs or another START waits it has no effect but an ERROR
    event with `ErrorCode.BUSY`. STOP: stops the tile as an error does, with `ErrorCode.STOPPED`; a
    START that waits is dropped. CLEAR: set all counters to zero.
    """

    START = 0
    STOP = 1
    CLEAR = 2


class EventKind(enum.Enum, shape=4):
    """What the tile tells the host.

    TOKEN: `code` is rank [7:0] and vector [15:8], `value` the index, `detail` the fp32 bits; the
    program counter is 0. DONE: `code` and `value` of the instruction. ERROR: `code` is an
    `ErrorCode`.
    """

    NONE = 0
    TOKEN = 1
    DONE = 2
    ERROR = 3


class TileEvent(data.Struct):
    """One event; `stamp` counts the clocks since reset."""

    kind: EventKind
    unit: UnitId
    code: 16
    pc: PC_BITS
    value: 32
    detail: 32
    stamp: STAMP_BITS


class TileControl(data.Struct):
    """One order of the host; `pc` belongs to `ControlKind.START`."""

    kind: ControlKind
    pc: PC_BITS


class StepItem(data.Struct):
    """A part of a STEP.

    `commit` 0: field `field` of column `column` is `value`. `commit` 1: the table is complete and
    has `value` columns. All fields of the columns below that are sent before.
    """

    commit: 1
    column: 8
    field: 4
    value: 32


class TileAccess(data.Struct):
    """Read or write of one beat by the host; every access has one answer, in order."""

    memory: Memory
    write: 1
    address: 32
    data: BEAT_BITS


class TileAnswer(data.Struct):
    """Answer to an access: the data of a read, or zeros; `error` tells why it was refused.

    ACCESS: no such memory, or an address outside it. HBM_ADDRESS, HBM_ECC, SRAM_ECC: from the
    memory.
    """

    error: ErrorCode
    data: BEAT_BITS


class UnitFault(data.Struct):
    """Why a unit cannot go on; its program counter is that of the command at work."""

    code: ErrorCode
    detail: 32


class QueueItem(data.Struct):
    """What the sequencer appends to a unit's queue: a register's new value, or a launch.

    `launch` 0: register `register` is `value`. `launch` 1: `value` is the launch word, `pc` its
    program counter. Registers that do not exist are told as a fault by the sequencer.
    """

    launch: 1
    register: 8
    value: 32
    pc: PC_BITS


class TakeRequest(data.Struct):
    """Semaphores that are to be taken at once: `first` if `use_first`, likewise `second`."""

    use_first: 1
    first: 5
    use_second: 1
    second: 5


def unit_words(unit: UnitId) -> data.ArrayLayout:
    """Return the payload of a unit's command: its words, word 0 first."""
    return data.ArrayLayout(unsigned(32), COMMAND_WORDS[unit])


def beat_access() -> data.StructLayout:
    """Return the payload of an access to a memory of beats: `write`, beat `address`, `data`."""
    return data.StructLayout({"write": 1, "address": 32, "data": BEAT_BITS})


def beat_answer() -> data.StructLayout:
    """Return the answer to a `beat_access`, also to a write: `error` (`ErrorCode`) and `data`."""
    return data.StructLayout({"error": ErrorCode, "data": BEAT_BITS})
