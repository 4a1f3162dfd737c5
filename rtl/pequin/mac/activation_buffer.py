"""The stationary side of the MAC array: one bank of activation blocks per column."""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK, TileParams
from pequin.mac.arith import balanced_sum
from pequin.mac.types import BEAT_BITS, StoredBlock, activation_write

OFFSET = 0x80
"""Added to an element (modulo 256) to make it non-negative: offset binary."""

_INFO_BITS = 13 + 8


class ActivationBuffer(wiring.Component):
    """Hold the activations of every column; read one block per column and clock.

    Elements are kept in offset binary together with their sum, so that the lanes multiply
    unsigned numbers (see `DotProduct`); the sum is computed once here, not in every column.

    Timing: `blocks` follows `address` by one clock. A write
    lands two clocks after it was accepted; reading its address before that gives either value.

    Parameters
    ----------
    params
        Sizes: `columns`, `act_blocks`.

    Members
    -------
    write : In(stream of activation_write(params))
        Always ready.
    address : In(range(act_blocks))
        Read address, common to all columns (blocks).
    blocks : Out(StoredBlock()).array(columns)
    """

    def __init__(self, params: TileParams) -> None:
        self._params = params
        c = params.config
        super().__init__(
            {
                "write": In(stream.Signature(activation_write(params))),
                "address": In(range(c.act_blocks)),
                "blocks": Out(StoredBlock()).array(c.columns),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        c = self._params.config
        elements, info = Signal(BEAT_BITS, reset_less=True), Signal(_INFO_BITS, reset_less=True)
        column = Signal(range(c.columns), reset_less=True)
        address = Signal(range(c.act_blocks), reset_less=True)
        valid = Signal()
        payload = self.write.p
        lifted = [payload.elements[8 * i : 8 * i + 8] ^ OFFSET for i in range(BLOCK)]
        m.d.comb += self.write.ready.eq(1)
        m.d.sync += valid.eq(self.write.valid)
        with m.If(self.write.valid):
            m.d.sync += [
                elements.eq(Cat(lifted)),
                info.eq(Cat(balanced_sum(lifted), payload.scale)),
                column.eq(payload.column),
                address.eq(payload.address),
            ]
        for i in range(c.columns):
            enable = Signal(name=f"write_{i}")
            m.d.comb += enable.eq(valid & (column == i))
            block = self.blocks[i]
            for name, word, target in (
                ("elements", elements, block.elements),
                ("info", info, Cat(block.total, block.scale)),
            ):
                # Without it Yosys adds registers that emulate reading while writing, which
                # nothing here relies on. It must be a number; the stubs want text.
                attrs: dict[str, Any] = {"no_rw_check": 1}
                bank: Memory = Memory(shape=len(word), depth=c.act_blocks, init=[], attrs=attrs)
                m.submodules[f"{name}_{i}"] = bank
                write, read = bank.write_port(), bank.read_port()
                m.d.comb += [
                    write.addr.eq(address),
                    write.data.eq(word),
                    write.en.eq(enable),
                    read.addr.eq(self.address),
                    read.en.eq(1),
                    target.eq(read.data),
                ]
        return m
