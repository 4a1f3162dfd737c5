"""On-chip memory of beats with SECDED over each 64-bit word."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.hbm.ecc import CODE_BITS, COLUMNS, WORD_BITS, encode_beat
from pequin.hbm.types import BEAT_BITS, CHECK_BITS
from pequin.ram import Ram

READ_CLOCKS = 2
"""Clocks from `read_en` to `read_valid`."""

REPAIRS_BITS = 32
"""Width of the count of corrected beats."""

_WORDS = BEAT_BITS // WORD_BITS


class EccRam(wiring.Component):
    """Simple dual-port memory of beats that corrects single-bit errors and flags double ones.

    *Timing*: a read's beat, `read_valid` and its error flags come two clocks after `read_en`; a
    read and a write per clock. A write is visible to reads of later clocks; a read of the beat
    that is written in the same clock is undefined. The content survives a reset.

    *Files*: the `Ram` called `name` holds words of 288 bits: the beat, and above it the check
    bits, eight for each 64-bit word. Zeros are a valid content.

    Parameters
    ----------
    depth
        Beats, at least 2.
    name
        Names the RAM's plusargs; unique in a design.

    Members
    -------
    read_en, read_addr
        Read a beat.
    read_valid, read_data, read_from
        A beat, corrected, and its address; zeros when `failed` is set.
    repaired, failed
        With `read_valid`: a single-bit error was corrected; there is an error that cannot be.
    repairs : Out(32)
        Beats read with a single-bit error since reset.
    write_en, write_addr, write_data
        Write a beat.
    flip : In(288)
        XORed into the stored word of a write, to inject errors.

    Raises
    ------
    ConfigError
        `depth` is too small, or the name has other characters than `Ram` takes.
    """

    read_en: Any
    read_addr: Any
    read_valid: Any
    read_data: Any
    read_from: Any
    repaired: Any
    failed: Any
    repairs: Any
    write_en: Any
    write_addr: Any
    write_data: Any
    flip: Any

    def __init__(self, *, depth: int, name: str) -> None:
        if depth < 2:
            raise ConfigError(f"a protected RAM's depth must be at least 2 beats, not {depth}")
        self._depth, self._name = depth, name
        # Made here, so that it checks its name.
        self._ram = Ram(width=BEAT_BITS + CHECK_BITS, depth=depth, name=name)
        address = range(depth)
        super().__init__(
            {
                "read_en": In(1),
                "read_addr": In(address),
                "read_valid": Out(1),
                "read_data": Out(BEAT_BITS),
                "read_from": Out(address),
                "repaired": Out(1),
                "failed": Out(1),
                "repairs": Out(REPAIRS_BITS),
                "write_en": In(1),
                "write_addr": In(address),
                "write_data": In(BEAT_BITS),
                "flip": In(BEAT_BITS + CHECK_BITS),
            }
        )

    @property
    def depth(self) -> int:
        """Beats."""
        return self._depth

    @property
    def name(self) -> str:
        """What the plusargs call it."""
        return self._name

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.ram = ram = self._ram
        stored = Cat(self.write_data, encode_beat(self.write_data)) ^ self.flip
        m.d.comb += [
            ram.write_en.eq(self.write_en),
            ram.write_addr.eq(self.write_addr),
            ram.write_data.eq(stored),
            ram.read_en.eq(self.read_en),
            ram.read_addr.eq(self.read_addr),
        ]
        came, came_from = Signal(), Signal.like(self.read_addr, name="came_from")
        raw = Signal(BEAT_BITS, reset_less=True)
        syndromes = Signal(CHECK_BITS, reset_less=True)
        m.d.sync += [
            came.eq(self.read_en),
            came_from.eq(self.read_addr),
            self.read_valid.eq(came),
            self.read_from.eq(came_from),
            raw.eq(ram.read_data[:BEAT_BITS]),
            syndromes.eq(encode_beat(ram.read_data[:BEAT_BITS]) ^ ram.read_data[BEAT_BITS:]),
        ]
        self._repair(m, raw, syndromes)
        with m.If(self.repaired):
            m.d.sync += self.repairs.eq(self.repairs + 1)
        return m

    def _repair(self, m: Module, raw: Signal, syndromes: Signal) -> None:
        """Flip the bit that each word's syndrome names."""
        words, singles, doubles = [], [], []
        for index in range(_WORDS):
            syndrome = syndromes.word_select(Const(index, 2), CODE_BITS)
            flips = Signal(WORD_BITS, name=f"flips{index}")
            m.d.comb += flips.eq(Cat(syndrome == column for column in COLUMNS))
            in_check = Cat(syndrome == 1 << j for j in range(CODE_BITS)).any()
            known = Signal(name=f"known{index}")
            m.d.comb += known.eq(flips.any() | in_check)
            words.append(raw.word_select(Const(index, 2), WORD_BITS) ^ flips)
            singles.append(known)
            doubles.append(syndrome.any() & ~known)
        lost = Signal()
        m.d.comb += [
            lost.eq(Cat(doubles).any()),
            self.failed.eq(self.read_valid & lost),
            self.repaired.eq(self.read_valid & Cat(singles).any() & ~lost),
            self.read_data.eq(Mux(lost, 0, Cat(words))),
        ]
