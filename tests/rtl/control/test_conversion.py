"""Every control component converts to Verilog and passes Verilator's lint; constructor errors."""

import pytest

from pequin.config import TileConfig, TileParams
from pequin.control.arithmetic import Alu, Multiplier
from pequin.control.check import InstructionCheck
from pequin.control.command_queue import CommandQueue
from pequin.control.fetcher import Fetcher
from pequin.control.in_flight import InFlight
from pequin.control.loops import LoopCounter, StridedWords
from pequin.control.program import ProgramMemory
from pequin.control.semaphores import Semaphores
from pequin.control.sequencer import Sequencer
from pequin.control.step_table import StepTable
from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.tile.types import COMMAND_WORDS
from pequin.tops import build_top
from pequin_sim.toolchain import lint

COMPONENTS = {
    "alu": lambda p: Alu(),
    "multiplier": lambda p: Multiplier(),
    "instruction_check": lambda p: InstructionCheck(),
    "fetcher": lambda p: Fetcher(),
    "in_flight": lambda p: InFlight(),
    "loop_counter": lambda p: LoopCounter(),
    "strided_words": lambda p: StridedWords(words=7),
    "strided_word": lambda p: StridedWords(words=1),
    "step_table": lambda p: StepTable(columns=p.config.columns),
    "program_memory": ProgramMemory,
    "semaphores": lambda p: Semaphores(),
    "semaphores_one": lambda p: Semaphores(units=1),
    "sequencer": Sequencer,
}


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("name", COMPONENTS)
def test_converts_and_is_lint_clean(preset, name):
    params = TileParams(TileConfig.preset(preset))
    component = COMPONENTS[name](params)
    assert getattr(component, "params", params) is params
    lint(elaborate(component, f"control_{name}"))


@pytest.mark.parametrize("unit", COMMAND_WORDS)
def test_queues_convert_and_are_lint_clean(params, unit):
    queue = CommandQueue(unit, params())
    assert queue.unit == unit
    lint(elaborate(queue, f"queue_{unit.name.lower()}"))


@pytest.mark.parametrize("words", [16, 1 << 16])
def test_the_smallest_and_the_largest_program_memory(params, words):
    # With 65,536 words every program counter is inside.
    small = params(program_words=words)
    lint(elaborate(Sequencer(small), "control_sequencer"))
    lint(elaborate(ProgramMemory(small), "control_program"))


def test_the_command_line_knows_the_parts(params):
    kinds = {"sequencer": Sequencer, "command-queue": CommandQueue, "semaphores": Semaphores}
    kinds["program-memory"] = ProgramMemory
    for name, kind in kinds.items():
        assert isinstance(build_top(name, params()), kind)


def test_strided_words_need_a_word():
    assert StridedWords(words=3).words == 3
    with pytest.raises(ConfigError, match="must be at least one, not 0"):
        StridedWords(words=0)


def test_a_table_needs_a_column():
    assert StepTable(columns=3).columns == 3
    with pytest.raises(ConfigError, match="must have at least one column, not 0"):
        StepTable(columns=0)
