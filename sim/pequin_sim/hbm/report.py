"""Tables that people read: timings, characterization, traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pequin.hbm.config import HbmConfig
from pequin.hbm.counters import CAUSES
from pequin.hbm.timing import TIMING_FIELDS, HbmTiming
from pequin_sim.hbm.characterize import CONTROLLER_STEPS, Latency, Measured, port_shares

MEANINGS = {
    "cl": "read command to data",
    "cwl": "write command to data",
    "rcd_rd": "activate to read",
    "rcd_wr": "activate to write",
    "rp": "precharge to activate",
    "ras": "activate to precharge",
    "rc": "activate to activate, same bank",
    "rrd_s": "activate to activate, other group",
    "rrd_l": "activate to activate, same group",
    "faw": "four-activate window",
    "ccd_s": "column to column, other group",
    "ccd_l": "column to column, same group",
    "wr": "end of write data to precharge",
    "wtr_s": "end of write data to read, other group",
    "wtr_l": "end of write data to read, same group",
    "rtp": "read to precharge",
    "rtw": "read to write",
    "rfc": "all-bank refresh",
    "rfc_pb": "per-bank refresh",
    "rrefd": "per-bank refresh to refresh or activate, other bank",
    "refi": "refresh interval",
}


def timing_table(timing: HbmTiming) -> Table:
    """Return the timings of a preset in ns and in tile clocks."""
    title = (
        f"{timing.name}: {timing.rate_gbps:g} Gb/s per pin, tile clock {timing.clock_ghz:g} GHz "
        f"({timing.clock_ns:g} ns), peak {timing.peak_gbps:g} GB/s"
    )
    table = Table(title=title, caption=f"Source: {timing.source}", title_justify="left")
    table.add_column("timing")
    table.add_column("ns", justify="right")
    table.add_column("clocks", justify="right")
    table.add_column("clocks in ns", justify="right")
    table.add_column("meaning")
    for name in TIMING_FIELDS:
        ns, clocks = getattr(timing, name), timing.clocks(name)
        table.add_row(
            f"t{name.upper()}",
            f"{ns:g}",
            str(clocks),
            f"{clocks * timing.clock_ns:g}",
            MEANINGS[name],
        )
    return table


def timing_json(timing: HbmTiming, config: HbmConfig) -> dict[str, Any]:
    """Return a preset and a geometry as plain data."""
    geometry = config.geometry
    return {
        "name": timing.name,
        "source": timing.source,
        "clock_ghz": timing.clock_ghz,
        "peak_gbps": timing.peak_gbps,
        "ns": {name: getattr(timing, name) for name in TIMING_FIELDS},
        "clocks": timing.table(),
        "geometry": {
            "banks": geometry.banks,
            "groups": geometry.groups,
            "rows": geometry.rows,
            "columns": geometry.columns,
            "capacity_bytes": geometry.capacity_bytes,
            "store_bytes": geometry.store_bytes,
            "address_map": config.address_map,
        },
        "path_clocks": config.path_clocks,
    }


def verdict(passed: bool | None) -> str:
    """Return pass, FAIL, or measured."""
    return {True: "[green]pass[/]", False: "[bold red]FAIL[/]", None: "measured"}[passed]


def pattern_table(lines: Sequence[Measured]) -> Table:
    """Return one row for each pattern, with the arithmetic."""
    table = Table(title="Share of peak bandwidth, measured in RTL simulation", title_justify="left")
    for name, justify in (
        ("pattern", "left"),
        ("timing", "left"),
        ("refresh", "left"),
        ("measured %", "right"),
        ("expected %", "right"),
        ("difference", "right"),
        ("needs %", "right"),
        ("", "left"),
        ("expected from", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for line in lines:
        p = line.pattern
        expected = "" if p.expected is None else f"{100 * p.expected:.2f}"
        difference = "" if p.expected is None else f"{100 * (line.share - p.expected):+.2f}"
        needs = "" if p.expected is None else f"{100 * p.low:.2f}"
        if p.high < 1:
            needs += f" to {100 * p.high:.2f}"
        table.add_row(
            p.name,
            p.timing,
            p.options.refresh,
            f"{100 * line.share:.2f}",
            expected,
            difference,
            needs,
            verdict(line.passed),
            f"{p.source}: {p.arithmetic}",
        )
        shares = port_shares(line.result)
        if len(shares) > 1:
            text = ", ".join(f"{100 * share:.2f}" for share in shares)
            table.add_row("", "", "", "", "", "", "", "", f"shares of the ports: {text} %")
    return table


def latency_table(lines: Sequence[Latency]) -> Table:
    """Return the idle latencies with the controller's clocks."""
    table = Table(
        title="Latency of a lone read",
        caption="Controller: " + ", ".join(f"{step} 1" for step in CONTROLLER_STEPS),
        title_justify="left",
    )
    for name in (
        "timing",
        "bank",
        "device ns",
        "request to data ns",
        "controller clocks",
        "",
        "device",
    ):
        table.add_column(name)
    for line in lines:
        data = line.to_json()
        table.add_row(
            line.timing,
            line.state,
            f"{data['device_ns']:.1f}",
            f"{data['request_ns']:.1f}",
            str(line.controller_clocks),
            verdict(line.passed),
            line.arithmetic,
        )
    return table


def trace_table(name: str, summary: Mapping[str, Any]) -> Table:
    """Return a trace's summary."""
    table = Table(title=f"{name} on {summary['timing']}", title_justify="left", show_header=False)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_row(
        "requests (reads, writes)",
        f"{summary['requests']} ({summary['reads']}, {summary['writes']})",
    )
    table.add_row("elapsed", f"{summary['clocks']} clocks")
    table.add_row("bandwidth", f"{summary['gbps']:.3f} GB/s")
    table.add_row("share of peak", f"{100 * summary['share']:.2f} %")
    table.add_row("row hits", f"{100 * summary['row_hit_share']:.2f} %")
    for key, value in summary["latency_ns"].items():
        table.add_row(f"read latency {key}", "-" if value is None else f"{value:.1f} ns")
    if summary["path_ns"]:
        table.add_row("of which extra path", f"{summary['path_ns']:.1f} ns")
    total = sum(summary["causes"].values()) or 1
    for cause, clocks in summary["causes"].items():
        meaning = CAUSES[f"hbm.clocks.{cause}"].split(" (")[0]
        table.add_row(f"clocks {cause}: {meaning}", f"{clocks} ({100 * clocks / total:.1f} %)")
    return table
