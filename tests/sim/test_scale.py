"""The scale statement follows from the stated figures."""

import pytest

from pequin.config import TileConfig, TileParams
from pequin_sim.scale import scale_statement


def statement(preset):
    return scale_statement(TileParams(TileConfig.preset(preset)))


def test_the_reference_tile_is_full_scale_in_memory_and_a_stated_factor_below_in_macs():
    ref = statement("ref")
    assert ref.hbm_gb_per_s == 40.0
    assert ref.hbm_share == pytest.approx(1.0)
    assert ref.macs_per_clock == 1024
    # 6.7e15 MAC/s over 15.36e12 B/s is 436 per byte; the tile has 1,024 per 32 bytes.
    assert ref.reference_macs_per_byte == pytest.approx(436.2, abs=0.05)
    assert ref.mac_factor == pytest.approx(436.2 / 32, abs=0.01)
    assert "a factor 13.6 below the reference's 436" in ref.sentence()
    assert "40 GB/s, 100% of a reference pseudo-channel's 40 GB/s (1/384" in ref.sentence()


def test_the_factor_does_not_depend_on_the_clock():
    fpga = statement("fpga")
    assert fpga.hbm_gb_per_s == pytest.approx(2.56)
    assert fpga.hbm_share == pytest.approx(0.064)
    assert "2.56 GB/s, 6.4% of a reference" in fpga.sentence()
    assert fpga.mac_factor == pytest.approx(8 * statement("ref").mac_factor)
    assert statement("wide").mac_factor == pytest.approx(statement("ref").mac_factor / 4)
