"""The one large memory: an Amaranth face on the hand-written Verilog module `pequin_ram`."""

from __future__ import annotations

import re

from amaranth.hdl import ClockSignal, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError


class Ram(wiring.Component):
    """Simple dual-port RAM that synthesis tools infer and a simulation can load from a file.

    *Timing*: `read_data` shows the word one clock after `read_en` and holds it while `read_en` is
    low. A write is visible to reads of later clocks. Reading the address that is written in the
    same clock gives the old word in simulation and is undefined in hardware: avoid or bypass it.
    There is no reset; a simulation starts with zeros.

    *Files*: in simulation, plusarg `+NAME.load=FILE` fills the memory before the first clock and
    `+NAME.dump=FILE` writes it at the end (`pequin_sim.images` reads and writes these files).
    The module exists in Verilog only: Amaranth's Python simulator cannot run it.

    Parameters
    ----------
    width
        Bits of a word, at least 1.
    depth
        Words, at least 2.
    name
        Names the plusargs: letters, digits, `_` and `.`. Unique in a design.

    Members
    -------
    read_en, read_addr, read_data
        Read port.
    write_en, write_addr, write_data
        Write port.

    Raises
    ------
    ConfigError
        A size is too small or the name has other characters.
    """

    read_en: Signal
    read_addr: Signal
    read_data: Signal
    write_en: Signal
    write_addr: Signal
    write_data: Signal

    def __init__(self, *, width: int, depth: int, name: str) -> None:
        if width < 1:
            raise ConfigError(f"a RAM's width must be at least 1 bit, not {width}")
        if depth < 2:
            raise ConfigError(f"a RAM's depth must be at least 2 words, not {depth}")
        if not re.fullmatch(r"[A-Za-z0-9_.]+", name):
            raise ConfigError(f"a RAM's name may hold letters, digits, '_' and '.', not {name!r}")
        self._width = width
        self._depth = depth
        self._name = name
        addr_width = (depth - 1).bit_length()
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(addr_width),
                "read_data": Out(width),
                "write_en": In(1),
                "write_addr": In(addr_width),
                "write_data": In(width),
            }
        )

    @property
    def width(self) -> int:
        """Bits of a word."""
        return self._width

    @property
    def depth(self) -> int:
        """Words."""
        return self._depth

    @property
    def name(self) -> str:
        """What the plusargs call it."""
        return self._name

    def elaborate(self, platform: object) -> Module:
        """Instantiate `pequin_ram`."""
        m = Module()
        m.submodules.ram = Instance(
            "pequin_ram",
            p_WIDTH=self._width,
            p_DEPTH=self._depth,
            p_ADDR_WIDTH=(self._depth - 1).bit_length(),
            p_NAME=self._name,
            i_clk=ClockSignal(),
            i_read_en=self.read_en,
            i_read_addr=self.read_addr,
            o_read_data=self.read_data,
            i_write_en=self.write_en,
            i_write_addr=self.write_addr,
            i_write_data=self.write_data,
        )
        return m
