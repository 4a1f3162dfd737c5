"""Units, their registers and fields, as data; docs/isa.md is the contract."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pequin.errors import InputError


class Field(NamedTuple):
    """Place of a field in the words of a command."""

    word: int
    """Number of the word."""

    low: int
    """Lowest bit."""

    width: int
    """Bits."""


UNITS = {"seq": 0, "mac": 1, "stream": 2, "kv": 3, "vector": 4, "drain": 5, "dma": 6}
"""Number of each unit."""

UNIT_NAMES = tuple(UNITS)
"""Name of each unit, by its number."""

LEVELS = 3
"""Loop levels of a launch; level 1 is the innermost."""

SEMAPHORES = 32
"""Semaphores."""

SEMAPHORE_MAX = 255
"""Highest count of a semaphore."""

COUNT_REGISTER = 15
"""Place of a level's iterations: register 16 * level + 15."""

_VECTOR_WORDS = (
    ("mode",),
    ("shape",),
    ("a",),
    ("b",),
    ("dst",),
    ("a_stride",),
    ("b_stride",),
    ("dst_stride",),
    ("scalars",),
    ("extra",),
    ("place",),
    ("address",),
    ("address_step",),
    ("immediate",),
)

_WORDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "seq": (),
    "mac": (
        ("mode",),
        ("last_block",),
        ("last_row",),
        ("first_row",),
        ("last_vector",),
        ("base",),
    ),
    "stream": (("address",), ("beats",)),
    "kv": (("kind",), ("address",), ("step",), ("rows", "tokens"), ("blocks", "granules")),
    "vector": _VECTOR_WORDS,
    "drain": _VECTOR_WORDS,
    "dma": (("kind",), ("source",), ("dst",), ("count",), ("step",)),
}

WORD_NAMES = {unit: tuple(names[0] for names in words) for unit, words in _WORDS.items()}
"""Names of each unit's words, from word 0 on."""

STRIDED = {
    "seq": (),
    "mac": (3, 5),
    "stream": (0,),
    "kv": (1,),
    "vector": (2, 3, 4, 8, 10, 11, 13),
    "drain": (2, 3, 4, 8, 10, 11, 13),
    "dma": (1, 2),
}
"""Words that have strides."""


def _packed(word: int, *fields: tuple[str, int]) -> dict[str, Field]:
    """Return fields that follow each other from bit 0 of a word on."""
    placed, low = {}, 0
    for name, width in fields:
        placed[name] = Field(word, low, width)
        low += width
    return placed


_MAC_MODE = _packed(
    0,
    ("format", 1),
    ("two_planes", 1),
    ("scaled", 1),
    ("paired", 1),
    ("sink", 1),
    ("select_first", 1),
    ("select_last", 1),
    ("source", 1),
)

_VECTOR_FIELDS = {
    **_packed(
        0,
        ("op", 4),
        ("function", 2),
        ("factor", 2),
        ("source", 2),
        ("store", 1),
        ("quantize", 2),
        ("paired", 1),
        ("limits", 1),
        ("reduce", 2),
        ("start", 1),
        ("rank", 3),
        ("use_s1", 1),
        ("use_s2", 1),
        ("minus_s2", 1),
        ("use_multiplier", 1),
        ("use_addend", 1),
        ("finish", 2),
        ("distance", 3),
    ),
    **_packed(1, ("length", 16), ("vectors", 8)),
    **{name: Field(2 + i, 0, 32) for i, name in enumerate(("a", "b", "dst"))},
    **{name: Field(5 + i, 0, 32) for i, name in enumerate(("a_stride", "b_stride", "dst_stride"))},
    **_packed(8, ("s1", 8), ("s2", 8), ("s3", 8), ("out", 8)),
    **_packed(9, ("multiplier", 8), ("addend", 8), ("per_vector", 5), ("lane", 5)),
    **_packed(10, ("column", 8), ("column_step", 8)),
    "address": Field(11, 0, 24),
    "address_step": Field(12, 0, 24),
    "immediate": Field(13, 0, 32),
}


def _whole(unit: str, first: int = 0) -> dict[str, Field]:
    """Return the words from `first` on as fields, under all their names."""
    return {
        name: Field(word, 0, 32)
        for word, names in enumerate(_WORDS[unit])
        if word >= first
        for name in names
    }


UNIT_FIELDS: dict[str, dict[str, Field]] = {
    "seq": {},
    "mac": {**_MAC_MODE, **_whole("mac", 1)},
    "stream": _whole("stream"),
    "kv": _whole("kv"),
    "vector": _VECTOR_FIELDS,
    "drain": _VECTOR_FIELDS,
    "dma": _whole("dma"),
}
"""Fields of each unit's command: name -> (word, lowest bit, width)."""

_FUNCTIONS = {"pass": 0, "exp2": 1, "reciprocal": 2, "rsqrt": 3}

_VECTOR_VALUES = {
    "op": {
        "copy": 0,
        "add": 1,
        "sub": 2,
        "mul": 3,
        "rotary": 4,
        "rotary_half": 5,
        "scalar": 6,
        "set_scalar": 7,
        "set_limits": 8,
    },
    "function": _FUNCTIONS,
    "factor": {"one": 0, "s3": 1, "b": 2, "square": 3},
    "source": {"memory": 0, "drain": 1, "blocks": 2},
    "quantize": {"none": 0, "activations": 1, "keys": 2, "values": 3},
    "reduce": {"none": 0, "sum": 1, "max": 2, "arg_max": 3},
    "finish": _FUNCTIONS,
    "per_vector": {"s1": 1, "s2": 2, "s3": 4, "multiplier": 8, "addend": 16},
}

VALUES: dict[str, dict[str, dict[str, int]]] = {
    "seq": {},
    "mac": {
        "format": {"mxfp4": 0, "mxint8": 1},
        "sink": {"drain": 0, "top_k": 1},
        "source": {"fifo": 0, "kv": 1},
    },
    "stream": {},
    "kv": {"kind": {"keys": 0, "values": 1, "configure": 2}},
    "vector": _VECTOR_VALUES,
    "drain": _VECTOR_VALUES,
    "dma": {"kind": {"rows": 0, "blocks": 1, "scales": 2}},
}
"""Names of values: unit -> field -> name -> number."""

TABLE_FIELDS = {"slot": 0, "token": 1, "position": 2, "start": 3, "flags": 4, "kv_base": 5}
"""Fields of a column of the step's table."""

COLUMNS_FIELD = 15
"""Field of the step's table that is the number of columns, whatever the column."""


def check_unit(unit: str) -> str:
    """Return a unit's name after checking it.

    Raises
    ------
    InputError
        There is no such unit, or it has no commands.
    """
    if unit not in UNITS or unit == "seq":
        known = ", ".join(UNIT_NAMES[1:])
        raise InputError(f"unit {unit!r} does not exist; choose one of {known}")
    return unit


def word_number(unit: str, word: int | str) -> int:
    """Return the number of a word given by number or name.

    Raises
    ------
    InputError
        The unit has no such word.
    """
    names = _WORDS[check_unit(unit)]
    for number, known in enumerate(names):
        if word == number or word in known:
            return number
    raise InputError(f"{unit} has no word {word!r}; it has {', '.join(WORD_NAMES[unit])}")


def stride_register(unit: str, word: int | str, level: int) -> int:
    """Return the register of a word's stride at a loop level (1 to 3).

    Raises
    ------
    InputError
        The word has no strides or the level does not exist.
    """
    number = word_number(unit, word)
    if number not in STRIDED[unit]:
        strided = ", ".join(WORD_NAMES[unit][w] for w in STRIDED[unit])
        raise InputError(
            f"word {WORD_NAMES[unit][number]} of {unit} has no stride; these have one: {strided}"
        )
    return 16 * _level(level) + number


def count_register(level: int) -> int:
    """Return the register of a loop level's iterations (level 1 to 3)."""
    return 16 * _level(level) + COUNT_REGISTER


def _level(level: int) -> int:
    if not 1 <= level <= LEVELS:
        raise InputError(f"loop levels are 1 to {LEVELS}, not {level}")
    return level


def register_exists(unit: str, register: int) -> bool:
    """Return whether a unit has a register of this number."""
    level, word = divmod(register, 16)
    if unit == "seq" or unit not in UNITS or not 0 <= level <= LEVELS:
        return False
    if level == 0:
        return word < len(_WORDS[unit])
    return word == COUNT_REGISTER or word in STRIDED[unit]


def field_value(unit: str, name: str, value: int | str | Iterable[str]) -> int:
    """Return the number of a field's value, which may be a name or, for bits, several names.

    Raises
    ------
    InputError
        The unit has no such field, the field no such value, or the value does not fit.
    """
    fields = UNIT_FIELDS[check_unit(unit)]
    if name not in fields:
        raise InputError(f"{unit} has no field {name!r}; it has {', '.join(fields)}")
    names = VALUES[unit].get(name, {})
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, int):
        number = 0
        for part in value:
            if part not in names:
                known = f"; choose from {', '.join(names)}" if names else ""
                raise InputError(f"{unit}.{name} cannot be {part!r}{known}")
            number |= names[part]
        return number
    width = fields[name].width
    if not 0 <= int(value) < 1 << width:
        raise InputError(f"{unit}.{name} has {width} bits: {value} does not fit")
    return int(value)


def pack_word(unit: str, word: int | str, **fields: int | str | Iterable[str]) -> int:
    """Return a command word from its fields; fields that are not given are 0.

    Parameters
    ----------
    unit
        Name of the unit.
    word
        Number or name of the word.
    fields
        Values: numbers, booleans, names of `VALUES`, or several names of `per_vector`.

    Raises
    ------
    InputError
        A field does not exist or lies in another word, or a value does not fit.
    """
    number = word_number(unit, word)
    packed = 0
    for name, value in fields.items():
        bits = field_value(unit, name, value)
        place = UNIT_FIELDS[unit][name]
        if place.word != number:
            raise InputError(
                f"{unit}.{name} is in word {WORD_NAMES[unit][place.word]}, not in "
                f"{WORD_NAMES[unit][number]}"
            )
        packed |= bits << place.low
    return packed


def unpack_word(unit: str, word: int | str, value: int) -> dict[str, int]:
    """Return the fields of a command word; of a word's several names, the first."""
    number = word_number(unit, word)
    found, seen = {}, set()
    for name, place in UNIT_FIELDS[unit].items():
        if place.word == number and place.low not in seen:
            seen.add(place.low)
            found[name] = value >> place.low & ((1 << place.width) - 1)
    return found
