"""Timings and geometry of an HBM pseudo-channel: nanoseconds in, tile clocks out.

Every timing is given in ns with its source and rounded up to tile clocks one by one, so that a
spacing on the command bus is never shorter than the device asks for.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from pequin.config import BEAT_BYTES
from pequin.errors import ConfigError

BANKS_PER_GROUP = 8
"""Banks of one bank group (HBM4)."""


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@dataclass(frozen=True, kw_only=True)
class HbmTiming:
    """Timings of one pseudo-channel (ns), and the tile clock they are converted to.

    Parameters
    ----------
    name, source
        Label and origin of the numbers, for reports.
    rate_gbps
        Data rate per pin (Gb/s); 32 pins and a burst length of 8 make one 32 B beat.
    clock_ghz
        Tile clock (GHz). One burst must last exactly one tile clock.
    cl, cwl
        Column read / write command to first data.
    rcd_rd, rcd_wr
        Activate to read / write of the same bank.
    rp, ras, rc
        Precharge to activate; activate to precharge; activate to activate, of one bank.
    rrd_s, rrd_l, faw
        Activate to activate of another bank group / the same group; four-activate window.
    ccd_s, ccd_l
        Column to column command, other group / same group.
    wr
        End of write data to precharge.
    wtr_s, wtr_l
        End of write data to a read, other group / same group.
    rtp, rtw
        Read to precharge; read to write command.
    rfc, rfc_pb
        Length of an all-bank / a per-bank refresh.
    rrefd
        Per-bank refresh to another per-bank refresh or an activate of another bank.
    refi
        Average refresh interval: every bank is refreshed once in each.

    Raises
    ------
    ConfigError
        The set contradicts itself; the message names the timings and their values.
    """

    name: str = "custom"
    source: str = "user"
    rate_gbps: float = 10.0
    clock_ghz: float = 1.25
    cl: float = 10.0
    cwl: float = 5.0
    rcd_rd: float = 19.5
    rcd_wr: float = 9.5
    rp: float = 16.5
    ras: float = 28.5
    rc: float = 45.0
    rrd_s: float = 2.5
    rrd_l: float = 3.5
    faw: float = 15.0
    ccd_s: float = 0.8
    ccd_l: float = 1.6
    wr: float = 21.0
    wtr_s: float = 4.5
    wtr_l: float = 6.5
    rtp: float = 6.0
    rtw: float = 12.5
    rfc: float = 450.0
    rfc_pb: float = 280.0
    rrefd: float = 8.0
    refi: float = 3900.0

    def __post_init__(self) -> None:
        """Check the set against itself."""
        for name in ("rate_gbps", "clock_ghz", *TIMING_FIELDS):
            value = getattr(self, name)
            _check(
                math.isfinite(value) and value > 0,
                f"timing {self.name!r}: {name} must be a positive number, not {value}",
            )
        burst = self.burst_ns
        _check(
            abs(burst * self.clock_ghz - 1) < 1e-6,
            f"timing {self.name!r}: a burst of 8 at {self.rate_gbps} Gb/s lasts {burst:g} ns and "
            f"must be one tile clock; set clock_ghz to {1 / burst:g}, not {self.clock_ghz:g}",
        )
        self._ordered("rc", "ras + rp", self.rc, self.ras + self.rp)
        self._ordered("ras", "rcd_rd + rtp", self.ras, self.rcd_rd + self.rtp)
        for long, short in (
            ("rrd_l", "rrd_s"),
            ("ccd_l", "ccd_s"),
            ("wtr_l", "wtr_s"),
            ("rfc", "rfc_pb"),
            ("refi", "rfc"),
        ):
            self._ordered(long, short, getattr(self, long), getattr(self, short))
        self._ordered("ccd_s", "a burst", self.ccd_s, burst)
        self._ordered("faw", "rrd_s", self.faw, self.rrd_s)
        _check(
            self.clocks("cwl") >= 3 and self.clocks("cl") >= 3,
            f"timing {self.name!r}: cl and cwl must be at least 3 tile clocks, the pipeline of "
            f"the data path, not {self.clocks('cl')} and {self.clocks('cwl')}",
        )
        read_sample, write_land = self.clocks("cl"), self.clocks("rtw") + self.clocks("cwl")
        _check(
            write_land >= read_sample,
            f"timing {self.name!r}: rtw + cwl = {write_land} clocks puts write data on the bus "
            f"before the read data at cl = {read_sample} clocks",
        )

    def _ordered(self, left: str, right: str, left_ns: float, right_ns: float) -> None:
        _check(
            left_ns >= right_ns - 1e-9,
            f"timing {self.name!r}: {left} = {left_ns:g} ns must be at least {right} = "
            f"{right_ns:g} ns",
        )

    @classmethod
    def preset(cls, name: str) -> HbmTiming:
        """Return a named preset.

        Raises
        ------
        ConfigError
            The name is unknown; the message lists the known ones.
        """
        if name not in TIMINGS:
            raise ConfigError(f"timing {name!r} is unknown; choose one of {', '.join(TIMINGS)}")
        return cls(name=name, **TIMINGS[name])

    def replace(self, **changes: Any) -> HbmTiming:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @property
    def clock_ns(self) -> float:
        """Tile clock period (ns)."""
        return 1 / self.clock_ghz

    @property
    def burst_ns(self) -> float:
        """Time one beat takes on the data pins (ns)."""
        return 8 / self.rate_gbps

    @property
    def peak_gbps(self) -> float:
        """Peak bandwidth of the pseudo-channel (GB/s)."""
        return BEAT_BYTES * self.clock_ghz

    def clocks(self, name: str) -> int:
        """Return one timing in tile clocks, rounded up.

        The product is first rounded to a millionth of a clock: 4.8 ns * 1.25 GHz is 6 clocks,
        not 7.
        """
        return max(1, math.ceil(round(getattr(self, name) * self.clock_ghz, 6)))

    def table(self) -> dict[str, int]:
        """Return every timing in tile clocks, by field name."""
        return {name: self.clocks(name) for name in TIMING_FIELDS}


TIMING_FIELDS = tuple(
    field.name
    for field in dataclasses.fields(HbmTiming)
    if field.name not in ("name", "source", "rate_gbps", "clock_ghz")
)
"""The names of the timings of `HbmTiming`, in the order in which reports print them."""

TIMINGS: dict[str, dict[str, Any]] = {
    "hbm4-10g": {
        "source": "Ramulator 2 HBM4_8000 core timings in ns, kept at 10 Gb/s; refresh interval "
        "JESD270-4; core timings are vendor-defined",
    },
    "hbm4-8g": {
        "source": "Ramulator 2 HBM4_8000 preset; refresh interval JESD270-4",
        "rate_gbps": 8.0,
        "clock_ghz": 1.0,
        "ccd_s": 1.0,
        "ccd_l": 2.0,
    },
    "hbm3-6g4": {
        "source": "command spacings of Ramulator 2's HBM3 device model; cl, cwl and rfc are "
        "estimates of the same class",
        "rate_gbps": 6.4,
        "clock_ghz": 0.8,
        "rcd_rd": 19.375,
        "rcd_wr": 9.375,
        "rp": 16.25,
        "ras": 28.125,
        "rc": 44.375,
        "rrd_l": 3.125,
        "ccd_s": 1.25,
        "ccd_l": 2.5,
        "wr": 21.875,
        "wtr_s": 5.625,
        "wtr_l": 7.5,
        "rtp": 5.625,
        "rfc": 350.0,
        "rfc_pb": 200.0,
        "rrefd": 5.0,
    },
}
"""Named presets: what differs from `HbmTiming`'s defaults, which are `hbm4-10g`."""


@dataclass(frozen=True, kw_only=True)
class HbmGeometry:
    """Banks, rows and columns of one pseudo-channel, and how much of it has a backing store.

    Parameters
    ----------
    banks
        Banks of the pseudo-channel: 16, 32 or 48 (4-, 8- and 12-high stacks).
    rows
        Rows of a bank.
    columns
        Bursts (beats) of a row; 32 make the 1 KB page of HBM4.
    store_bytes
        Bytes of backing store. Addresses past it answer with an error.

    Raises
    ------
    ConfigError
        The geometry is impossible; the message names the field and the rule.
    """

    banks: int = 48
    rows: int = 12288
    columns: int = 32
    store_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        """Check the geometry."""
        _check(
            self.banks in (16, 32, 48),
            f"banks must be 16, 32 or 48 (bank groups of 8, groups in pairs), not {self.banks}",
        )
        _check(
            self.columns in (8, 16, 32, 64),
            f"columns must be 8, 16, 32 or 64 bursts per row, not {self.columns}",
        )
        _check(
            8 <= self.rows <= 1 << 16, f"rows must be between 8 and 65536 per bank, not {self.rows}"
        )
        chunk = self.chunk_beats * BEAT_BYTES
        _check(
            0 < self.store_bytes <= self.capacity_bytes and self.store_bytes % chunk == 0,
            f"store_bytes must be a multiple of {chunk} (a pair of rows) up to the device's "
            f"{self.capacity_bytes} bytes, not {self.store_bytes}",
        )

    @property
    def groups(self) -> int:
        """Bank groups."""
        return self.banks // BANKS_PER_GROUP

    @property
    def stacks(self) -> int:
        """Pairs of bank groups: one for every four dies of the stack."""
        return self.groups // 2

    @property
    def pairs(self) -> int:
        """Pairs of banks that a stream alternates between: same bank of two groups."""
        return self.banks // 2

    @property
    def chunk_beats(self) -> int:
        """Beats of a chunk: the same row of both banks of a pair."""
        return 2 * self.columns

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the whole device."""
        return self.banks * self.rows * self.columns * BEAT_BYTES

    @property
    def store_beats(self) -> int:
        """Beats of backing store."""
        return self.store_bytes // BEAT_BYTES
