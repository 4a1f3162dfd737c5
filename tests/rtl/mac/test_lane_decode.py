"""Lane decode: every code of both formats in every lane."""

import numpy as np
import pytest

from pequin.errors import ConfigError
from pequin.mac.lane_decode import LaneDecode
from pequin_sim import mx

LANES = [f"operands.lanes.{i}" for i in range(32)]
TOTALS = ["operands.totals.0", "operands.totals.1"]


def beats_of(payload):
    return [int.from_bytes(row.tobytes(), "little") for row in payload]


def decode(clocked, pack, beats, fmt):
    got = clocked(LaneDecode(pack=pack), {"beat": beats, "format": [fmt]}, LANES + TOTALS)
    packed = np.stack([got[name] for name in LANES], axis=1).astype(np.int64)
    groups = np.stack([packed & 0x1F, packed >> pack], axis=1) - 16
    assert not (packed >> 5 & (1 << (pack - 5)) - 1).any(), "bits between the two operands"
    totals = np.stack([got[name] for name in TOTALS], axis=1).astype(np.int64) - 16 * 32
    np.testing.assert_array_equal(totals, groups.sum(axis=2))
    return groups


@pytest.mark.parametrize("pack", [13, 18, 24])
def test_every_e2m1_code_in_every_lane_of_both_rows(clocked, pack):
    # Over 16 beats each lane sees all codes; the second row is shifted against the first.
    codes = (np.arange(16)[:, None, None] + np.arange(32) + np.array([[0], [5]])) % 16
    beats = beats_of(mx.pack_nibbles(codes).reshape(16, 32))
    got = decode(clocked, pack, beats, 0)
    np.testing.assert_array_equal(got, mx.e2m1_integers(codes))


@pytest.mark.parametrize("pack", [13, 18])
def test_every_mxint8_byte_in_every_lane(clocked, pack):
    values = (np.arange(256)[:, None] + 37 * np.arange(32)) % 256
    got = decode(clocked, pack, beats_of(values.astype(np.uint8)), 1)
    signed = values.astype(np.uint8).view(np.int8).astype(np.int64)
    np.testing.assert_array_equal(16 * got[:, 0] + got[:, 1], signed)
    assert got[:, 0].min() == -8
    assert got[:, 1].min() == 0


def test_a_pack_that_overlaps_products_is_refused():
    with pytest.raises(ConfigError, match=r"pack must be at least 13 .*, not 12"):
        LaneDecode(pack=12)
