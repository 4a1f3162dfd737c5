"""Reading what cocotb and the testbench left behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True)
class Outcome:
    """One cocotb test's result.

    Parameters
    ----------
    name
        `module.function`.
    status
        `passed`, `failed` or `skipped`.
    message
        Why it failed: the exception's type and text; empty when it did not.
    sim_ns
        Simulated time (ns).
    """

    name: str
    status: str
    message: str = ""
    sim_ns: float = 0.0


def read_results(path: Path) -> list[Outcome]:
    """Return every test of a JUnit results file; [] when the file is missing or not whole."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return []
    return [_outcome(case) for case in root.iter("testcase")]


def _outcome(case: ElementTree.Element) -> Outcome:
    name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    sim_ns = float(properties.get("sim_time_duration") or 0)
    bad = next((child for child in case if child.tag in ("failure", "error")), None)
    if bad is not None:
        return Outcome(name, "failed", _reason(bad), sim_ns)
    if any(child.tag == "skipped" for child in case):
        return Outcome(name, "skipped")
    return Outcome(name, "passed", sim_ns=sim_ns)


def _reason(bad: ElementTree.Element) -> str:
    """Return the exception's type and the first line of its text; the log has the rest."""
    kind = bad.get("type") or ""
    lines = [line.strip() for line in (bad.get("message") or "").splitlines() if line.strip()]
    # Where the exception has no text of its own cocotb writes the traceback in its place.
    text = lines[0] if lines and not lines[0].startswith("Traceback") else ""
    return ": ".join(filter(None, (kind, text))) or "failed without a message"
