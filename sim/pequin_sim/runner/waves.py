"""What a caller asks of a waveform file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pequin.errors import ConfigError
from pequin.export import Design
from pequin_sim.outputs import check_writable

CLOCK_NS = 2
"""Period of a simulated clock (ns): even and small, so that time steps are integers."""

FORMATS = ("vcd", "fst")


@dataclass(frozen=True, kw_only=True)
class Waves:
    """A request for a waveform file.

    Parameters
    ----------
    path
        Where it goes; the suffix `.vcd` or `.fst` chooses the format.
    start, stop
        First clock and first clock no longer written; None writes to the end.
    module
        Path of an instance below the top, such as `drain.convert`: only it and what is in it
        are written. None writes everything.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    module: str | None = None

    def __post_init__(self) -> None:
        """Check the request."""
        if self.format not in FORMATS:
            raise ConfigError(f"a waveform file ends in .vcd or .fst, not {str(self.path)!r}")
        if self.start < 0 or (self.stop is not None and self.stop <= self.start):
            raise ConfigError(
                f"a waveform's window must start at 0 or later and stop after its start, "
                f"not {self.start} to {self.stop}"
            )

    @property
    def format(self) -> str:
        """`vcd` or `fst`."""
        return Path(self.path).suffix.lstrip(".").lower()

    def check(self, design: Design) -> None:
        """Check that the file can be written and that the design has the module.

        Raises
        ------
        InputError
            The file cannot be written.
        ConfigError
            The design has no such instance.
        """
        check_writable(Path(self.path))
        if self.module is not None and not _has_instance(design, self.module):
            raise ConfigError(f"{design.top} has no instance {self.module!r} to write waves of")

    def plusargs(self, top: str) -> list[str]:
        """Return the request as a simulation understands it."""
        args = [f"+pequin.waves={Path(self.path).absolute()}"]
        args.append(f"+pequin.waves.from={self.start * CLOCK_NS}")
        if self.stop is not None:
            args.append(f"+pequin.waves.to={self.stop * CLOCK_NS}")
        if self.module:
            args.append(f"+pequin.waves.scope={top}.{self.module}")
        return args


def _has_instance(design: Design, path: str) -> bool:
    """Return whether a path names an instance: the generator names modules by their paths."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        parent = ".".join([design.top, *parts[: cut - 1]])
        instance = ".".join(parts[cut - 1 :])
        body = re.search(
            rf"^module \\?{re.escape(parent)} ?\(.*?^endmodule", design.verilog, re.M | re.S
        )
        if body and re.search(rf"[ )]\\?{re.escape(instance)} +\($", body[0], re.M):
            return True
    return False
