"""A user's own request trace: read as a stream, checked line by line, played, and summarized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pequin.config import BEAT_BYTES
from pequin.errors import InputError
from pequin.hbm.config import HbmConfig
from pequin_sim.hbm.play import PlayOptions, PlayResult, Request, play


def read_trace(path: Path, store_bytes: int) -> Iterator[Request]:
    """Yield the requests of a trace: `R 0xADDR` or `W 0xADDR`, and an optional earliest clock.

    Parameters
    ----------
    path
        The file; empty lines and lines that start with `#` are skipped.
    store_bytes
        Bytes of backing store; addresses must lie below.

    Raises
    ------
    InputError
        A line breaks the format; the message has its number.
    """
    try:
        lines = path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    earliest = 0
    found = False
    with lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            where = f"{path}:{number}"
            if len(words) not in (2, 3) or words[0] not in ("R", "W"):
                raise InputError(
                    f"{where}: a line is `R 0xADDR` or `W 0xADDR`, and an earliest clock if "
                    f"wanted, not {line.strip()[:60]!r}"
                )
            address = _number(words[1], 16, where, "a byte address in hexadecimal")
            if address % BEAT_BYTES:
                raise InputError(
                    f"{where}: address {words[1]} must be a multiple of {BEAT_BYTES}, the bytes "
                    "of a request"
                )
            if address >= store_bytes:
                raise InputError(
                    f"{where}: address {words[1]} lies past the store of {store_bytes} bytes; "
                    "set --store-mib"
                )
            if len(words) == 3:
                clock = _number(words[2], 10, where, "an earliest clock")
                if clock < earliest:
                    raise InputError(f"{where}: clock {clock} is earlier than {earliest} before it")
                earliest = clock
            found = True
            yield int(words[0] == "W"), address // BEAT_BYTES, 1, earliest
    if not found:
        raise InputError(f"{path} has no request")


def _number(text: str, base: int, where: str, what: str) -> int:
    try:
        value = int(text, base)
    except ValueError:
        raise InputError(f"{where}: {text!r} is not {what}") from None
    if value < 0:
        raise InputError(f"{where}: {text!r} must not be negative")
    return value


def run_trace(path: Path, config: HbmConfig, options: PlayOptions) -> dict[str, Any]:
    """Play a trace on one port and return its summary as plain data."""
    trace = read_trace(path, config.geometry.store_bytes)
    return summarize(config, play(config, [trace], options))


def summarize(config: HbmConfig, result: PlayResult) -> dict[str, Any]:
    """Return bandwidth, latency and causes of a run on port 0.

    Bandwidth counts from the first request's acceptance to the last response.
    """
    port, clock_ns = result.ports[0], config.timing.clock_ns
    beats = port.beats_read + port.beats_written
    clocks = max(1, port.last - port.first + 1)
    share = beats / clocks

    def ns(clocks_: float | None) -> float | None:
        return None if clocks_ is None else clocks_ * clock_ns

    return {
        "timing": config.timing.name,
        "requests": port.reads + port.acks,
        "reads": port.reads,
        "writes": port.acks,
        "clocks": clocks,
        "share": share,
        "gbps": share * config.timing.peak_gbps,
        "latency_ns": {
            "mean": ns(port.latency_mean),
            "p50": ns(port.percentile(0.5)),
            "p99": ns(port.percentile(0.99)),
            "max": ns(port.latency_max) if port.reads else None,
        },
        "row_hit_share": result.hit_share,
        "path_ns": config.path_clocks * clock_ns,
        "causes": dict(result.causes),
        "refreshes": result.events["refreshes"],
        "hung": bool(result.flags["hung"]),
    }
