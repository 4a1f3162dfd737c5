"""Run the characterization and judge it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pequin.hbm.config import HbmConfig
from pequin.hbm.timing import HbmTiming
from pequin_sim.hbm import closed_forms
from pequin_sim.hbm.patterns import (
    CONTROLLER_CLOCKS,
    MAP,
    STORE_BEATS,
    Pattern,
    oracle_patterns,
    random_beats,
    reference_patterns,
)
from pequin_sim.hbm.play import PlayOptions, PlayResult, Request, play

CONTROLLER_STEPS = (
    "request register",
    "scheduling window",
    "command register",
    "ECC",
    "return buffer and its output register",
)
"""The clocks that the controller adds to the device's latency, one each."""


@dataclass(frozen=True)
class Measured:
    """A pattern with its result.

    Parameters
    ----------
    pattern, result
        What was run and what came out.
    violations
        What the timing monitor found; empty in a good run.
    """

    pattern: Pattern
    result: PlayResult
    violations: Sequence[Any]

    @property
    def share(self) -> float:
        """Share of peak."""
        return self.result.share

    @property
    def unfairness(self) -> float:
        """Largest difference between the ports' shares, relative to the largest."""
        shares = port_shares(self.result)
        return (max(shares) - min(shares)) / max(shares) if shares else 0.0

    @property
    def passed(self) -> bool | None:
        """Whether the share is where it should be; None for a pattern that is only measured."""
        flags = self.result.flags
        broken = bool(self.violations) or any(flags[n] for n in ("hung", "fault", "late"))
        if broken or self.unfairness > (self.pattern.fair or 1.0):
            return False
        if self.pattern.expected is None:
            return None
        return self.pattern.low <= self.share <= self.pattern.high + 1e-9

    def to_json(self) -> dict[str, Any]:
        """Return the line as plain data."""
        p = self.pattern
        return {
            "name": p.name,
            "timing": p.timing,
            "refresh": p.options.refresh,
            "share": self.share,
            "gbps": self.share * HbmTiming.preset(p.timing).peak_gbps,
            "expected": p.expected,
            "low": p.low,
            "high": p.high,
            "source": p.source,
            "arithmetic": p.arithmetic,
            "pass": self.passed,
            "row_hit_share": self.result.hit_share,
            "causes": dict(self.result.causes),
            "port_shares": port_shares(self.result),
            "violations": len(self.violations),
        }


def port_shares(result: PlayResult) -> list[float]:
    """Return the part of the beats moved while counting of each port that had a request."""
    beats = [port.beats_read + port.beats_written for port in result.ports if port.first]
    total = sum(beats) or 1
    return [count / total for count in beats]


def config_for(timing: str, base: HbmConfig | None = None) -> HbmConfig:
    """Return the bench configuration of a timing preset: one build for all its patterns."""
    return (base or HbmConfig()).replace(timing=HbmTiming.preset(timing), test_rules=True)


def run_pattern(pattern: Pattern, *, monitor: bool = False) -> Measured:
    """Run one pattern in RTL."""
    warm, stop = pattern.window()
    options = dataclasses.replace(pattern.options, warm=warm, stop=stop, monitor=monitor)
    result = play(config_for(pattern.timing), pattern.build(stop), options)
    return Measured(pattern, result, result.testbench.get("violations", ()))


def all_patterns() -> list[Pattern]:
    """Return every pattern, the ones at 10 Gb/s first."""
    return [*reference_patterns(), *oracle_patterns()]


@dataclass(frozen=True)
class Latency:
    """One measured idle latency.

    Parameters
    ----------
    timing, state
        Preset, and `hit`, `closed` or `conflict`.
    request_clocks
        From the acceptance of the request to its data, measured (clocks).
    device_clocks, arithmetic
        From the first command to the last data, closed form.
    """

    timing: str
    state: str
    request_clocks: int
    device_clocks: int
    arithmetic: str

    @property
    def controller_clocks(self) -> int:
        """Clocks beyond the device's."""
        return self.request_clocks - self.device_clocks

    @property
    def passed(self) -> bool:
        """Whether the controller adds exactly the clocks that are listed."""
        return self.controller_clocks == CONTROLLER_CLOCKS

    def to_json(self) -> dict[str, Any]:
        """Return the line as plain data."""
        clock_ns = HbmTiming.preset(self.timing).clock_ns
        return {
            **dataclasses.asdict(self),
            "request_ns": self.request_clocks * clock_ns,
            "device_ns": self.device_clocks * clock_ns,
            "controller_clocks": self.controller_clocks,
            "pass": self.passed,
        }


def idle_requests() -> list[Request]:
    """Return three lone reads of one bank: closed, hit and conflict, far apart in time."""
    first = 0
    return [
        (0, first, 1, 100),
        (0, first + 2, 1, 400),
        (0, MAP.other_row(first, STORE_BEATS), 1, 700),
    ]


def measure_latency(timing: str) -> list[Latency]:
    """Measure the idle latency of a closed bank, a row hit and a row conflict."""
    result = play(config_for(timing), [idle_requests()], PlayOptions())
    lone = sorted(result.ports[0].histogram)
    states = ("hit", "closed", "conflict")
    measured = dict(zip(states, lone, strict=False))
    lines = []
    for state in states:
        form = closed_forms.latency(HbmTiming.preset(timing), state)
        lines.append(
            Latency(timing, state, measured.get(state, 0), int(form.value), form.arithmetic)
        )
    return lines


@dataclass(frozen=True)
class LoadPoint:
    """One point of the latency-versus-load curve.

    Parameters
    ----------
    refresh
        Refresh mode.
    offered, achieved
        Share of peak asked for and moved.
    mean_ns, p99_ns
        Read latency (ns).
    """

    refresh: str
    offered: float
    achieved: float
    mean_ns: float
    p99_ns: float


def load_curve(
    timing: str, shares: Sequence[float], refreshes: Sequence[str] = ("none", "per-bank")
) -> Iterator[LoadPoint]:
    """Measure random single-beat reads that arrive at even distances.

    Parameters
    ----------
    timing
        Preset.
    shares
        Loads, as shares of the activate-window bound of random reads.
    refreshes
        Refresh modes to measure.
    """
    preset = HbmTiming.preset(timing)
    bound = closed_forms.bursts_per_row(preset, 1).value
    warm, stop = preset.clocks("refi"), 4 * preset.clocks("refi")
    for refresh in refreshes:
        for share in shares:
            gap = 1 / (share * bound)
            paced = _paced(stop, gap)
            options = PlayOptions(refresh=refresh, warm=warm, stop=stop)
            result = play(config_for(timing), [paced], options)
            port = result.ports[0]
            yield LoadPoint(
                refresh,
                share * bound,
                result.share,
                (port.latency_mean or 0.0) * preset.clock_ns,
                (port.percentile(0.99) or 0) * preset.clock_ns,
            )


def _paced(stop: int, gap: float) -> Iterator[Request]:
    for index, (write, address, length, _) in enumerate(random_beats(int(stop / gap))):
        yield write, address, length, int(index * gap)
