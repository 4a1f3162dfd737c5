"""Every component converts to Verilog, the same text twice, and passes Verilator's lint."""

import pytest
from amaranth.hdl import unsigned

from pequin.export import elaborate
from pequin.harness.player import StreamPlayer
from pequin.harness.recorder import StreamRecorder
from pequin.mac.accumulator import Accumulator
from pequin.mac.activation_buffer import ActivationBuffer
from pequin.mac.aligner import Aligner
from pequin.mac.array import MacArray
from pequin.mac.beat_window import BeatWindow
from pequin.mac.column import Column
from pequin.mac.dot_product import DotProduct
from pequin.mac.feeder import Feeder
from pequin.mac.fixed_to_float import FixedToFloat
from pequin.mac.lane_decode import LaneDecode
from pequin.mac.read_out import ReadOut
from pequin.mac.status import StatusCollector
from pequin.mac.top_k import TopK
from pequin_sim.toolchain import lint

COMPONENTS = {
    "lane_decode": lambda p: LaneDecode(pack=p.pack),
    "dot_product": lambda p: DotProduct(pack=p.pack, pipelined=p.config.pipelined),
    "aligner": lambda p: Aligner(),
    "accumulator": Accumulator,
    "column": Column,
    "activation_buffer": ActivationBuffer,
    "beat_window": lambda p: BeatWindow(),
    "feeder": Feeder,
    "fixed_to_float": lambda p: FixedToFloat(),
    "read_out": ReadOut,
    "status": StatusCollector,
    "top_k": TopK,
    "mac_array": MacArray,
    "player": lambda p: StreamPlayer(unsigned(12), depth=16, name="played"),
    "recorder": lambda p: StreamRecorder(unsigned(12), depth=16, name="recorded"),
}


CASES = [("tiny", name) for name in COMPONENTS]
# The whole array of `fpga` takes long; `make lint` has it.
CASES += [("fpga", name) for name in COMPONENTS if name != "mac_array"]


@pytest.mark.parametrize(("preset", "name"), CASES)
def test_converts_and_is_lint_clean(params_of, preset, name):
    params = params_of(preset)
    component = COMPONENTS[name](params)
    assert getattr(component, "params", params) is params
    lint(elaborate(component, name))


def test_conversion_is_repeatable(params_of):
    first, second = (elaborate(Column(params_of("fpga")), "column").verilog for _ in range(2))
    assert first == second
