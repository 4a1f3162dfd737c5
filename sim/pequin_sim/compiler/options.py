"""What a user chooses about a compiled decoder."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pequin.errors import InputError
from pequin_sim.model import Formats


class Head(enum.StrEnum):
    """What becomes of the logits."""

    ARG_MAX = "arg_max"
    """The MAC array keeps the largest ones; TOKEN events tell them, best first."""

    TOP_K = "top_k"
    """The same program; the host samples among the entries."""

    LOGITS = "logits"
    """All go to vector memory, and a TOKEN event tells the largest."""


class Embedding(enum.StrEnum):
    """How the embedding lies in HBM."""

    MXINT8 = "mxint8"
    """Rows of blocks, dequantized on the way."""

    FP32 = "fp32"
    """Rows of fp32."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices that the model's shape does not make.

    Parameters
    ----------
    max_positions
        Positions that the KV cache, the rotary table and the scores have room for.
    head
        What becomes of the logits.
    embedding
        How the embedding lies in HBM.
    formats
        Format of each matrix.
    ahead
        Matrices that the stream engine may be ahead of the MAC array in the program, 0 to 6;
        None takes as many as fill the weight FIFO and fit the queue.
    hbm_base
        First beat of the image in HBM.
    batch
        Columns that a step may have. 1 makes the program of one sequence; more make one that
        takes 1 to `batch` columns of any sequences.

    Raises
    ------
    InputError
        A choice does not exist or is out of range.
    """

    max_positions: int
    head: Head = Head.ARG_MAX
    embedding: Embedding = Embedding.MXINT8
    formats: Formats = field(default_factory=Formats)
    ahead: int | None = None
    hbm_base: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        """Check the choices."""
        if not 1 <= self.max_positions < 1 << 16:
            raise InputError(f"max_positions must be 1 to 65535, not {self.max_positions}")
        if self.ahead is not None and not 0 <= self.ahead <= MAX_AHEAD:
            raise InputError(f"ahead must be 0 to {MAX_AHEAD}, not {self.ahead}")
        if self.batch < 1:
            raise InputError(f"batch must be at least 1, not {self.batch}")
        if self.hbm_base < 0:
            raise InputError(f"hbm_base must not be negative, but is {self.hbm_base}")
        for name, kind in (("head", Head), ("embedding", Embedding)):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, kind(value))
            except ValueError:
                raise InputError(
                    f"{name} {value!r} does not exist; choose one of {', '.join(kind)}"
                ) from None


MAX_AHEAD = 6
"""Matrices ahead stay below a layer's count, so that they reach into one further layer at most."""
