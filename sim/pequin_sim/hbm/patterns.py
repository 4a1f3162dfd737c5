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
    fair
        Largest difference between the ports' shares, relative to the largest; None: any.
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
    fair: float | None = None
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


REFERENCE = "hbm4-10g"
ORACLE = "hbm4-8g"


def reference_patterns() -> list[Pattern]:
    """Return the patterns at 10 Gb/s, against closed forms and this project's own targets."""
    timing = HbmTiming.preset(REFERENCE)
    window = closed_forms.bursts_per_row(timing, 1)
    return [
        *_streams(timing),
        *_bursts(timing),
        *_three_readers(),
        *_mixes(timing),
        Pattern(
            name="random",
            timing=REFERENCE,
            build=one_port(random_beats),
            expected=window.value,
            low=0.97 * window.value,
            source="activate-window bound",
            arithmetic=window.arithmetic,
            options=PlayOptions(outstanding=64),
        ),
    ]


def _streams(timing: HbmTiming) -> Iterator[Pattern]:
    """Yield one reader under each refresh policy."""
    drained = closed_forms.all_bank_refresh(timing)
    full = closed_forms.Form(1.0, "one beat a clock")
    hidden = closed_forms.Form(1.0, "refresh hidden: one beat a clock")
    for name, form, low, refresh in (
        ("stream", full, 0.995, "none"),
        ("stream-all-bank", drained, 0.87, "all-bank"),
        ("stream-per-bank", hidden, 0.98, "per-bank"),
    ):
        yield Pattern(
            name=name,
            timing=REFERENCE,
            build=one_port(long_reads),
            expected=form.value,
            low=low,
            source="closed form",
            arithmetic=form.arithmetic,
            options=PlayOptions(refresh=refresh),
        )


def _bursts(timing: HbmTiming) -> Iterator[Pattern]:
    """Yield a few beats of each newly activated row, against an independent simulator."""
    for count, share in ((1, 0.211), (2, 0.421), (3, 0.631), (4, 0.841), (8, 0.999)):
        yield Pattern(
            name=f"bursts-{count}",
            timing=REFERENCE,
            build=one_port(bursts, count),
            expected=share,
            low=share - 0.01,
            high=min(1.0, share + 0.01),
            source="Ramulator 2; closed form",
            arithmetic=closed_forms.bursts_per_row(timing, count).arithmetic,
        )


def _three_readers() -> Iterator[Pattern]:
    """Yield three concurrent sequential readers, at unrelated places and starting in one bank."""
    unrelated = [0, STORE_BEATS // 3 // CHUNK * CHUNK + 17, STORE_BEATS * 2 // 3 + 5 * CHUNK]
    yield Pattern(
        name="readers-unrelated",
        timing=REFERENCE,
        build=_readers(unrelated),
        expected=1.0,
        low=0.95,
        fair=0.02,
        source="target",
        arithmetic="three readers, one beat a clock in total",
    )
    yield Pattern(
        name="readers-same-bank",
        timing=REFERENCE,
        build=_readers(same_bank_starts()),
        expected=None,
        fair=0.02,
        source="measured",
        arithmetic="three readers starting in one bank",
    )


def _mixes(timing: HbmTiming) -> Iterator[Pattern]:
    """Yield reads and writes of one requester at three ratios."""
    for percent, low in ((90, 0.88), (75, 0.72), (50, 0.65)):
        form = closed_forms.mix(timing, percent, 64)
        yield Pattern(
            name=f"reads-{percent}",
            timing=REFERENCE,
            build=one_port(mixed_streams, percent),
            expected=form.value,
            low=low,
            source="closed form, 64-beat batches",
            arithmetic=form.arithmetic,
            options=PlayOptions(refresh="per-bank"),
        )


BANDS = {"single": 0.03, "sequential": 0.07, "mixed": 0.15}
"""How far the two reference simulators disagree with each other, by class of pattern."""


def oracle_patterns() -> list[Pattern]:
    """Return the patterns at 8 Gb/s, against the two independent simulators."""
    singles = one_port(single_beats)
    table: list[tuple[str, Build, list[float], str, str]] = [
        ("stream-interleaved", singles, [0.9997, 0.9588], "sequential", "none"),
        ("stream-row-first", one_port(single_beats, row_first), [0.9917, 0.9277], "", "none"),
        ("random-32b", one_port(random_beats), [0.2666, 0.2657], "single", "none"),
        ("random-64b", one_port(random_beats, run=2), [0.5252, 0.5283], "single", "none"),
        ("reads-writes-2-1", one_port(two_to_one), [0.8351, 0.8789], "mixed", "none"),
        ("stream-all-bank-8g", singles, [0.8874, 0.855], "sequential", "all-bank"),
        ("stream-per-bank-8g", singles, [0.8664], "sequential", "per-bank"),
    ]
    patterns = [_against_oracle(*line) for line in table]
    timing = HbmTiming.preset(ORACLE)
    for requests, value in ((8, 0.685), (16, 0.75), (32, 0.921), (64, 0.999), (96, None)):
        bound = closed_forms.outstanding(timing, requests, CONTROLLER_CLOCKS)
        reference = "" if value is None else f"; Ramulator 2.1: {100 * value:.1f} %"
        patterns.append(
            Pattern(
                name=f"outstanding-{requests}",
                timing=ORACLE,
                build=singles,
                expected=None,
                source="measured",
                arithmetic=f"{bound.arithmetic} = {100 * bound.value:.1f} %{reference}",
                options=PlayOptions(outstanding=requests),
            )
        )
    return patterns


def _against_oracle(
    name: str, build: Build, values: list[float], band: str, refresh: str
) -> Pattern:
    """Return a pattern judged by the simulators' values and the band of its class."""
    arithmetic = " / ".join(f"{100 * value:.2f} %" for value in values)
    low, expected = 0.0, None
    if band:
        spread, expected = BANDS[band], min(values)
        low = expected * (1 - spread)
        high = min(1.0, max(values) * (1 + spread))
        arithmetic += f", band {100 * spread:.0f} %: {100 * low:.2f} to {100 * high:.2f} %"
    return Pattern(
        name=name,
        timing=ORACLE,
        build=build,
        expected=expected,
        low=low,
        source="Ramulator 2.1, DRAMsim3" if band else "measured",
        arithmetic=arithmetic,
        options=PlayOptions(outstanding=64, refresh=refresh),
    )
