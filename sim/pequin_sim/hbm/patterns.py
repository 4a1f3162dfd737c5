"""The characterization: traffic patterns, how each is driven, and what is expected of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pequin.hbm.timing import HbmTiming
from pequin_sim.hbm import closed_forms
from pequin_sim.hbm.address import StreamMap
from pequin_sim.hbm.play import PlayOptions, Request

RUN_INTERVALS = 8
"""Refresh intervals that a bandwidth pattern is measured over, after one of warm-up."""

CONTROLLER_CLOCKS = 5
"""Clocks from a request's acceptance to its data beyond the device's own latency."""

Requests = list[Iterable[Request]]
Build = Callable[[int], Requests]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One line of the characterization.

    Parameters
    ----------
    name
        Key in reports and for `--pattern`.
    timing
        Timing preset.
    build
        Makes the request lists for a number of beats.
    expected
        Expected share of peak (0 to 1), or None when it is only measured.
    low, high
        The share passes from `low` to `high`.
    source
        Where the expectation comes from.
    arithmetic
        The closed form with its numbers, or the reference's values.
    options
        How it is driven; `warm` and `stop` are filled in.
    """

    name: str
    timing: str
    build: Build
    expected: float | None
    source: str
    arithmetic: str
    low: float = 0.0
    high: float = 1.0
    options: PlayOptions = field(default_factory=PlayOptions)

    def window(self) -> tuple[int, int]:
        """Return the clocks between which the share is counted."""
        interval = HbmTiming.preset(self.timing).clocks("refi")
        return interval, interval * (1 + RUN_INTERVALS)


STORE_BEATS = (64 << 20) // 32
CHUNK = 64
MAP = StreamMap()


def one_port(traffic: Callable[..., Iterator[Request]], *args: Any, **kwargs: Any) -> Build:
    """Return a builder of one port's requests: `traffic(beats, *args, **kwargs)`."""

    def build(beats: int) -> Requests:
        return [traffic(beats, *args, **kwargs)]

    return build


def long_reads(beats: int, start: int = 0, write: int = 0, piece: int = 1024) -> Iterator[Request]:
    """Yield a stream in long requests; it wraps at the end of the store."""
    for at in range(0, beats + piece, piece):
        yield write, (start + at) % STORE_BEATS, piece, 0


def single_beats(
    beats: int, step: Callable[[int], int] = lambda i: i, write: int = 0
) -> Iterator[Request]:
    """Yield one-beat requests."""
    for index in range(beats):
        yield write, step(index) % STORE_BEATS, 1, 0


def bursts(beats: int, count: int) -> Iterator[Request]:
    """Yield requests that take `count` beats of each of two newly activated rows."""
    for index in range(beats // (2 * count) + 64):
        yield 0, index * CHUNK % STORE_BEATS, 2 * count, 0


def row_first(index: int) -> int:
    """Return the beat address of a stream that fills one row after another."""
    chunk, within = divmod(index, CHUNK)
    half, column = divmod(within, CHUNK // 2)
    return chunk * CHUNK + 2 * column + half


def random_beats(beats: int, run: int = 1, seed: int = 1) -> Iterator[Request]:
    """Yield random one-beat reads, or pairs of neighbouring beats of one row."""
    rng = random.Random(seed)
    for _ in range(beats // (2 if run > 1 else 3)):
        address = rng.randrange(STORE_BEATS // CHUNK) * CHUNK + rng.randrange(CHUNK - 2)
        for beat in range(run):
            yield 0, address + 2 * beat, 1, 0


def two_to_one(beats: int) -> Iterator[Request]:
    """Yield one-beat requests that read two 1 KB blocks and write the third."""
    for index in range(beats):
        block = index // 32
        yield int(block % 3 == 2), index % STORE_BEATS, 1, 0


def same_bank_starts() -> list[int]:
    """Return three beat addresses of one bank, a third of the store apart."""
    first = 0
    starts = [first]
    for third in (1, 2):
        at = third * STORE_BEATS // 3 // CHUNK * CHUNK
        while MAP.bank_of(at) != MAP.bank_of(first):
            at += CHUNK
        starts.append(at)
    return starts


def mixed_streams(beats: int, read_percent: int, piece: int = CHUNK) -> Iterator[Request]:
    """Yield one requester's stream of reads and its stream of writes, dealt at a fixed ratio."""
    at = [0, STORE_BEATS // 2 + 5 * CHUNK]
    owed = 0
    for _ in range(beats // piece + 1):
        owed += read_percent
        write = int(owed < 100)
        owed -= 0 if write else 100
        yield write, at[write] % STORE_BEATS, piece, 0
        at[write] += piece


def _readers(starts: list[int]) -> Build:
    return lambda beats: [long_reads(beats // 2, start) for start in starts]


def reference_patterns() -> list[Pattern]:
    """Return the patterns at 10 Gb/s, against closed forms and this project's own targets."""
    name, t = "hbm4-10g", HbmTiming.preset("hbm4-10g")
    drained = closed_forms.all_bank_refresh(t)
    stream = one_port(long_reads)
    patterns = [
        Pattern(
            name="stream",
            timing=name,
            build=stream,
            expected=1.0,
            low=0.995,
            source="closed form",
            arithmetic="one beat a clock",
        ),
        Pattern(
            name="stream-all-bank",
            timing=name,
            build=stream,
            expected=drained.value,
            low=0.87,
            source="closed form",
            arithmetic=drained.arithmetic,
            options=PlayOptions(refresh="all-bank"),
        ),
        Pattern(
            name="stream-per-bank",
            timing=name,
            build=stream,
            expected=1.0,
            low=0.98,
            source="closed form",
            arithmetic="refresh hidden: one beat a clock",
            options=PlayOptions(refresh="per-bank"),
        ),
    ]
    for count in (1, 2, 3, 4, 8):
        form = closed_forms.bursts_per_row(t, count)
        reference = {1: 0.211, 2: 0.421, 3: 0.631, 4: 0.841, 8: 0.999}[count]
        patterns.append(
            Pattern(
                name=f"bursts-{count}",
                timing=name,
                expected=reference,
                build=one_port(bursts, count),
                low=reference - 0.01,
                high=min(1.0, reference + 0.01),
                source="Ramulator 2; closed form",
                arithmetic=form.arithmetic,
            )
        )
    unrelated = [0, STORE_BEATS // 3 // CHUNK * CHUNK + 17, STORE_BEATS * 2 // 3 + 5 * CHUNK]
    patterns.append(
        Pattern(
            name="readers-unrelated",
            timing=name,
            build=_readers(unrelated),
            expected=1.0,
            low=0.95,
            source="target",
            arithmetic="three readers, one beat a clock in total",
        )
    )
    patterns.append(
        Pattern(
            name="readers-same-bank",
            timing=name,
            build=_readers(same_bank_starts()),
            expected=None,
            source="measured",
            arithmetic="three readers starting in one bank",
        )
    )
    for percent, low in ((90, 0.88), (75, 0.72), (50, 0.65)):
        form = closed_forms.mix(t, percent, 64)
        patterns.append(
            Pattern(
                name=f"reads-{percent}",
                timing=name,
                build=one_port(mixed_streams, percent),
                expected=form.value,
                low=low,
                source="closed form, 64-beat batches",
                arithmetic=form.arithmetic,
                options=PlayOptions(refresh="per-bank"),
            )
        )
    form = closed_forms.bursts_per_row(t, 1)
    patterns.append(
        Pattern(
            name="random",
            timing=name,
            build=one_port(random_beats),
            expected=form.value,
            low=0.97 * form.value,
            source="activate-window bound",
            arithmetic=form.arithmetic,
            options=PlayOptions(outstanding=64),
        )
    )
    return patterns


BANDS = {"single": 0.03, "sequential": 0.07, "mixed": 0.15}
"""How far the two reference simulators disagree with each other, by class of pattern."""


def oracle_patterns() -> list[Pattern]:
    """Return the patterns at 8 Gb/s, against the two independent simulators."""
    sixty_four = PlayOptions(outstanding=64)
    all_bank = PlayOptions(outstanding=64, refresh="all-bank")
    per_bank = PlayOptions(outstanding=64, refresh="per-bank")
    table: list[tuple[str, Build, list[float], str, PlayOptions]] = [
        (
            "stream-interleaved",
            one_port(single_beats),
            [0.9997, 0.9588],
            "sequential",
            sixty_four,
        ),
        (
            "stream-row-first",
            one_port(single_beats, row_first),
            [0.9917, 0.9277],
            "",
            sixty_four,
        ),
        ("random-32b", one_port(random_beats), [0.2666, 0.2657], "single", sixty_four),
        ("random-64b", one_port(random_beats, run=2), [0.5252, 0.5283], "single", sixty_four),
        ("reads-writes-2-1", one_port(two_to_one), [0.8351, 0.8789], "mixed", sixty_four),
        (
            "stream-all-bank-8g",
            one_port(single_beats),
            [0.8874, 0.855],
            "sequential",
            all_bank,
        ),
        ("stream-per-bank-8g", one_port(single_beats), [0.8664], "sequential", per_bank),
    ]
    patterns = []
    for name, build, values, band, options in table:
        spread = BANDS.get(band)
        low, high = min(values), max(values)
        patterns.append(
            Pattern(
                name=name,
                timing="hbm4-8g",
                build=build,
                expected=low if band else None,
                low=low * (1 - spread) if spread else 0.0,
                source="Ramulator 2.1, DRAMsim3" if band else "measured",
                arithmetic=" / ".join(f"{100 * v:.2f} %" for v in values)
                + (
                    f", band {100 * spread:.0f} %: {100 * low * (1 - spread):.2f} to "
                    f"{100 * min(1, high * (1 + spread)):.2f} %"
                    if spread
                    else ""
                ),
                options=options,
            )
        )
    t = HbmTiming.preset("hbm4-8g")
    for requests, value in ((8, 0.685), (16, 0.75), (32, 0.921), (64, 0.999), (96, None)):
        bound = closed_forms.outstanding(t, requests, CONTROLLER_CLOCKS)
        reference = "" if value is None else f"; Ramulator 2.1: {100 * value:.1f} %"
        patterns.append(
            Pattern(
                name=f"outstanding-{requests}",
                timing="hbm4-8g",
                build=one_port(single_beats),
                expected=None,
                source="measured",
                arithmetic=f"{bound.arithmetic} = {100 * bound.value:.1f} %{reference}",
                options=PlayOptions(outstanding=requests),
            )
        )
    return patterns
