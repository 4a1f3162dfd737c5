"""`run_mac`: commands that do not fit, and the layout of what it sends."""

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import InputError
from pequin_sim import mx
from pequin_sim.rtl import mac
from pequin_sim.rtl.mac import Multiply, check_fit, run_mac

TINY = TileParams(TileConfig.preset("tiny"))


def matrices(rows=2, vectors=1, k=64, k_acts=None):
    weights = mx.quantize(np.ones((rows, k)), "mxfp4")
    acts = mx.quantize_activations(np.ones((vectors, k_acts or k), np.float32))
    return weights, acts


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ({"k": 512}, {}, r"K = 512 exceeds the preset's max_k = 256"),
        ({"k": 64, "k_acts": 96}, {}, r"weights have K = 64, activations K = 96"),
        ({"vectors": 3}, {}, r"^vectors must be 1 to 2, not 3"),
        ({"vectors": 2}, {"paired": True}, r"paired vectors must be 1 to 1, not 2"),
        ({"k": 256}, {"base": 1}, r"vectors of 8 blocks at address 1 exceed .* 8 blocks"),
        ({"k": 256}, {"base": 5, "paired": True}, r"vectors of 8 blocks at address 5 exceed"),
        ({"rows": 2}, {"first_row": 255}, r"row 256 needs more than the preset's index_bits = 8"),
    ],
)
def test_a_command_that_does_not_fit_is_refused(shape, options, message):
    command = Multiply(*matrices(**shape), **options)
    with pytest.raises(InputError, match=message):
        check_fit(TINY, command)
    with pytest.raises(InputError, match=message):
        run_mac(TINY, [command])


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ({"k": 256, "vectors": 2}, {}),
        ({"k": 256}, {"base": 4, "paired": True}),
        ({"rows": 2}, {"first_row": 254}),
    ],
)
def test_the_largest_commands_fit(shape, options):
    check_fit(TINY, Multiply(*matrices(**shape), **options))


def test_more_than_the_images_hold_is_refused(monkeypatch):
    monkeypatch.setattr(mac, "WEIGHT_TRANSFERS", 8)
    weights, acts = matrices(rows=16)
    with pytest.raises(InputError, match=r"plays or records at most 8 weights, not 17"):
        run_mac(TINY, [Multiply(weights, acts)])
    monkeypatch.setattr(mac, "WEIGHT_TRANSFERS", 100)
    monkeypatch.setattr(mac, "COMMANDS", 2)
    with pytest.raises(InputError, match=r"at most 2 command, not 3"):
        run_mac(TINY, [Multiply(weights, acts)] * 3)


def test_shapes_of_a_command():
    command = Multiply(*matrices(rows=5, vectors=2, k=96))
    assert (command.rows, command.vectors, command.k) == (5, 2, 96)
