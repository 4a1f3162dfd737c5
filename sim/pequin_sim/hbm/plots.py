"""The characterization as pictures: bandwidth bars and the latency-versus-load curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pequin.hbm.timing import HbmTiming
from pequin_sim.hbm.characterize import LoadPoint, Measured

BLUE, GREY, ORANGE = "#2f6690", "#9aa5b1", "#d1701a"


def _figure(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update(
        {
            "font.size": 9,
            "svg.hashsalt": "pequin",
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    return plt.subplots(figsize=(width, height), layout="constrained")


def _save(figure: Any, stem: Path) -> list[Path]:
    import matplotlib.pyplot as plt

    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=150, metadata=metadata)
    plt.close(figure)
    return paths


def bandwidth_chart(lines: Sequence[Measured], directory: Path) -> list[Path]:
    """Draw measured bandwidth against what is expected; return the files."""
    figure, axes = _figure(8, 0.3 * len(lines) + 1.4)
    places = range(len(lines))
    axes.barh(
        places,
        [100 * line.share for line in lines],
        color=BLUE,
        height=0.6,
        label="measured in RTL",
    )
    for place, line in zip(places, lines, strict=True):
        if line.pattern.expected is not None:
            expected = 100 * line.pattern.expected
            axes.plot(
                [expected, expected],
                [place - 0.42, place + 0.42],
                color=ORANGE,
                lw=2,
                label="expected" if place == 0 else None,
            )
        beside = 100 * max(line.share, line.pattern.expected or 0) + 1
        axes.text(beside, place, f"{100 * line.share:.1f}", va="center", fontsize=8)
    axes.set_yticks(places, [f"{line.pattern.name} ({line.pattern.timing})" for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(0, 108)
    axes.set_xlabel("share of peak bandwidth (%)")
    figure.suptitle("HBM channel: bandwidth by pattern", ha="left", x=0.01)
    figure.legend(loc="outside lower right", ncols=2, frameon=False)
    return _save(figure, directory / "hbm-bandwidth")


def latency_chart(points: Sequence[LoadPoint], timing: str, directory: Path) -> list[Path]:
    """Draw latency against load for random reads; return the files."""
    figure, axes = _figure(7, 4.2)
    colors = {"none": BLUE, "per-bank": ORANGE, "all-bank": GREY}
    for refresh in dict.fromkeys(point.refresh for point in points):
        mine = [point for point in points if point.refresh == refresh]
        load = [100 * point.achieved for point in mine]
        axes.plot(
            load,
            [p.mean_ns for p in mine],
            "o-",
            color=colors[refresh],
            ms=4,
            label=f"mean, refresh {refresh}",
        )
        axes.plot(
            load,
            [p.p99_ns for p in mine],
            "s--",
            color=colors[refresh],
            ms=4,
            mfc="white",
            label=f"99th percentile, refresh {refresh}",
        )
    preset = HbmTiming.preset(timing)
    bound = 400 / preset.clocks("faw")
    axes.axvline(bound, color=GREY, lw=1)
    axes.text(
        bound,
        0.98,
        "activate-window bound ",
        ha="right",
        va="top",
        color="#5a6572",
        rotation=90,
        transform=axes.get_xaxis_transform(),
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel(f"achieved bandwidth (% of {preset.peak_gbps:g} GB/s)")
    axes.set_ylabel("request to data (ns)")
    axes.set_title(f"Random 32 B reads, {timing}: latency against load", loc="left")
    axes.grid(axis="y", which="both", color="#e3e7eb", lw=0.5)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return _save(figure, directory / "hbm-latency")
