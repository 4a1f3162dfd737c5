"""From an Amaranth component to Verilog, with a description of its ports.

The text is a function of the component and the tools' versions alone: no source locations, no
machine's paths, the same bytes for any `PYTHONHASHSEED`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from amaranth.back import verilog as _verilog
from amaranth.hdl import Const, Shape, ShapeCastable, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import data, wiring

from pequin.errors import ConfigError

LIBRARY = ("pequin_ram", "hbm_player", "packet_mailbox")
"""Hand-written Verilog modules, each a file `pequin/verilog/NAME.v`."""


@dataclass(frozen=True)
class Field:
    """One field of a port's payload.

    Parameters
    ----------
    name
        Dotted path in the payload, array elements by number: `head.lane.3`.
    offset
        Position of its least significant bit in the port (bits).
    width
        Bits.
    signed
        Whether the bits are two's complement.
    """

    name: str
    offset: int
    width: int
    signed: bool


@dataclass(frozen=True)
class Port:
    """One port of the generated module.

    Parameters
    ----------
    name
        Its name in Verilog.
    direction
        `input` or `output`, seen from the module.
    width
        Bits.
    signed
        Whether the value is two's complement; Verilog's port is unsigned in any case.
    stream
        The stream it belongs to, or None.
    role
        `payload`, `valid` or `ready` of a stream, `clock`, `reset`, or `signal`.
    fields
        Leaves of a structured payload, least significant first; empty for a plain value.
    """

    name: str
    direction: str
    width: int
    signed: bool = False
    stream: str | None = None
    role: str = "signal"
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Design:
    """Verilog text and what a testbench needs to know about it.

    Parameters
    ----------
    top
        Name of the top module.
    verilog
        The whole text, hand-written library modules included.
    ports
        The top module's ports: clock and reset first, then in the component's order.
    """

    top: str
    verilog: str
    ports: tuple[Port, ...]

    def port(self, name: str) -> Port:
        """Return the port called `name`; raises `KeyError` when there is none."""
        for port in self.ports:
            if port.name == name:
                return port
        raise KeyError(name)

    def describe(self) -> dict[str, Any]:
        """Return the ports as plain data for the JSON file beside the Verilog."""
        return {"top": self.top, "ports": [asdict(port) for port in self.ports]}


def library_text(name: str) -> str:
    """Return the text of one hand-written Verilog module of `LIBRARY`."""
    return (resources.files("pequin") / "verilog" / f"{name}.v").read_text(encoding="utf-8")


def elaborate(component: wiring.Component, name: str) -> Design:
    """Convert a component to Verilog.

    Parameters
    ----------
    component
        Any `wiring.Component`. Ports of zero width are left out.
    name
        Name of the top module, a plain Verilog identifier.

    Raises
    ------
    ConfigError
        `name` is no identifier.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ConfigError(f"the top module's name must be a Verilog identifier, not {name!r}")
    members = list(_members(component))
    ports = {port.name: (value, _DIRECTIONS[port.direction]) for port, value in members}
    text = _convert(component, ports, name)
    header = re.search(rf"^module {name}\((.*?)\);", text, re.MULTILINE | re.DOTALL)
    assert header is not None, "the converter wrote no top module"
    # A name that is a keyword of SystemVerilog, such as `final`, is written with a backslash.
    found = {item.strip().removeprefix("\\") for item in header.group(1).split(",")}
    clocks = tuple(
        Port(port, "input", 1, role=role)
        for port, role in (("clk", "clock"), ("rst", "reset"))
        if port in found and port not in ports
    )
    design_ports = clocks + tuple(port for port, _ in members)
    unexpected = found - {port.name for port in design_ports}
    assert not unexpected, f"ports without a description: {sorted(unexpected)}"
    return Design(name, _with_library(text), design_ports)


_DIRECTIONS = {"input": PortDirection.Input, "output": PortDirection.Output}


def _convert(component: wiring.Component, ports: dict[str, Any], name: str) -> str:
    """Run Amaranth's back end with the Yosys it ships, whatever the caller's environment says."""
    before = os.environ.get("AMARANTH_USE_YOSYS")
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    try:
        text = _verilog.convert(
            component, name, ports=ports, emit_src=False, strip_internal_attrs=True
        )
    finally:
        if before is None:
            del os.environ["AMARANTH_USE_YOSYS"]
        else:
            os.environ["AMARANTH_USE_YOSYS"] = before
    assert isinstance(text, str)
    return text


def _with_library(text: str) -> str:
    used = [name for name in LIBRARY if re.search(rf"^\s*{name}\s+(#\(|\S+ \()", text, re.M)]
    return "\n".join([text.rstrip() + "\n", *(library_text(name) for name in used)])


def _members(component: wiring.Component) -> Iterator[tuple[Port, Value]]:
    """Yield each port with its value, in the order of the signature."""
    signature = component.signature
    streams = {path: True for path in _stream_paths(signature)}
    for path, member, port in signature.flatten(component):
        value = Value.cast(port)
        if not len(value) or isinstance(value, Const):  # an always-ready stream's constant
            continue
        stream = path[:-1] if path[:-1] in streams else None
        yield (
            Port(
                name=_join(path),
                direction="input" if member.flow == wiring.In else "output",
                width=len(value),
                signed=value.shape().signed,
                stream=None if stream is None else _join(stream),
                role=str(path[-1]) if stream is not None else "signal",
                fields=tuple(_fields(member.shape, "", 0)),
            ),
            value,
        )


def _join(path: tuple[str | int, ...]) -> str:
    return "__".join(map(str, path))


def _stream_paths(
    signature: wiring.Signature, prefix: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    for name, member in signature.members.items():
        if not member.is_signature:
            continue
        for index in _indices(member.dimensions):
            path = (*prefix, name, *index)
            if set(member.signature.members) == {"payload", "valid", "ready"}:
                yield path
            yield from _stream_paths(member.signature, path)


def _indices(dimensions: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not dimensions:
        yield ()
        return
    for index in range(dimensions[0]):
        for rest in _indices(dimensions[1:]):
            yield (index, *rest)


def _fields(shape: Any, prefix: str, offset: int) -> Iterator[Field]:
    """Yield the leaves of a layout; nothing for a plain shape at the top."""
    layout = _layout(shape)
    if layout is None:
        if prefix:
            plain = Shape.cast(shape)
            if plain.width:
                yield Field(prefix, offset, plain.width, plain.signed)
        return
    for key, field in layout:
        name = f"{prefix}.{key}" if prefix else str(key)
        yield from _fields(field.shape, name, offset + field.offset)


def _layout(shape: Any) -> data.Layout | None:
    """Return the layout behind a shape-castable, or None."""
    while isinstance(shape, ShapeCastable) and not isinstance(shape, data.Layout):
        shape = shape.as_shape()
    return shape if isinstance(shape, data.Layout) else None
