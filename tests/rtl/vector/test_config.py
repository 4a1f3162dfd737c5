import pytest

from pequin.config import PRESETS, TileConfig, TileParams
from pequin.errors import ConfigError
from pequin.vector.delay import DelayLine
from pequin.vector.types import vector_command


def test_presets_have_the_stated_lanes():
    lanes = {name: TileConfig.preset(name).lanes for name in PRESETS}
    assert lanes == {"ref": 16, "wide": 32, "fpga": 2, "tiny": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 3}, "lanes must be a power of two from drain_lanes = 8 to 32, not 3"),
        ({"lanes": 4}, "lanes must be a power of two from drain_lanes = 8 to 32, not 4"),
        ({"lanes": 64}, "lanes must be a power of two"),
        ({"vector_elements": 1000}, "vector_elements must be a power of two"),
        ({"scalars": 2}, "scalars must be a power of two from 4"),
    ],
)
def test_errors_name_the_rule(changes, message):
    with pytest.raises(ConfigError, match=message):
        TileParams(TileConfig.preset("ref").replace(**changes))


def test_short_delay_is_refused():
    with pytest.raises(ConfigError, match="at least 2 clocks, not 1"):
        DelayLine(width=4, clocks=1)


def test_command_addresses_cover_the_memory():
    for name in PRESETS:
        params = TileParams(TileConfig.preset(name))
        layout = vector_command(params)
        assert 1 << layout["a"].width == params.config.vector_elements
        assert 1 << layout["s1"].width == params.config.scalars
