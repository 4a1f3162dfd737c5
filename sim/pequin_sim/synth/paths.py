"""nextpnr's timing paths in names that a person finds in the source."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pequin.errors import ToolError

_MADE_UP = re.compile(
    r"_(?:TRELLIS_FF|TRELLIS_DPR16X4|LUT4|CCU2C|PFUMX|L6MUX21|MULT18X18D|DP16KD|PDPW16KD)_.*$"
    r"|\$.*$"
)
"""What Yosys appends to a signal's name for the cells and wires around it."""


@dataclass(frozen=True)
class Step:
    """A stretch of a path inside one named part of the design.

    Parameters
    ----------
    name
        Dotted instance path and signal.
    cells
        Cells passed, a run of a carry chain counted as one.
    logic_ns, routing_ns
        Delay in cells and in wires.
    """

    name: str
    cells: int
    logic_ns: float
    routing_ns: float


@dataclass(frozen=True)
class TimingPath:
    """A path from one register to another.

    Parameters
    ----------
    start, end
        The registers.
    logic_ns, routing_ns
        Delay in cells (clock-to-output and setup included) and in wires.
    levels
        Look-up tables, multipliers and memories between the registers; a carry chain counts as
        one.
    steps
        The path's stretches in order.
    """

    start: str
    end: str
    logic_ns: float
    routing_ns: float
    levels: int
    steps: tuple[Step, ...]

    @property
    def total_ns(self) -> float:
        """The path's delay (ns)."""
        return self.logic_ns + self.routing_ns

    def to_plain(self) -> dict[str, Any]:
        """Return the path as plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TimingPath:
        """Return the path that `to_plain` described."""
        steps = tuple(Step(**step) for step in plain["steps"])
        return cls(**{**plain, "steps": steps})


@dataclass(frozen=True)
class Endpoint:
    """A register (all its bits) and when its data arrive at the latest.

    Parameters
    ----------
    name
        The register.
    arrival_ns
        From the clock edge to the end of its setup time (ns).
    """

    name: str
    arrival_ns: float

    def to_plain(self) -> dict[str, Any]:
        """Return the endpoint as plain data."""
        return dataclasses.asdict(self)


def readable(name: str) -> str:
    """Return the part of a cell's or wire's name that comes from the source.

    Yosys names a cell after the signal it drives or is driven by and appends what it is; memory
    cells end in their place in the array (`.0.1`), and a wire may carry a bit index.
    """
    plain = _MADE_UP.sub("", name)
    plain = re.sub(r"(?:\.\d+)+(?:_[A-Z]+\d*)?$", "", plain)
    return re.sub(r"\[\d+\]$", "", plain) or name


def slowest_path(paths: Sequence[Mapping[str, Any]]) -> TimingPath:
    """Return the slowest path between two registers of one clock.

    Parameters
    ----------
    paths
        `critical_paths` of nextpnr's report; paths from and to ports are passed over.

    Raises
    ------
    ToolError
        There is none.
    """
    found = [
        path["path"]
        for path in paths
        if path["from"] == path["to"] and not path["from"].startswith("<")
    ]
    if not found:
        raise ToolError("nextpnr reports no path between two registers")
    return _describe(max(found, key=_delay))


def _delay(path: Sequence[Mapping[str, Any]]) -> float:
    return sum(segment["delay"] for segment in path)


def _describe(path: Sequence[Mapping[str, Any]]) -> TimingPath:
    steps: list[Step] = []
    levels = 0
    in_chain = False
    for segment in path:
        routed = segment["type"] == "routing"
        name = readable(segment["net"] if routed else segment["from"]["cell"])
        chained = not routed and segment["from"]["port"] == "FCI"
        cell = segment["type"] == "logic" and not (chained and in_chain)
        if segment["type"] == "logic":
            in_chain = segment["to"]["port"] == "FCO"
        levels += cell
        delay = segment["delay"]
        step = Step(name, int(cell), 0.0 if routed else delay, delay if routed else 0.0)
        if steps and steps[-1].name == name:
            step = _join(steps.pop(), step)
        steps.append(step)
    return TimingPath(
        start=readable(path[0]["from"]["cell"]),
        end=readable(path[-1]["to"]["cell"]),
        logic_ns=round(sum(s["delay"] for s in path if s["type"] != "routing"), 3),
        routing_ns=round(sum(s["delay"] for s in path if s["type"] == "routing"), 3),
        levels=levels,
        steps=tuple(
            dataclasses.replace(
                step, logic_ns=round(step.logic_ns, 3), routing_ns=round(step.routing_ns, 3)
            )
            for step in steps
        ),
    )


def _join(first: Step, second: Step) -> Step:
    return Step(
        first.name,
        first.cells + second.cells,
        first.logic_ns + second.logic_ns,
        first.routing_ns + second.routing_ns,
    )


def slowest_registers(nets: Iterable[Mapping[str, Any]], count: int = 12) -> list[Endpoint]:
    """Return the registers whose data arrive last, the latest first.

    Parameters
    ----------
    nets
        `detailed_net_timings` of nextpnr's report.
    count
        How many.
    """
    latest: dict[str, float] = {}
    for net in nets:
        for end in net["endpoints"]:
            name = readable(end["cell"])
            latest[name] = max(latest.get(name, 0.0), end["delay"][1])
    ranked = sorted(latest.items(), key=lambda item: (-item[1], item[0]))
    return [Endpoint(name, round(delay, 3)) for name, delay in ranked[:count]]
