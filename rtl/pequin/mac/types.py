"""Payloads and enumerations of the MAC array's streams."""

from amaranth import signed, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import Out

from pequin.config import BEAT_BYTES, BLOCK, MAX_PLANES, TileParams

BEAT_BITS = 8 * BEAT_BYTES
"""Bits of a beat."""

GROUPS = 2
"""Row groups of a beat: two MXFP4 rows, or the high and the low nibbles of one MXINT8 row."""

CHUNK_BLOCKS = 32
"""Blocks whose scales share one scale beat."""

OPERAND_TOTAL_BITS = 10
"""Bits of a sum of 32 five-bit operands."""


class WeightFormat(enum.Enum, shape=1):
    """Element format of a weight stream."""

    MXFP4 = 0
    MXINT8 = 1


class Sink(enum.Enum, shape=1):
    """Where a command's results go."""

    STREAM = 0
    TOP_K = 1


class Cause(enum.Enum, shape=3):
    """What the array did in a clock; every clock has one cause.

    BUSY: payload beats were taken. SCALE: a scale beat was taken. WEIGHTS: a command waits for
    beats. OUTPUT: results of an earlier row cannot drain. IDLE: there is no command.
    """

    BUSY = 0
    SCALE = 1
    WEIGHTS = 2
    OUTPUT = 3
    IDLE = 4


class ResultFlags(data.Struct):
    """Errors of one result, independent of the order of its blocks."""

    nan: 1
    """A block had the NaN scale; the value is the canonical NaN."""
    term_clamped: 1
    """A block's aligned sum exceeded 48 bits and was clamped."""
    result_clamped: 1
    """The row's sum exceeded 48 bits and was clamped."""


class ResultLane(data.Struct):
    """One fp32 result."""

    value: 32
    """IEEE-754 binary32 bits."""
    flags: ResultFlags


def weight_beats() -> data.StructLayout:
    """Return the payload of the weight stream: one or two consecutive beats of the stream."""
    return data.StructLayout(
        {"beats": data.ArrayLayout(unsigned(BEAT_BITS), 2), "two": unsigned(1)}
    )


def activation_write(params: TileParams) -> data.StructLayout:
    """Return the payload of an activation-buffer write: one block for one column.

    `elements` are 32 two's complement bytes, element 0 in the low byte; `scale` is E8M0.
    """
    return data.StructLayout(
        {
            "column": range(params.config.columns),
            "address": range(params.config.act_blocks),
            "elements": unsigned(BEAT_BITS),
            "scale": unsigned(8),
        }
    )


def mac_command(params: TileParams) -> data.StructLayout:
    """Return the payload of a command: rows of one matrix times the buffered activations.

    Counts are given as the index of the last item, so that no width needs an extra bit.

    format : WeightFormat
    two_planes
        Each row is two planes of `last_block` + 1 blocks; both meet the same activations.
    scaled
        The stream has scale beats; otherwise every weight scale is 1.0.
    paired
        Vector v uses columns 2v (its even blocks) and 2v + 1 (its odd ones), and the array
        takes two beats per clock.
    last_block
        Blocks per plane of a row, minus 1.
    last_row
        Rows, minus 1.
    first_row
        Index of row 0 in results and in the top-k registers.
    last_vector
        Vectors, minus 1; at most columns - 1, or columns / 2 - 1 when paired.
    base
        Activation-buffer address of block 0 (of blocks 0 and 1 when paired).
    sink : Sink
    select_first
        For `Sink.TOP_K`: clear the registers before the first result.
    select_last
        For `Sink.TOP_K`: emit the registers after the last result.
    """
    index = unsigned(params.config.index_bits)
    return data.StructLayout(
        {
            "format": WeightFormat,
            "two_planes": unsigned(1),
            "scaled": unsigned(1),
            "paired": unsigned(1),
            "last_block": range(params.max_blocks),
            "last_row": index,
            "first_row": index,
            "last_vector": range(params.config.columns),
            "base": range(params.config.act_blocks),
            "sink": Sink,
            "select_first": unsigned(1),
            "select_last": unsigned(1),
        }
    )


def row_tag(params: TileParams) -> data.StructLayout:
    """Return what travels with the last beat of a row group to its read-out."""
    return data.StructLayout(
        {
            "row": unsigned(params.config.index_bits),
            "second_row": unsigned(1),
            "final": unsigned(1),
            "paired": unsigned(1),
            "last_vector": range(params.config.columns),
            "sink": Sink,
            "select_first": unsigned(1),
            "select_last": unsigned(1),
        }
    )


class WeightOperands(wiring.Signature):
    """Decoded weights of one beat, one packed operand per lane.

    Wide values are interfaces of narrow signals, not one bus: a simulator handles a 64-bit
    signal in one instruction and a 700-bit one in dozens.

    Parameters
    ----------
    bits
        Width of an operand.
    """

    def __init__(self, bits: int) -> None:
        super().__init__(
            {"lanes": Out(bits).array(BLOCK), "totals": Out(OPERAND_TOTAL_BITS).array(GROUPS)}
        )


class StoredBlock(wiring.Signature):
    """A block of activations: elements in offset binary, their sum, and the scale (E8M0)."""

    def __init__(self) -> None:
        super().__init__({"elements": Out(BEAT_BITS), "total": Out(13), "scale": Out(8)})


class PartialSum(wiring.Signature):
    """An accumulator's content: exact sum, errors, and count of blocks rounded to zero.

    Parameters
    ----------
    params
        Sizes: `acc_bits`, `guard_bits`.
    """

    def __init__(self, params: TileParams) -> None:
        super().__init__(
            {
                "sum": Out(signed(params.acc_bits)),
                "nan": Out(1),
                "term_clamped": Out(1),
                "zeros": Out(params.guard_bits + 1),
            }
        )


class IssueTag(wiring.Signature):
    """Control of one issued clock, valid with the beats it belongs to.

    `enable` has a bit for the even and one for the odd columns; `scales` are indexed by that
    parity, then by row group.

    Parameters
    ----------
    params
        Sizes of the row tag.
    """

    def __init__(self, params: TileParams) -> None:
        super().__init__(
            {
                "format": Out(WeightFormat),
                "enable": Out(2),
                "first": Out(1),
                "last": Out(1),
                "scales": Out(8).array(2, GROUPS),
                "row": Out(row_tag(params)),
            }
        )


class DrainedGroup(wiring.Signature):
    """A row's results for `drain_lanes` vectors, with what sinks and status need.

    Parameters
    ----------
    params
        Sizes: `drain_lanes`, `columns`, `index_bits`.
    """

    def __init__(self, params: TileParams) -> None:
        lanes = params.config.drain_lanes
        super().__init__(
            {
                "values": Out(32).array(lanes),
                "flags": Out(ResultFlags).array(lanes),
                "mask": Out(lanes),
                "row": Out(params.config.index_bits),
                "vector": Out(range(params.config.columns)),
                "last": Out(1),
                "tag": Out(row_tag(params)),
                "zeros": Out(range(lanes * MAX_PLANES * params.max_blocks + 1)),
            }
        )


def result_group(params: TileParams) -> data.StructLayout:
    """Return the payload of the result stream: one row's results for `drain_lanes` vectors.

    `lanes[d]` belongs to vector `vector` + d where bit d of `mask` is set. `last` marks a
    command's last group.
    """
    return data.StructLayout(
        {
            "lanes": data.ArrayLayout(ResultLane, params.config.drain_lanes),
            "mask": unsigned(params.config.drain_lanes),
            "row": unsigned(params.config.index_bits),
            "vector": range(params.config.columns),
            "last": unsigned(1),
        }
    )


def mac_status(params: TileParams) -> data.StructLayout:
    """Return the payload that ends a command.

    `errors` joins the flags of all results; `error_row` and `error_vector` tell the first of
    them in drain order; `zeros` counts non-zero block sums that rounded to zero (saturating).
    """
    return data.StructLayout(
        {
            "errors": ResultFlags,
            "error_row": unsigned(params.config.index_bits),
            "error_vector": range(params.config.columns),
            "zeros": unsigned(32),
        }
    )


def selected_entry(params: TileParams) -> data.StructLayout:
    """Return the payload of the top-k stream: entry `rank` (0 is the best) of one vector."""
    return data.StructLayout(
        {
            "vector": range(params.config.columns),
            "rank": range(params.config.top_k),
            "valid": unsigned(1),
            "value": unsigned(32),
            "index": unsigned(params.config.index_bits),
            "last": unsigned(1),
        }
    )
