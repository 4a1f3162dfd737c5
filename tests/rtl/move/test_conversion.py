"""Every unit that moves beats converts to Verilog and passes Verilator's lint."""

import pytest

from pequin.export import elaborate
from pequin.move.bench import FifoBench
from pequin.move.dma import DmaUnit
from pequin.move.dma_commands import DmaCommands
from pequin.move.dma_output import DmaOutput
from pequin.move.requester import ReadRequester
from pequin.move.scale_requester import ScaleRequester
from pequin.move.stream_engine import StreamEngine
from pequin.move.weight_fifo import WeightFifo
from pequin.tops import build_top
from pequin_sim.toolchain import lint

COMPONENTS = {
    "requester": lambda p: ReadRequester(chunk=8),
    "scale_requester": lambda p: ScaleRequester(),
    "dma_commands": DmaCommands,
    "dma_output": DmaOutput,
    "dma_unit": DmaUnit,
    "stream_engine": StreamEngine,
    "weight_fifo": WeightFifo,
    "fifo_bench": FifoBench,
}


@pytest.mark.parametrize("preset", ["tiny", "fpga", "ref"])
@pytest.mark.parametrize("name", COMPONENTS)
def test_converts_and_is_lint_clean(params_of, preset, name):
    params = params_of(preset)
    component = COMPONENTS[name](params)
    assert getattr(component, "params", params) is params
    lint(elaborate(component, name))


@pytest.mark.parametrize(
    ("top", "kind"),
    [("stream-engine", StreamEngine), ("weight-fifo", WeightFifo), ("dma-unit", DmaUnit)],
)
def test_the_command_line_knows_the_units(params_of, top, kind):
    assert isinstance(build_top(top, params_of("tiny")), kind)
