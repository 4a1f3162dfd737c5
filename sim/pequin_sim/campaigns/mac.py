"""Random and directed cases for the MAC array, their check, and what they have reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import BLOCK, TileParams
from pequin.export import Design
from pequin_sim.campaigns.operands import (
    EXTREMES,
    FORMATS,
    PAUSES,
    FormatCase,
    acts_of,
    random_acts,
    random_weights,
    weights_of,
)
from pequin_sim.compare import require_same
from pequin_sim.golden.mac import MacFlag, MacResult, mac_array
from pequin_sim.golden.topk import top_k
from pequin_sim.layout import CHUNK_BLOCKS, beat_count, blocks_per_beat
from pequin_sim.mx import MxTensor
from pequin_sim.rtl.bench import Pauses
from pequin_sim.rtl.mac import MacRun, Multiply, MultiplyResult, run_mac

MAX_COMMANDS = 200
"""Commands of a random batch."""

MAX_GROUPS = 60_000
"""Result groups of a random batch."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Commands of one simulation run, and how its streams behave.

    Parameters
    ----------
    commands
        In order.
    pauses
        Name in `PAUSES`.
    seed
        Of the pauses.
    split
        As in `run_mac`.
    """

    commands: list[Multiply]
    pauses: str = "none"
    seed: int = 1
    split: npt.NDArray[np.bool_] | None = None


@dataclass
class Reached:
    """What a campaign has simulated and met; sums over its batches.

    Parameters
    ----------
    products
        Block products by format: real rows, columns in use.
    clocks
        Simulated clocks with the array running.
    events
        How often each event came about: flags, zero blocks, features of commands.
    cross
        Commands by (format case, paired, pauses).
    """

    products: Counter[str] = field(default_factory=Counter)
    clocks: int = 0
    events: Counter[str] = field(default_factory=Counter)
    cross: Counter[tuple[str, bool, str]] = field(default_factory=Counter)

    def add(self, other: Reached) -> None:
        """Add another campaign's sums."""
        self.products += other.products
        self.clocks += other.clocks
        self.events += other.events
        self.cross += other.cross


def run_batch(
    params: TileParams, batch: Batch, *, design: Design | None = None, **options: Any
) -> Reached:
    """Run a batch in RTL simulation, compare every bit, and say what it has met.

    Parameters
    ----------
    params
        The tile's parameters.
    batch
        What to run.
    design, options
        As in `run_mac`.

    Raises
    ------
    AssertionError
        A value, a flag or a status differs; the message names the first place.
    """
    run = run_mac(
        params,
        batch.commands,
        pauses=pauses_of(batch.pauses, batch.seed),
        split=batch.split,
        design=design,
        **options,
    )
    golden = check_run(params, batch.commands, run)
    reached = Reached(clocks=run.clocks)
    for command, expected in zip(batch.commands, golden, strict=True):
        _count(reached, batch, command, expected)
    return reached


def pauses_of(name: str, seed: int) -> dict[str, Pauses]:
    """Return the pauses called `name` with seeds of their own for each stream."""
    return {
        stream: Pauses(**settings, seed=(seed * 2654435761 + 977 * i) & 0xFFFFFFFF)
        for i, (stream, settings) in enumerate(PAUSES[name].items())
    }


def check_run(params: TileParams, commands: Sequence[Multiply], run: MacRun) -> list[MacResult]:
    """Compare a run with the golden models and return their results.

    Raises
    ------
    AssertionError
        Something differs; the message names the command and the first wrong value.
    """
    golden = [mac_array(c.weights, c.acts) for c in commands]
    chain: list[tuple[int, MacResult]] = []
    for i, (command, expected, actual) in enumerate(
        zip(commands, golden, run.results, strict=True)
    ):
        label = f"command {i} ({describe(command)})"
        if not command.top_k:
            _check_matrix(label, expected, actual)
        else:
            kept = [] if command.select_first else chain
            chain = [*kept, (command.first_row, expected)]
            if command.select_last:
                _check_selected(label, params, chain, actual)
        _check_status(label, command, expected, actual)
    beats = sum(_payload_beats(c) for c in commands)
    assert run.payload_beats == beats, f"{run.payload_beats} payload beats, expected {beats}"
    return golden


def describe(command: Multiply) -> str:
    """Return a command's shape and mode in one line."""
    w = command.weights
    mode = "paired" if command.paired else "unpaired"
    scaled = "" if command.scaled else ", unscaled"
    sink = ", top-k" if command.top_k else ""
    return (
        f"{w.fmt} x {w.planes}, {command.rows} x {command.k}, {command.vectors} vectors, "
        f"{mode}{scaled}{sink}, base {command.base}"
    )


def _check_matrix(label: str, expected: MacResult, actual: MultiplyResult) -> None:
    axes = ("row", "vector")
    assert actual.values_u32 is not None
    assert actual.flags is not None
    require_same(expected.values, actual.values_u32.view(np.float32), f"{label}: values", axes=axes)
    require_same(expected.flags, actual.flags, f"{label}: flags", axes=axes)


def _check_status(
    label: str, command: Multiply, expected: MacResult, actual: MultiplyResult
) -> None:
    wanted = {
        "errors": int(np.bitwise_or.reduce(expected.flags, axis=None)),
        "zeros": expected.zero_count,
    }
    if expected.error:
        row, vector = np.argwhere(expected.flags)[0]
        wanted |= {"error_row": command.first_row + int(row), "error_vector": int(vector)}
    for name, value in wanted.items():
        have = actual.status[name]
        assert have == value, f"{label}: status {name} is {have}, expected {value}"


def _check_selected(
    label: str, params: TileParams, chain: list[tuple[int, MacResult]], actual: MultiplyResult
) -> None:
    """Compare the top-k entries of a chain of commands; the lowest row index wins a tie."""
    parts = sorted(chain, key=lambda part: part[0])
    rows = np.concatenate([np.arange(len(r.flags)) + first for first, r in parts])
    best = top_k(np.concatenate([r.values_u32 for _, r in parts]), params.config.top_k)
    assert actual.selected is not None
    for vector, have in enumerate(actual.selected):
        filled = int(best.counts[vector])
        want = [
            (int(rows[best.indices[vector, k]]), int(best.values_u32[vector, k]))
            for k in range(filled)
        ]
        assert have == want, f"{label}: vector {vector} selects {have}, expected {want}"


def _payload_beats(command: Multiply) -> int:
    w = command.weights
    return beat_count(command.rows, command.k, w.fmt, w.planes, command.scaled).payload


def _count(reached: Reached, batch: Batch, command: Multiply, expected: MacResult) -> None:
    w, events = command.weights, reached.events
    products = w.planes * command.rows * w.blocks * command.vectors
    reached.products[str(w.fmt)] += products
    case = FormatCase.of(command.weights, command.scaled)
    reached.cross[str(case), command.paired, batch.pauses] += 1
    for flag in MacFlag:
        hits = int(np.count_nonzero(expected.flags & flag))
        events[f"{w.fmt} {(flag.name or '').lower()}"] += hits
    events[f"{w.fmt} rounded to zero"] += expected.zero_count
    zero_blocks = ~w.integers().reshape(-1, BLOCK).any(axis=1)
    events[f"{w.fmt} zero blocks"] += int(np.count_nonzero(zero_blocks))
    for name, scales in (("weight", w.scales), ("act", command.acts.scales)):
        for code in EXTREMES:
            events[f"{name} scale {code:02x}"] += int(np.count_nonzero(scales == code))
    columns = 2 * command.vectors if command.paired else command.vectors
    blocks = _payload_beats(command) * blocks_per_beat(w.fmt)
    features = {
        "odd rows": command.rows % 2,
        "odd blocks": w.blocks % 2,
        "paired odd blocks": command.paired and w.blocks % 2,
        "partial chunk": command.scaled and blocks % CHUNK_BLOCKS,
        "several chunks": command.scaled and blocks > CHUNK_BLOCKS,
        "one vector": command.vectors == 1,
        "base above 0": command.base,
        "buffer reused": not command.load,
        "top-k": command.top_k,
        "top-k kept": command.top_k and not command.select_first,
        "random transfers": batch.split is not None,
        "two columns": columns == 2,
    }
    events.update({name: 1 for name, present in features.items() if present})


def cross_batches(params: TileParams, *, seed: int = 0) -> list[Batch]:
    """Return the cross of scale extremes x format x pairing x pauses.

    Every command has a block of extreme weight scale that meets an extreme activation scale, and
    a block in the middle of the range. One batch per pairing and kind of pauses.
    """
    rng = np.random.default_rng(seed)
    return [
        Batch(_cross_commands(params, rng, paired), pauses, seed + 1, _random_split(rng))
        for paired in (False, True)
        for pauses in PAUSES
    ]


def _cross_commands(params: TileParams, rng: np.random.Generator, paired: bool) -> list[Multiply]:
    columns = params.config.columns
    limit = columns // 2 if paired else columns
    commands = []
    for i, act_scale in enumerate(EXTREMES):
        vectors = int(rng.integers(1, limit + 1))
        acts = acts_of(rng, vectors, 2, act_scale)
        load = True
        for case in FORMATS:
            for weight_scale in EXTREMES if case.scaled else (0x7F,):
                weights = weights_of(rng, case, int(rng.integers(1, 6)), 2, weight_scale)
                commands.append(
                    Multiply(
                        weights, acts, paired=paired, scaled=case.scaled, base=2 * i, load=load
                    )
                )
                load = False
    order = [c for c in commands if not c.load]
    shuffled = [order[i] for i in rng.permutation(len(order))]
    return [c for c in commands if c.load] + shuffled


def _random_split(rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return a random pattern of transfers with one beat (True) or two."""
    return rng.random(int(rng.integers(3, 60))) < rng.uniform(0.1, 0.9)


def random_batch(
    params: TileParams, rng: np.random.Generator, beats: int, fmt: str | None = None
) -> Batch:
    """Return commands of random shapes, modes and operands.

    Parameters
    ----------
    params
        The tile's parameters.
    rng
        Source of everything random; the same state gives the same batch.
    beats
        Payload beats to aim at; the last command may pass it by its own size.
    fmt
        Use only this element format.
    """
    builder = _Builder(params, rng, beats, fmt)
    builder.fill()
    split = _random_split(rng) if rng.random() < 0.7 else None
    pauses = str(rng.choice(list(PAUSES)))
    return Batch(builder.commands, pauses, int(rng.integers(1 << 31)), split)


class _Builder:
    """Lay random vectors out in the activation buffer and stream random matrices over them."""

    def __init__(
        self, params: TileParams, rng: np.random.Generator, beats: int, fmt: str | None
    ) -> None:
        self.params, self.rng, self.beats = params, rng, beats
        self.cases = [c for c in FORMATS if fmt in (None, c.fmt)]
        self.commands: list[Multiply] = []
        self.used = self.groups = self.base = 0

    def fill(self) -> None:
        """Add commands until the batch is as large as wanted or a limit is near."""
        places: list[tuple[MxTensor, bool, int]] = []
        while (free := self.params.config.act_blocks - self.base) > 0 and len(places) < 8:
            places.append(self._place(free))
        while self.used < self.beats and len(self.commands) < MAX_COMMANDS - 8:
            acts, paired, base = places[int(self.rng.integers(len(places)))]
            fresh = all(c.base != base for c in self.commands)
            if not self._add(acts, paired, base, load=fresh):
                break
        if not self.commands:
            raise AssertionError("a random batch holds at least one command")

    def _place(self, free: int) -> tuple[MxTensor, bool, int]:
        """Make random vectors at the next free address."""
        rng, columns = self.rng, self.params.config.columns
        paired = bool(rng.random() < 0.5)
        blocks = int(min(self._blocks(), free * 2 if paired else free))
        limit = columns // 2 if paired else columns
        vectors = limit if rng.random() < 0.6 else int(rng.integers(1, limit + 1))
        place = (random_acts(rng, vectors, blocks), paired, self.base)
        self.base += -(-blocks // 2) if paired else blocks
        return place

    def _blocks(self) -> int:
        largest = self.params.max_blocks
        if self.rng.random() < 0.3:
            return int(self.rng.integers(1, min(largest, 5) + 1))
        return int(np.exp(self.rng.uniform(0, np.log(largest + 0.99))))

    def _add(self, acts: MxTensor, paired: bool, base: int, *, load: bool) -> bool:
        """Add a command, or a chain of top-k commands; False when there is no room."""
        rng, config = self.rng, self.params.config
        case = self.cases[int(rng.integers(len(self.cases)))]
        selecting = bool(rng.random() < 0.25)
        chain = int(rng.integers(1, 4)) if selecting else 1
        per_pair = case.planes * acts.blocks * (1 if case.fmt == "mxfp4" else 2)
        space = 1 << config.index_bits
        for i in range(chain):
            room = min((self.beats - self.used) // per_pair + 1, space // (2 * chain), 2000)
            rows = max(1, int(2 * rng.uniform(0.5, max(1, room) ** rng.uniform(0.3, 1.0))))
            groups = rows * -(-acts.rows // config.drain_lanes)
            if self.groups + groups > MAX_GROUPS:
                return False
            # Commands of a chain own parts of the row space, in falling order.
            part = space // chain
            first = (chain - 1 - i) * part + int(rng.integers(0, part - rows + 1))
            self.commands.append(
                Multiply(
                    random_weights(rng, case, rows, acts),
                    acts,
                    paired=paired,
                    scaled=case.scaled,
                    base=base,
                    top_k=selecting,
                    first_row=first,
                    select_first=i == 0,
                    select_last=i == chain - 1,
                    load=load and i == 0,
                )
            )
            self.groups += groups
            self.used += -(-rows // 2) * per_pair
        return True


def run_campaign(
    params: TileParams,
    *,
    products: int,
    seed: int = 0,
    beats: int = 20_000,
    cross: bool = True,
    design: Design | None = None,
    progress: Callable[[Reached, float], None] | None = None,
    **options: Any,
) -> Reached:
    """Run the cross and then random batches until each format has had `products` block products.

    Parameters
    ----------
    params
        The tile's parameters.
    products
        Block products per format.
    seed
        Chooses the cases; a failing campaign's message names seed and batch.
    beats
        Size of a random batch (payload beats), at most 50,000.
    cross
        Begin with `cross_batches`.
    design, options
        As in `run_mac`.
    progress
        Called after every batch with what was reached and the share done, 0 to 1.

    Raises
    ------
    AssertionError
        Something differs.
    """
    reached = Reached()
    for i, batch in enumerate(cross_batches(params, seed=seed) if cross else ()):
        reached.add(_named(f"cross batch {i}", params, batch, design, options))
    batch_number = 0
    formats = ("mxfp4", "mxint8")
    while (least := min(reached.products[f] for f in formats)) < products:
        fmt = min(formats, key=lambda f: reached.products[f])
        rng = np.random.default_rng([seed, batch_number])
        batch = random_batch(params, rng, beats, fmt if batch_number % 4 else None)
        name = f"seed {seed}, batch {batch_number}"
        reached.add(_named(name, params, batch, design, options))
        batch_number += 1
        if progress is not None:
            progress(reached, min(1.0, least / products))
    return reached


def _named(
    name: str, params: TileParams, batch: Batch, design: Design | None, options: dict[str, Any]
) -> Reached:
    try:
        return run_batch(params, batch, design=design, **options)
    except AssertionError as error:
        raise AssertionError(f"{params.config.name}, {name}, {batch.pauses}: {error}") from error
