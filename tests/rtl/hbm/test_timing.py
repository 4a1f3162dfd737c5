import dataclasses

import pytest

from pequin.errors import ConfigError
from pequin.hbm.config import HbmConfig
from pequin.hbm.timing import TIMING_FIELDS, TIMINGS, HbmGeometry, HbmTiming


def test_reference_preset_in_clocks():
    # The stated design's ns at 1.25 GHz, each rounded up by hand.
    assert HbmTiming.preset("hbm4-10g").table() == {
        "cl": 13, "cwl": 7, "rcd_rd": 25, "rcd_wr": 12, "rp": 21, "ras": 36, "rc": 57,
        "rrd_s": 4, "rrd_l": 5, "faw": 19, "ccd_s": 1, "ccd_l": 2, "wr": 27, "wtr_s": 6,
        "wtr_l": 9, "rtp": 8, "rtw": 16, "rfc": 563, "rfc_pb": 350, "rrefd": 10, "refi": 4875,
    }  # fmt: skip


def test_8g_preset_has_its_own_clock():
    timing = HbmTiming.preset("hbm4-8g")
    assert timing.clock_ghz == 1.0
    assert timing.peak_gbps == 32
    assert timing.clocks("ccd_s") == 1
    assert timing.clocks("refi") == 3900


@pytest.mark.parametrize("name", TIMINGS)
def test_presets_round_up_and_never_by_a_whole_clock(name):
    timing = HbmTiming.preset(name)
    for field in TIMING_FIELDS:
        ns, clocks = getattr(timing, field), timing.clocks(field)
        assert clocks * timing.clock_ns >= ns - 1e-6
        assert (clocks - 1) * timing.clock_ns < ns
    assert timing.source


def test_exact_multiples_are_not_rounded_up():
    assert HbmTiming(rcd_wr=8.8).clocks("rcd_wr") == 11


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rc": 40.0}, r"rc = 40 ns must be at least ras \+ rp = 45 ns"),
        ({"ras": 20.0, "rc": 45.0}, r"ras = 20 ns must be at least rcd_rd \+ rtp"),
        ({"rrd_l": 2.0}, "rrd_l = 2 ns must be at least rrd_s"),
        ({"ccd_l": 0.5}, "ccd_l = 0.5 ns must be at least ccd_s"),
        ({"wtr_l": 1.0}, "wtr_l = 1 ns must be at least wtr_s"),
        ({"rfc": 100.0}, "rfc = 100 ns must be at least rfc_pb"),
        ({"refi": 300.0}, "refi = 300 ns must be at least rfc"),
        ({"faw": 1.0}, "faw = 1 ns must be at least rrd_s"),
        ({"cl": -1.0}, "cl must be a positive number"),
        ({"rp": float("nan")}, "rp must be a positive number"),
        ({"clock_ghz": 1.0}, r"must be one tile clock; set clock_ghz to 1.25, not 1"),
        ({"cl": 30.0}, "puts write data on the bus before"),
        ({"cwl": 1.0}, "at least 3 tile clocks"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        HbmTiming(**changes)


def test_unknown_preset_lists_the_known():
    with pytest.raises(ConfigError, match=r"hbm5.*hbm4-10g"):
        HbmTiming.preset("hbm5")


def test_full_device_is_the_pseudo_channels_share_of_the_chip():
    assert HbmGeometry().capacity_bytes == 576 << 20
    assert HbmGeometry(store_bytes=576 << 20).store_beats == 18_874_368


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"banks": 24}, "banks must be 16, 32 or 48"),
        ({"columns": 12}, "columns must be"),
        ({"rows": 4}, "rows must be between"),
        ({"store_bytes": 577 << 20}, "store_bytes must be a multiple of 2048"),
        ({"store_bytes": 1000}, "store_bytes must be a multiple of 2048"),
        ({"store_bytes": 0}, "store_bytes"),
    ],
)
def test_impossible_geometries_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        HbmGeometry(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requesters": 0}, "requesters must be 1 to 4"),
        ({"address_map": "random"}, "address_map must be one of"),
        ({"read_window": 2}, "read_window must be"),
        ({"write_window": 1}, "write_window must be"),
        ({"write_beats": 48}, "write_beats must be a power of two"),
        ({"return_beats": 8}, "return_beats must be a power of two"),
        ({"postpone": 9}, "postpone must be 1 to 8"),
        ({"path_ns": -1.0}, "path_ns must not be negative"),
    ],
)
def test_bad_configurations_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        HbmConfig(**changes)


def test_path_latency_is_rounded_up():
    assert HbmConfig(path_ns=8.1).path_clocks == 11
    assert dataclasses.replace(HbmConfig(), path_ns=0.0).path_clocks == 0
