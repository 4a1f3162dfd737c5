"""Which commands the vector unit refuses, and which depend on its timing."""

from __future__ import annotations

from pequin.config import BLOCK, TileParams
from pequin.errors import InputError
from pequin_sim.golden.vector_command import ALIGN, VALUE_ELEMENTS, Status, VectorCommand


def check(params: TileParams, c: VectorCommand, queue: int) -> Status:
    """Return the errors for which the unit refuses a command."""
    status = Status(0)
    if _bad_opcode(c, queue):
        status |= Status.OPCODE
    if c.vectors == 0 or (c.has_rows and _bad_length(c)):
        status |= Status.LENGTH
    if _bad_range(params, c):
        status |= Status.RANGE
    return status


def _bad_opcode(c: VectorCommand, queue: int) -> bool:
    if not c.has_rows:
        return queue == 1
    rotary = c.op in ("rotary", "rotary_half")
    spread = c.op == "rotary_half" or (c.op == "rotary" and c.distance != 0)
    return (
        (c.source == "memory") == (queue == 1)
        or (rotary and (c.s1 is not None or c.s2 is not None or c.factor == "b"))
        or (rotary and c.function != "pass")
        or (c.op == "mul" and c.s1 is not None)
        or (c.op in ("add", "sub") and c.s2 is not None)
        or c.function == "rsqrt"
        or (spread and (c.quantize != "none" or queue == 1))
        or (c.start and (c.reduce != "max" or c.factor == "s3"))
        or (c.rank != 0 and (c.reduce != "arg_max" or c.store or c.quantize != "none"))
        or (c.rank != 0 and queue == 1)
        or (c.paired and c.quantize != "activations")
        or (c.quantize == "values" and queue == 1)
    )


def _bad_length(c: VectorCommand) -> bool:
    return (
        c.length == 0
        or (c.op == "rotary" and c.length % (2 << c.distance) != 0)
        or (c.op == "rotary_half" and c.length % 64 != 0)
        or (c.quantize == "values" and c.length > VALUE_ELEMENTS)
    )


def _bad_range(params: TileParams, c: VectorCommand) -> bool:
    # Zero vectors are an error of length; the hardware's count wraps.
    more = (c.vectors - 1) % 256
    config = params.config
    reduces = c.has_rows and c.reduce != "none"
    finishes = reduces or c.op == "scalar"
    scalars = [
        ("s1", c.s1 or 0, (c.has_rows and c.s1 is not None) or c.op == "scalar"),
        ("s2", c.s2 or 0, c.has_rows and c.s2 is not None),
        ("s3", c.s3, c.has_rows and (c.factor == "s3" or c.start)),
        ("multiplier", c.multiplier or 0, finishes and c.multiplier is not None),
        ("addend", c.addend or 0, finishes and c.addend is not None),
    ]
    bad = any(
        used and index + (more if name in c.per_vector else 0) >= config.scalars
        for name, index, used in scalars
    )
    bad |= (finishes or c.op == "set_scalar") and c.out + more >= config.scalars
    bad |= c.op == "set_limits" and c.out + more >= config.columns
    if not c.has_rows:
        return bool(bad)
    bad |= c.limits and c.vectors > config.columns
    for base, stride, used in (
        (c.a, c.a_stride, c.source == "memory"),
        (c.b, c.b_stride, c.reads_b),
        (c.dst, c.dst_stride, c.store),
    ):
        over = base + more * stride + (c.length - 1) % 65536 >= config.vector_elements
        bad |= used and (over or base % ALIGN != 0 or stride % ALIGN != 0)
    if c.quantize == "activations":
        last = c.address + more * c.address_step + (-(-c.length // BLOCK) - 1) % 65536
        column = c.column + more * c.column_step
        scale = 2 if c.paired else 1
        bad |= last >= scale * config.act_blocks or column >= config.columns // scale
    return bool(bad)


def check_races(c: VectorCommand) -> None:
    """Refuse a command whose result depends on the hardware's timing.

    Raises
    ------
    InputError
        It writes memory or scalars that it also reads for another element or vector.
    """
    more = c.vectors - 1
    if c.has_rows and c.store:
        low, high = c.dst, c.dst + more * c.dst_stride + c.length
        for name, base, stride, used in (
            ("a", c.a, c.a_stride, c.source == "memory"),
            ("b", c.b, c.b_stride, c.reads_b),
        ):
            meets = used and base < high and base + more * stride + c.length > low
            in_place = base == c.dst and (more == 0 or (stride == c.dst_stride >= c.length))
            if meets and not in_place:
                raise InputError(
                    f"command {c.tag} writes elements {low} to {high - 1} and reads operand {name} "
                    "there; use another place, or the same place for both"
                )
    if (c.has_rows and c.reduce != "none") or c.op == "scalar":
        _check_scalar_races(c)


def _check_scalar_races(c: VectorCommand) -> None:
    more = c.vectors - 1
    finish = [("multiplier", c.multiplier), ("addend", c.addend)]
    rows = [("s2", c.s2), ("s3", c.s3 if c.factor == "s3" or c.start else None)]
    for name, index in [("s1", c.s1), *finish, *(rows if c.has_rows else [])]:
        if index is None:
            continue
        last = index + (more if name in c.per_vector else 0)
        if index <= c.out + more and last >= c.out:
            raise InputError(
                f"command {c.tag} writes scalars {c.out} to {c.out + more} and reads {name} there; "
                "write others"
            )
