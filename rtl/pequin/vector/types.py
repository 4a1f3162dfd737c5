"""Payloads and enumerations of the vector unit's streams."""

from amaranth import unsigned
from amaranth.lib import data, enum

from pequin.config import BLOCK, TileParams
from pequin.fp32.special import Function
from pequin.fp32.types import Float32

ALIGN = BLOCK
"""Addresses and strides of vectors are multiples of this many elements, for every preset."""

TAG_BITS = 8
LENGTH_BITS = 16
VECTORS_BITS = 8
KV_ADDRESS_BITS = 24
ACCESS_ELEMENTS = 8
"""Elements of one access from outside: a beat of 32 bytes."""

VALUE_ELEMENTS = 256
"""Longest vector that can be quantized as one block for V."""


class Op(enum.Enum, shape=4):
    """What a command computes; t goes on to the special function."""

    COPY = 0
    """t = a * s1 + s2"""
    ADD = 1
    """t = a * s1 + b"""
    SUB = 2
    """t = a * s1 - b"""
    MUL = 3
    """t = a * b + s2"""
    ROTARY = 4
    """Rotate pairs of elements `distance` apart by cosines and sines in b."""
    ROTARY_HALF = 5
    """Rotate element j with element j + length / 2."""
    SCALAR = 6
    """s[out + v] = function(s1 * finish multiplier + finish addend)"""
    SET_SCALAR = 7
    """s[out + v] = immediate"""
    SET_LIMITS = 8
    """limits[out + v] = [immediate low half, immediate high half)"""


class Source(enum.Enum, shape=2):
    """Where operand a comes from."""

    MEMORY = 0
    DRAIN = 1
    BLOCKS = 2


class Factor(enum.Enum, shape=2):
    """What the special function's result f is multiplied by."""

    ONE = 0
    S3 = 1
    B = 2
    SQUARE = 3
    """f itself; the product is seen by the reduction alone, and f goes out."""


class Quantize(enum.Enum, shape=2):
    """Where quantized blocks of the result go."""

    NONE = 0
    ACTIVATIONS = 1
    KEYS = 2
    VALUES = 3
    """One block per vector, element by element."""


class Reduce(enum.Enum, shape=2):
    """What is reduced to one scalar per vector."""

    NONE = 0
    SUM = 1
    MAX = 2
    ARG_MAX = 3


class Status(data.Struct):
    """How a command ended; all zero is success."""

    opcode: 1
    """Unknown operation or a combination that does not exist; nothing was done."""
    length: 1
    """Zero elements, zero vectors or an impossible length; nothing was done."""
    range: 1
    """An address is misaligned or outside a memory; nothing was done."""
    not_finite: 1
    """NaN or infinity was met or produced."""
    overflow: 1
    """A term of a sum did not fit its fixed-point grid; it counted as zero."""


def address_bits(params: TileParams) -> int:
    """Return the width of an element address in vector memory."""
    return (params.config.vector_elements - 1).bit_length()


def scalar_bits(params: TileParams) -> int:
    """Return the width of a scalar register's index."""
    return (params.config.scalars - 1).bit_length()


def vector_command(params: TileParams) -> data.StructLayout:
    """Return the payload of a command.

    tag
        Comes back with the response.
    op, function, factor
        y = function(t) * factor, t as `Op` says. With `Factor.SQUARE`, y = function(t).
    source
        Operand a: vector memory, the drain, or quantized blocks.
    length, vectors
        Elements of a vector, and vectors.
    a, b, dst and a_stride, b_stride, dst_stride
        Element address of vector 0, and the distance of one vector to the next.
    distance
        `Op.ROTARY`: log2 of the distance of a pair's elements, which must be below the lanes.
    use_s1, use_s2, minus_s2
        Whether the scalars take part (1.0 and nothing otherwise), and s2's sign.
    s1, s2, s3
        Scalar registers.
    per_vector
        Bits 0 to 4: s1, s2, s3, multiplier, addend belong to each vector (index + v).
    store
        Write y to dst.
    quantize, paired
        Quantize y; `paired` spreads even and odd blocks over two columns.
    limits
        Elements outside limits[v] are masked: zero in y, absent from reductions.
    reduce
        Reduce y (before `factor` when `function` is exp2; the square with `Factor.SQUARE`).
    start
        The maximum starts with s3 (a sink logit) instead of minus infinity.
    rank
        `Reduce.ARG_MAX`: entries wanted, minus 1; each entry is a further pass, so more than one
        goes with neither `store` nor `quantize`.
    out
        Scalar register of vector 0's result.
    use_multiplier, use_addend, multiplier, addend, finish
        The result is finish(reduced * s[multiplier] + s[addend]).
    column, column_step, address, address_step
        Place of vector 0's first block, and the steps to the next vector's.
    lane
        `Quantize.VALUES`: the token's place in its granule.
    immediate
        Value of `Op.SET_SCALAR` and `Op.SET_LIMITS`.
    """
    address, scalar = unsigned(address_bits(params)), unsigned(scalar_bits(params))
    fields: dict[str, object] = {"tag": TAG_BITS, "op": Op, "function": Function}
    fields |= {"factor": Factor, "source": Source, "length": LENGTH_BITS, "vectors": VECTORS_BITS}
    for name in ("a", "b", "dst"):
        fields |= {name: address, f"{name}_stride": address}
    fields |= {"distance": 3, "use_s1": 1, "use_s2": 1, "minus_s2": 1}
    fields |= {"s1": scalar, "s2": scalar, "s3": scalar, "per_vector": 5}
    fields |= {"store": 1, "quantize": Quantize, "paired": 1, "limits": 1}
    fields |= {"reduce": Reduce, "start": 1, "rank": 3, "out": scalar}
    fields |= {"use_multiplier": 1, "use_addend": 1, "multiplier": scalar, "addend": scalar}
    fields |= {"finish": Function, "column": 8, "column_step": 8}
    fields |= {"address": KV_ADDRESS_BITS, "address_step": KV_ADDRESS_BITS, "lane": 5}
    fields |= {"immediate": 32}
    return data.StructLayout(fields)


class ResponseKind(enum.Enum, shape=1):
    """What a response tells."""

    DONE = 0
    """The command has ended; all it writes is written."""
    RESULT = 1
    """One entry of an arg-max."""


def vector_response() -> data.StructLayout:
    """Return the payload of a response.

    kind : ResponseKind
    queue
        0 for a command of the memory queue, 1 for one of the drain queue.
    tag
        The command's.
    status : Status
        With `ResponseKind.DONE`.
    vector, rank, value, index
        With `ResponseKind.RESULT`; `index` is all ones when no element was left.
    """
    return data.StructLayout(
        {
            "kind": ResponseKind,
            "queue": 1,
            "tag": TAG_BITS,
            "status": Status,
            "vector": VECTORS_BITS,
            "rank": 3,
            "value": 32,
            "index": LENGTH_BITS,
        }
    )


def kv_write() -> data.StructLayout:
    """Return the payload of a write to the KV buffer.

    values
        0: `elements` is a block of K at `address`; 1: one element of V, repeated in all bytes of
        `elements`, belongs to token `lane` in row `address`.
    address
        The command's address plus its steps plus the block's or the element's number.
    lane
        The command's `lane`.
    elements, scale
        MXINT8 elements, and the E8M0 scale of the block or of the token.
    last
        Last item of a vector.
    """
    return data.StructLayout(
        {
            "values": 1,
            "address": KV_ADDRESS_BITS,
            "lane": 5,
            "elements": 8 * BLOCK,
            "scale": 8,
            "last": 1,
        }
    )


def quantized_block() -> data.StructLayout:
    """Return 32 MXINT8 elements and their E8M0 scale, the input of a dequantizing command."""
    return data.StructLayout({"elements": 8 * BLOCK, "scale": 8})


def access_request(params: TileParams) -> data.StructLayout:
    """Return the payload of a read or write of 8 elements of vector memory from outside.

    `address` is an element address, a multiple of 8.
    """
    return data.StructLayout(
        {"write": 1, "address": address_bits(params), "data": 32 * ACCESS_ELEMENTS}
    )


def row_layout(params: TileParams) -> data.StructLayout:
    """Return the control that travels with a row of `lanes` elements through the lanes.

    Most fields are the command's; `vector_command` describes them.

    queue, entry
        The command's queue and its place in the scoreboard.
    s1, s2, s3
        Values of the scalars; 1.0 and -0.0 where s1 and s2 take no part.
    mask, live
        Lanes inside the vector, and those that are also inside the limits.
    apart, second
        A rotary pair lies in two rows; this is the second.
    bounded, more
        Arg-max: only elements after the last entry take part; a further pass follows.
    first, last
        First and last row of a vector (of a pass over it).
    element
        Number of lane 0's element in its vector.
    length
        Elements of a vector that becomes one block of V.
    block_last
        Last row of a quantized block.
    end
        Last row of the command.
    """
    c = params.config
    address, scalar = unsigned(address_bits(params)), unsigned(scalar_bits(params))
    return data.StructLayout(
        {
            "queue": 1,
            "entry": 2,
            "tag": TAG_BITS,
            "op": Op,
            "function": Function,
            "factor": Factor,
            "distance": 3,
            "minus_s2": 1,
            "s1": Float32,
            "s2": Float32,
            "s3": Float32,
            "dst": address,
            "store": 1,
            "mask": c.lanes,
            "live": c.lanes,
            "apart": 1,
            "second": 1,
            "reduce": Reduce,
            "start": 1,
            "bounded": 1,
            "more": 1,
            "rank": 3,
            "first": 1,
            "last": 1,
            "vector": VECTORS_BITS,
            "element": LENGTH_BITS,
            "quantize": Quantize,
            "paired": 1,
            "block_last": 1,
            "column": 8,
            "address": KV_ADDRESS_BITS,
            "lane": 5,
            "length": 9,
            "out": scalar,
            "use_multiplier": 1,
            "use_addend": 1,
            "multiplier": scalar,
            "addend": scalar,
            "finish": Function,
            "end": 1,
        }
    )
