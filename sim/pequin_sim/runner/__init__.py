"""Run a cocotb test module on a design.

`simulate` builds (or finds) the simulation, runs it, and returns what the testbench reported.
"""

from __future__ import annotations

from pequin_sim.runner.run import SimResult, SimulationFailed, simulate
from pequin_sim.runner.waves import Waves

__all__ = ["SimResult", "SimulationFailed", "Waves", "simulate"]
