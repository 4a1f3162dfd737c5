"""The components that the command line knows by name.

A component's module is imported when it is built, so that listing the names costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from amaranth.lib import wiring

from pequin.config import TileParams
from pequin.errors import ConfigError


def _mac_array(params: TileParams) -> wiring.Component:
    from pequin.mac.array import MacArray

    return MacArray.from_params(params)


TOPS: dict[str, Callable[[TileParams], wiring.Component]] = {
    "mac-array": _mac_array,
}
"""From a name to what builds that component with a tile's parameters."""


def build_top(top: str, params: TileParams) -> wiring.Component:
    """Return the component called `top`.

    Raises
    ------
    ConfigError
        The name is unknown; the message lists the known ones.
    """
    if top not in TOPS:
        raise ConfigError(f"top {top!r} is unknown; choose one of {', '.join(TOPS)}")
    return TOPS[top](params)


def module_name(top: str) -> str:
    """Return the Verilog name of a top: `mac-array` becomes `mac_array`."""
    return top.replace("-", "_")
