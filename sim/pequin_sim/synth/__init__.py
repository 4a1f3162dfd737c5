"""FPGA synthesis of a component: cell counts by Yosys, place and route by nextpnr."""

from pequin_sim.synth.cells import Resources
from pequin_sim.synth.place_route import DEVICE, Device, Routing, place_and_route
from pequin_sim.synth.report import SynthReport, synth_report
from pequin_sim.synth.targets import TARGETS, Target, find_target
from pequin_sim.synth.yosys import Netlist, synthesize

__all__ = [
    "DEVICE",
    "TARGETS",
    "Device",
    "Netlist",
    "Resources",
    "Routing",
    "SynthReport",
    "Target",
    "find_target",
    "place_and_route",
    "synth_report",
    "synthesize",
]
