"""The modes of the refresh engine: what each asks for in an interval."""

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from pequin.hbm.config import HbmConfig
from pequin.hbm.refresh import RefreshEngine
from pequin.hbm.types import RefreshMode, RowKind

CONFIG = HbmConfig()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (RefreshMode.NONE.value, {}),
        (RefreshMode.ALL_BANK.value, {RowKind.PRE_ALL: 1, RowKind.REF_ALL: 1}),
        (RefreshMode.PER_BANK.value, {RowKind.REF_BANK: CONFIG.geometry.banks}),
        (3, {}),
    ],
)
def test_refreshes_of_an_interval(mode, expected):
    """Banks are closed and always ready; number 3 is no mode."""
    dut = RefreshEngine(CONFIG)
    asked = {}

    async def bench(ctx):
        ctx.set(Value.cast(dut.mode), mode)
        ctx.set(Value.cast(dut.can_ref), -1)
        for ready in (dut.taken, dut.can_pre_all, dut.can_ref_all):
            ctx.set(ready, 1)
        for _ in range(CONFIG.timing.clocks("refi") + 10):
            await ctx.tick()
            if ctx.get(dut.want_valid):
                kind = ctx.get(dut.want_kind)
                asked[kind] = asked.get(kind, 0) + 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert asked == expected
