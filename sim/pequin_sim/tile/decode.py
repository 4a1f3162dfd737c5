"""Greedy decoding of one sequence on the golden machine: the STEPs that a tile is then given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pequin.config import TileParams
from pequin_sim.compiler import CompiledDecoder
from pequin_sim.machine import Column, EventKind, Machine, Result, Step
from pequin_sim.machine.machine import RaceMode


@dataclass(frozen=True, eq=False)
class Decoded:
    """What the golden machine did.

    Parameters
    ----------
    steps
        One for each position.
    tokens
        The token chosen at each position.
    result
        What the machine left; events and commands are those of all steps.
    """

    steps: list[Step]
    tokens: list[int]
    result: Result


def decode_greedily(
    params: TileParams,
    compiled: CompiledDecoder,
    image: npt.NDArray[np.uint8],
    *,
    first: int = 1,
    positions: int,
    races: RaceMode = "raise",
    look: Callable[[int, Result], None] | None = None,
) -> Decoded:
    """Decode from a first token, each next one the arg-max of the one before.

    Ends early when an error stops the machine.

    Parameters
    ----------
    params
        The tile.
    compiled, image
        The decoder's program, and HBM with its weights.
    first
        The token at position 0.
    positions
        Tokens to decode.
    races
        As `Machine` takes it.
    look
        Called after each step with its token and what the machine then holds.
    """
    machine = Machine(params, image, compiled.program, races=races)
    result, token = machine.run(), first
    steps, tokens, events, commands = [], [], [], []
    for position in range(positions):
        steps.append(Step([Column(token=token, position=position, flags=1)]))
        result = machine.step(steps[-1])
        if look is not None:
            look(token, result)
        events += result.events
        commands += result.commands
        if result.error is not None:
            break
        token = next(e.value for e in result.events if e.kind is EventKind.TOKEN and e.rank == 0)
        tokens.append(token)
    return Decoded(steps, tokens, dataclasses.replace(result, events=events, commands=commands))
