"""Operands for campaigns: formats, scales at the extremes, pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK
from pequin_sim.mx import SCALE_NAN, SCALE_ONE, Format, MxTensor

EXTREMES = (0x00, 0xFE, 0xFF, 0x7F)
"""Scale bytes of the cross: smallest, largest, NaN, one."""

PAUSES: dict[str, dict[str, dict[str, Any]]] = {
    "none": {},
    "both sides": {
        "command": {"rate": 64},
        "weights": {"rate": 96},
        "activations": {"rate": 64},
        "results": {"rate": 144},
        "selected": {"rate": 128},
        "status": {"rate": 200},
    },
    "bursts": {
        "command": {"burst_rate": 6000, "burst_clocks": 200},
        "weights": {"burst_rate": 300, "burst_clocks": 200},
        "results": {"burst_rate": 300, "burst_clocks": 200},
        "selected": {"burst_rate": 3000, "burst_clocks": 200},
        "status": {"burst_rate": 300, "burst_clocks": 200},
    },
    "slow output": {
        "results": {"rate": 224, "burst_rate": 100, "burst_clocks": 200},
        "selected": {"rate": 200},
        "status": {"rate": 240, "burst_rate": 300, "burst_clocks": 200},
    },
}
"""Named pauses of the streams: fields of `Pauses` per stream."""

# Sum of both scale bytes at which a block sum lands on the grid unshifted.
_UNSHIFTED = {Format.MXFP4: 237, Format.MXINT8: 242}

_TARGETS = {
    "middle": (-14, 22),
    "rounding": (-24, -8),
    "clamping": (24, 40),
    "edge": (26, 30),
    "all": (-300, 300),
}
"""Range of left shifts that a command's blocks aim at."""


@dataclass(frozen=True)
class FormatCase:
    """How a command's weights are stored."""

    fmt: Format
    planes: int
    scaled: bool

    def __str__(self) -> str:
        """Return a short name."""
        return f"{self.fmt} x {self.planes}" + ("" if self.scaled else " unscaled")

    @classmethod
    def of(cls, weights: MxTensor, scaled: bool) -> FormatCase:
        """Return the case of a matrix."""
        return cls(weights.fmt, weights.planes, scaled)


FORMATS = (
    FormatCase(Format.MXFP4, 1, True),
    FormatCase(Format.MXFP4, 2, True),
    FormatCase(Format.MXINT8, 1, True),
    FormatCase(Format.MXFP4, 1, False),
    FormatCase(Format.MXFP4, 2, False),
    FormatCase(Format.MXINT8, 1, False),
)
"""Every way to store weights."""


def random_elements(
    rng: np.random.Generator, fmt: Format, planes: int, rows: int, blocks: int
) -> npt.NDArray[np.int8]:
    """Return elements [planes, rows, K] with blocks of zeros, of one sign and of extremes."""
    low, high = (0, 16) if fmt is Format.MXFP4 else (-128, 128)
    e = rng.integers(low, high, (planes, rows, blocks, BLOCK), dtype=np.int16).astype(np.int8)
    kind = rng.random((planes, rows, blocks))
    top, bottom = (7, 15) if fmt is Format.MXFP4 else (127, -128)
    e[kind < 0.04] = 0
    if fmt is Format.MXFP4:
        minus_zero = (kind >= 0.04) & (kind < 0.05)
        e[minus_zero] = 8
    e[(kind >= 0.05) & (kind < 0.09)] = top
    e[(kind >= 0.09) & (kind < 0.13)] = bottom
    sparse = (kind >= 0.13) & (kind < 0.2)
    e[sparse] *= rng.random((int(sparse.sum()), BLOCK)) < 0.1
    return e.reshape(planes, rows, -1)


def acts_of(rng: np.random.Generator, vectors: int, blocks: int, scale: int) -> MxTensor:
    """Return activations with one random block at `scale`, the others at 1.0."""
    scales = np.full((1, vectors, blocks), SCALE_ONE, np.uint8)
    scales[0, np.arange(vectors), rng.integers(0, blocks, vectors)] = scale
    elements = random_elements(rng, Format.MXINT8, 1, vectors, blocks)
    return MxTensor(Format.MXINT8, elements, scales)


def weights_of(
    rng: np.random.Generator, case: FormatCase, rows: int, blocks: int, scale: int
) -> MxTensor:
    """Return weights with one random block per row at `scale`, the others at 1.0."""
    scales = np.full((case.planes, rows, blocks), SCALE_ONE, np.uint8)
    plane = rng.integers(0, case.planes, rows)
    scales[plane, np.arange(rows), rng.integers(0, blocks, rows)] = scale
    return MxTensor(case.fmt, random_elements(rng, case.fmt, case.planes, rows, blocks), scales)


def random_acts(rng: np.random.Generator, vectors: int, blocks: int) -> MxTensor:
    """Return activations whose scales lie around a random byte; a few are anything, or NaN."""
    shape = (1, vectors, blocks)
    centre, spread = rng.integers(90, 165), rng.integers(1, 12)
    scales = rng.integers(centre - spread, centre + spread + 1, shape)
    wild = rng.random(shape)
    scales = np.where(wild < 0.01, rng.integers(0, 255, shape), scales)
    if rng.random() < 0.3:
        scales = np.where(wild > 1 - 0.5 / blocks, SCALE_NAN, scales)
    elements = random_elements(rng, Format.MXINT8, 1, vectors, blocks)
    return MxTensor(Format.MXINT8, elements, scales.astype(np.uint8))


def random_weights(
    rng: np.random.Generator, case: FormatCase, rows: int, acts: MxTensor
) -> MxTensor:
    """Return weights whose scales aim at a random range of shifts for the given activations.

    Some matrices repeat few rows, so that results tie.
    """
    shape = (case.planes, rows, acts.blocks)
    elements = random_elements(rng, case.fmt, *shape)
    if not case.scaled:
        return MxTensor(case.fmt, elements, np.full(shape, SCALE_ONE, np.uint8))
    low, high = _TARGETS[str(rng.choice(list(_TARGETS)))]
    met = acts.scales[0, int(rng.integers(acts.rows))].astype(np.int64)
    scales = _UNSHIFTED[case.fmt] + rng.integers(low, high, shape) - np.where(met == 255, 127, met)
    scales = np.clip(scales, 0, 254)
    if rng.random() < 0.3:
        scales[rng.random(shape) < 0.5 / acts.blocks] = SCALE_NAN
    if rng.random() < 0.25:
        few = rng.integers(0, min(rows, 3), rows)
        elements, scales = elements[:, few], scales[:, few]
    return MxTensor(case.fmt, elements, scales.astype(np.uint8))
