"""Check the generated Verilog of every top with Verilator's lint.

Usage: lint_verilog.py [PRESET ...]
"""

from __future__ import annotations

import sys
import time

from pequin.config import TileConfig, TileParams
from pequin.errors import PequinError
from pequin.export import elaborate
from pequin.tops import TOPS, build_top, module_name
from pequin_sim.toolchain import lint

DEFAULT_PRESETS = ("tiny", "fpga", "ref")
"""Those that differ in structure: sizes of one, the pipelined array, and the reference."""


def main(presets: list[str]) -> int:
    """Lint every top at every preset; return the exit code."""
    failed = 0
    for preset in presets:
        for top in TOPS:
            started = time.monotonic()
            try:
                params = TileParams(TileConfig.preset(preset))
                lint(elaborate(build_top(top, params), module_name(top)))
                verdict = "clean"
            except PequinError as error:
                verdict, failed = str(error), 1
            seconds = time.monotonic() - started
            print(f"verilator lint: {top} ({preset}): {verdict} ({seconds:.0f} s)", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(DEFAULT_PRESETS)))
