"""Block RAM in place of the channel: its configuration, and its ports as a tile sees them."""

import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.hbm.block_ram import COUNTED_CAUSES, COUNTED_EVENTS, BlockRamChannel
from pequin.hbm.channel import HbmChannel
from pequin.hbm.config import HbmConfig
from pequin.hbm.counters import EVENTS, Cause
from pequin_sim.toolchain import lint


def ports(component):
    return {
        path: (member.flow, member.shape)
        for path, member, _ in component.signature.flatten(component)
    }


def test_ports_are_those_of_the_channel():
    channel = ports(HbmChannel(HbmConfig(requesters=3)))
    block_ram = ports(BlockRamChannel(requesters=3, store_bytes=4096))
    assert len(block_ram) > 40
    assert block_ram.items() <= channel.items()


def test_every_clock_has_a_cause_that_is_counted():
    assert set(COUNTED_CAUSES) == {Cause.DATA, Cause.RETURN, Cause.NO_REQUEST}
    assert set(COUNTED_EVENTS) <= set(EVENTS)


def test_converts_and_is_lint_clean():
    lint(elaborate(BlockRamChannel(requesters=3, store_bytes=4096), "block_ram"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": "dram"}, "memory must be hbm or block-ram, not 'dram'"),
        ({"memory": "block-ram"}, "store_bytes of block-ram must be .* not 67108864"),
        ({"memory": "block-ram", "store_bytes": 1000}, "store_bytes of block-ram must be"),
        ({"memory": "block-ram", "store_bytes": 512}, "store_bytes of block-ram must be"),
    ],
)
def test_a_memory_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        TileParams(TileConfig.preset("ref").replace(**changes))


def test_the_fpga_preset_is_what_an_fpga_holds():
    config = TileConfig.preset("fpga")
    assert (config.memory, config.store_bytes) == ("block-ram", 128 << 10)
    assert TileConfig.preset("ref").memory == "hbm"
