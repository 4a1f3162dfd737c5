"""The shape of a decoder-only model."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pequin.config import BLOCK
from pequin.errors import InputError

MAX_HEAD_DIM = 7 * BLOCK
"""Largest head: a KV granule has the scales of at most 7 blocks per token."""


class Rotary(enum.StrEnum):
    """Which elements of a head the rotary embedding turns together."""

    ADJACENT = "adjacent"
    """Elements 2j and 2j + 1 (llama2.c, Meta's Llama)."""

    HALF = "half"
    """Elements j and j + head_dim / 2 (Hugging Face's Llama, GPT-NeoX, gpt-oss)."""


def padded(elements: int) -> int:
    """Return a count of elements rounded up to whole blocks."""
    return -(-elements // BLOCK) * BLOCK


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a Llama-like decoder: RMS norm, grouped-query attention, SwiGLU.

    Nothing need be a multiple of 32.

    Parameters
    ----------
    layers, hidden, heads, kv_heads, head_dim, mlp, vocab
        Counts; `heads` is a multiple of `kv_heads`, `head_dim` is even and at most 224.
    rotary
        Which elements are turned together.
    norm_eps
        Added to the mean square.
    rope_theta
        Base of the rotary frequencies.

    Raises
    ------
    InputError
        A size breaks a rule; the message has the numbers.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    rotary: Rotary = Rotary.ADJACENT
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    def __post_init__(self) -> None:
        """Check sizes."""
        for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "vocab"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.heads % self.kv_heads:
            raise InputError(
                f"heads must be a multiple of kv_heads, but {self.heads} is none of {self.kv_heads}"
            )
        if self.head_dim % 2 or self.head_dim > MAX_HEAD_DIM:
            raise InputError(
                f"head_dim must be even and at most {MAX_HEAD_DIM}, not {self.head_dim}"
            )
        if not self.norm_eps > 0 or not self.rope_theta > 0:
            raise InputError(
                f"norm_eps and rope_theta must be positive, not {self.norm_eps} and "
                f"{self.rope_theta}"
            )
        try:
            object.__setattr__(self, "rotary", Rotary(self.rotary))
        except ValueError:
            raise InputError(
                f"rotary {self.rotary!r} is unknown; choose one of {', '.join(Rotary)}"
            ) from None

    @property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.heads // self.kv_heads

    @property
    def head_blocks(self) -> int:
        """Blocks of one head; the last one is filled with zeros."""
        return padded(self.head_dim) // BLOCK

    @property
    def parameters(self) -> int:
        """Weights of all matrices, embedding and head counted apart, without norm gains."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.mlp) + 2 * self.vocab * self.hidden
