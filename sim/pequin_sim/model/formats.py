"""Which format each matrix of a model is stored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pequin.errors import InputError
from pequin_sim.mx import Format, ScaleRule
from pequin_sim.mx.tensor import check_planes

MATRICES = ("k", "v", "q", "o", "gate", "up", "down")
"""Matrices of a layer in the order in which the tile streams them."""

HEAD = "head"
"""The matrix after the last layer."""


@dataclass(frozen=True)
class MatrixFormat:
    """Format of a matrix.

    Parameters
    ----------
    fmt
        Element format.
    planes
        1, or 2 for MXFP4.
    rule
        How block scales are chosen.
    """

    fmt: Format = Format.MXFP4
    planes: int = 1
    rule: ScaleRule = ScaleRule.EVEN

    def __post_init__(self) -> None:
        """Check that the format has that many planes."""
        check_planes(self.fmt, self.planes)

    @classmethod
    def parse(cls, text: str | MatrixFormat) -> MatrixFormat:
        """Return the format called `mxfp4`, `mxfp4x2` (two planes) or `mxint8`."""
        if isinstance(text, MatrixFormat):
            return text
        two = text.endswith("x2")
        return cls(Format.parse(text.removesuffix("x2")), 2 if two else 1)

    def __str__(self) -> str:
        return f"{self.fmt}{'x2' if self.planes == 2 else ''}"


@dataclass(frozen=True)
class Formats:
    """Formats of all matrices: a default, and those that differ.

    >>> str(Formats.of("mxfp4", head="mxint8", k="mxfp4x2")["k"])
    'mxfp4x2'
    """

    default: MatrixFormat = field(default_factory=MatrixFormat)
    others: Mapping[str, MatrixFormat] = field(default_factory=dict)

    @classmethod
    def of(cls, default: str | MatrixFormat = "mxfp4", **others: str | MatrixFormat) -> Formats:
        """Return formats by name of matrix: `k v q o gate up down` or `head`.

        Raises
        ------
        InputError
            A matrix or a format does not exist.
        """
        for name in others:
            _check_name(name)
        parsed = {name: MatrixFormat.parse(text) for name, text in others.items()}
        return cls(MatrixFormat.parse(default), parsed)

    def __getitem__(self, name: str) -> MatrixFormat:
        return self.others.get(_check_name(name), self.default)


def _check_name(name: str) -> str:
    if name not in (*MATRICES, HEAD):
        raise InputError(f"matrix {name!r} does not exist; choose one of {(*MATRICES, HEAD)}")
    return name
