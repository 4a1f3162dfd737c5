"""Payload images: fields at their places, leaves back by name, values that do not fit."""

import numpy as np
import pytest
from amaranth.lib import data

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin.mac.types import Sink, WeightFormat, mac_command, result_group, weight_beats
from pequin_sim.rtl.payloads import pack, unpack, word_bytes

PARAMS = TileParams(TileConfig.preset("ref"))
MIXED = data.StructLayout(
    {
        "a": 3,
        "wide": 64,
        "flags": data.StructLayout({"x": 1, "y": 2}),
        "list": data.ArrayLayout(5, 2),
    }
)


def test_fields_and_leaves_are_inverse():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 256, (50, word_bytes(MIXED))).astype(np.uint8)
    leaves = unpack(MIXED, words)
    assert list(leaves) == ["a", "wide", "flags.x", "flags.y", "list.0", "list.1"]
    for row in range(50):
        view = MIXED.from_bits(
            int.from_bytes(words[row].tobytes(), "little") & (1 << MIXED.size) - 1
        )
        assert leaves["a"][row] == view.a
        assert leaves["flags.y"][row] == view.flags.y
        assert leaves["list.1"][row] == view.list[1]


def test_pack_places_every_field():
    fields = {"format": [1, 0], "paired": [0, 1], "last_block": [5, 89], "base": 17, "sink": [1, 0]}
    layout = mac_command(PARAMS)
    words = pack(layout, fields, 2)
    for row in range(2):
        got = layout.from_bits(int.from_bytes(words[row].tobytes(), "little"))
        assert got.format == WeightFormat(fields["format"][row])
        assert got.sink == Sink(fields["sink"][row])
        assert (got.paired, got.last_block) == (fields["paired"][row], fields["last_block"][row])
        assert (got.base, got.two_planes) == (17, 0)


def test_wide_fields_are_bytes():
    beats = np.arange(64, dtype=np.uint8)[np.newaxis]
    words = pack(weight_beats(), {"beats": beats, "two": 1}, 1)
    assert words.shape == (1, 65)
    np.testing.assert_array_equal(words[0, :64], beats[0])
    assert words[0, 64] == 1


def test_results_have_a_leaf_per_lane_and_flag():
    leaves = unpack(result_group(PARAMS), np.zeros((0, word_bytes(result_group(PARAMS))), np.uint8))
    assert "lanes.7.flags.result_clamped" in leaves
    assert all(len(values) == 0 for values in leaves.values())


@pytest.mark.parametrize("value", [-1, 8])
def test_a_value_that_does_not_fit_is_refused(value):
    with pytest.raises(
        InputError, match=f"field a has 3 bits; values reach from {value} to {value}"
    ):
        pack(MIXED, {"a": value}, 1)
