"""Every part of the tile converts to Verilog, the same text twice, and passes Verilator's lint."""

import pytest

from pequin.export import elaborate
from pequin.tile.arbiter import AccessArbiter
from pequin.tile.events import EventMerge
from pequin.tile.guard import ReadGuard
from pequin.tile.inside import ActivationAccess, ScalarAccess
from pequin.tile.mac_commands import MacCommands
from pequin.tile.registers import Registers
from pequin.tile.router import HostRouter
from pequin.tile.stop import Starter, Stopper, Watchdog
from pequin.tile.vector_commands import VectorCommands
from pequin.tile.weights import WeightSelect
from pequin_sim.toolchain import lint

COMPONENTS = {
    "arbiter": AccessArbiter,
    "events": lambda p: EventMerge(sources=5),
    "guard": lambda p: ReadGuard(),
    "activation_access": ActivationAccess,
    "scalar_access": ScalarAccess,
    "mac_commands": MacCommands,
    "registers": lambda p: Registers(p, counters=13),
    "router": lambda p: HostRouter(p, registers=8),
    "starter": lambda p: Starter(),
    "stopper": lambda p: Stopper(sources=12),
    "watchdog": lambda p: Watchdog(),
    "vector_commands": VectorCommands,
    "weights": lambda p: WeightSelect(),
}


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("name", COMPONENTS)
def test_converts_and_is_lint_clean(params_of, preset, name):
    params = params_of(preset)
    component = COMPONENTS[name](params)
    assert getattr(component, "params", params) is params
    lint(elaborate(component, name))


@pytest.mark.parametrize("name", ["router", "mac_commands"])
def test_conversion_is_repeatable(params_of, name):
    first, second = (elaborate(COMPONENTS[name](params_of("tiny")), name).verilog for _ in range(2))
    assert first == second
