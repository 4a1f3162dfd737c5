"""Play requests into the simulated channel and read back what the player measured."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from pequin.errors import ConfigError, ToolError
from pequin.export import Design, Field, Port, elaborate
from pequin.hbm.config import HbmConfig
from pequin.hbm.counters import CAUSES, EVENTS
from pequin_sim.runner import cache, simulate

Request = tuple[int, int, int, int]
"""Write (0 or 1), beat address, length (beats), earliest clock."""

REFRESH_MODES = ("none", "all-bank", "per-bank")

CAUSE_NAMES = tuple(name.removeprefix("hbm.clocks.") for name in CAUSES)
EVENT_NAMES = tuple(name.removeprefix("hbm.") for name in EVENTS)


@dataclass(frozen=True)
class PortResult:
    """What one port did while counting was on.

    Parameters
    ----------
    beats_read, beats_written
        Beats delivered and taken.
    reads, acks
        Read requests completed, writes acknowledged.
    latency_sum, latency_max
        From the offer of a read to its last beat (clocks).
    ack_sum
        From the offer of a write to its acknowledge (clocks).
    errors
        Error responses in the whole run.
    first, last
        Clocks of the first request accepted and of the last response.
    histogram
        Read latency (clocks) to number of requests.
    """

    beats_read: int
    beats_written: int
    reads: int
    acks: int
    latency_sum: int
    latency_max: int
    ack_sum: int
    errors: int
    first: int
    last: int
    histogram: Mapping[int, int]

    @property
    def latency_mean(self) -> float | None:
        """Mean read latency (clocks); None without reads."""
        return self.latency_sum / self.reads if self.reads else None

    def percentile(self, share: float) -> int | None:
        """Return the smallest latency that `share` of the reads do not exceed (clocks)."""
        seen = 0
        for latency in sorted(self.histogram):
            seen += self.histogram[latency]
            if seen >= share * self.reads:
                return latency
        return None


@dataclass(frozen=True)
class PlayResult:
    """What a run left.

    Parameters
    ----------
    clocks
        When it ended.
    causes, events
        Counted from `warm` to the end, by name; `totals` over the whole run, the end included.
    ports
        One result for each port.
    flags
        `hung`, `fault`, `late`, and the injected `singles` and `doubles`.
    testbench
        What the testbench reported: the monitor's verdict when commands were logged.
    """

    clocks: int
    causes: Mapping[str, int]
    events: Mapping[str, int]
    totals: Mapping[str, int]
    ports: tuple[PortResult, ...]
    flags: Mapping[str, int]
    testbench: Mapping[str, Any]

    @property
    def counted(self) -> int:
        """Clocks that were counted: the sum of the causes."""
        return sum(self.causes.values())

    @property
    def share(self) -> float:
        """Share of peak bandwidth: data clocks over counted clocks."""
        return self.causes["data"] / self.counted if self.counted else 0.0

    @property
    def hit_share(self) -> float:
        """Share of column commands that found their row open."""
        columns = self.events["reads"] + self.events["writes"]
        return max(0.0, 1 - self.events["activates"] / columns) if columns else 0.0


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """How a run is driven; see `rtl/pequin/verilog/hbm_player.v`.

    Parameters
    ----------
    refresh
        One of `REFRESH_MODES`.
    outstanding
        Requests in flight per port.
    warm, stop
        Clock at which counting starts; clock at which the run ends (0: when all is done).
    pause
        Of 256 clocks, how many a stream rests, at random.
    single, double
        One of so many read beats gets one / two bits inverted (0: none).
    broken
        Index of the rule the controller breaks (test only).
    hang
        Clocks without progress that end the run.
    monitor
        Log the commands and let the testbench's monitor judge them.
    log
        File for the responses, or None.
    images
        RAM plusargs by name: `hbm.load`, `hbm.dump`, `hbm.ecc.load`, `hbm.ecc.dump`.
    """

    refresh: str = "none"
    outstanding: int = 1024
    warm: int = 0
    stop: int = 0
    pause: int = 0
    single: int = 0
    double: int = 0
    broken: int = 0
    hang: int = 20000
    monitor: bool = False
    log: Path | None = None
    images: Mapping[str, Path] = field(default_factory=dict)

    def plusargs(self) -> list[str]:
        """Return the numbers and images as plusargs."""
        if self.refresh not in REFRESH_MODES:
            raise ConfigError(f"refresh must be one of {REFRESH_MODES}, not {self.refresh!r}")
        args = [f"+refresh={REFRESH_MODES.index(self.refresh)}"]
        names = ("outstanding", "warm", "stop", "pause", "single", "double", "broken")
        args += [f"+{name}={getattr(self, name)}" for name in (*names, "hang")]
        args += [f"+{name}={path}" for name, path in self.images.items()]
        if self.log is not None:
            args.append(f"+log={self.log}")
        return args


def bench_design(config: HbmConfig, cache_dir: Path | None = None) -> Design:
    """Return the bench of a configuration as Verilog, kept in the build cache.

    Converting takes ten seconds, so the text is kept under a hash of the configuration and of
    every source file it is made from.
    """
    root = cache.cache_root(cache_dir)
    key = cache.digest(
        {
            "kind": "hbm-bench",
            "config": asdict(config),
            "sources": _sources_digest(),
            "amaranth": metadata.version("amaranth"),
        }
    )

    def build(directory: Path) -> None:
        from pequin.hbm.bench import HbmBench

        design = elaborate(HbmBench(config), "hbm_bench")
        (directory / "design.json").write_text(
            json.dumps({"verilog": design.verilog, **design.describe()})
        )

    directory, _ = cache.obtain(root, key, build)
    stored = json.loads((directory / "design.json").read_text())
    ports = tuple(
        Port(**{**port, "fields": tuple(Field(**f) for f in port["fields"])})
        for port in stored["ports"]
    )
    return Design(stored["top"], stored["verilog"], ports)


def _sources_digest() -> str:
    digest = hashlib.sha256()
    package = resources.files("pequin")
    for directory in (package, package / "hbm", package / "verilog"):
        for entry in sorted(directory.iterdir(), key=lambda e: e.name):
            if entry.is_file() and entry.name.endswith((".py", ".v")):
                digest.update(entry.name.encode())
                digest.update(entry.read_bytes())
    return digest.hexdigest()


def play(
    config: HbmConfig,
    requests: Sequence[Iterable[Request]],
    options: PlayOptions,
    *,
    design: Design | None = None,
) -> PlayResult:
    """Run requests through the simulated channel.

    Parameters
    ----------
    config
        The channel; its `test_rules` must be set when a rule is to be broken.
    requests
        For each port its requests; they are written to files one by one.
    options
        How to drive and what to record.
    design
        Another memory's bench with the same ports; the default is the channel's.

    Raises
    ------
    ToolError
        The simulation left no result.
    """
    if len(requests) > config.requesters:
        raise ConfigError(f"{len(requests)} request lists for {config.requesters} ports")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pequin-hbm-")))
        args = options.plusargs()
        for port, lines in enumerate(requests):
            path = directory / f"port{port}"
            write_requests(path, lines)
            args.append(f"+port{port}={path}")
        design = design or bench_design(config)
        result = directory / "result"
        args.append(f"+result={result}")
        order: dict[str, Any] = {}
        if options.monitor:
            args.append(f"+commands={directory / 'commands'}")
            order = {
                "commands": str(directory / "commands"),
                "timing": asdict(config.timing),
                "refresh": options.refresh,
                "postpone": config.postpone,
                "clocks": options.stop,
            }
        done = simulate(
            design, test_module="pequin_tb.hbm.play", testcase="play", job=order, plusargs=args
        )
        if not result.exists():
            raise ToolError("the simulated player wrote no result: " + done.log[-500:])
        return _parse(result, config.requesters, done.result or {})


def write_requests(path: Path, requests: Iterable[Request]) -> None:
    """Write a request file for the player, one request at a time."""
    with path.open("w") as lines:
        for write, address, length, earliest in requests:
            lines.write(f"{write:x} {address:x} {length:x} {earliest:x}\n")


def _parse(path: Path, ports: int, testbench: Mapping[str, Any]) -> PlayResult:
    values: dict[str, int] = {}
    for line in path.read_text().splitlines():
        name, value = line.split()
        values[name] = int(value)
    results = []
    fields = [name for name in PortResult.__dataclass_fields__ if name != "histogram"]
    for port in range(ports):
        prefix = f"port{port}.bin."
        histogram = {
            int(name.removeprefix(prefix)): count
            for name, count in values.items()
            if name.startswith(prefix)
        }
        numbers = {name: values[f"port{port}.{name}"] for name in fields}
        results.append(PortResult(**numbers, histogram=histogram))
    return PlayResult(
        clocks=values["clocks"],
        causes={name: values[f"cause.{i}"] for i, name in enumerate(CAUSE_NAMES)},
        events={name: values[f"event.{i}"] for i, name in enumerate(EVENT_NAMES)},
        totals={name: values[f"total.{i}"] for i, name in enumerate(EVENT_NAMES)},
        ports=tuple(results),
        flags={name: values[name] for name in ("hung", "fault", "late", "singles", "doubles")},
        testbench=testbench,
    )
