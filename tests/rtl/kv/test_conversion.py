"""Every part of the KV buffer converts to Verilog and passes Verilator's lint."""

import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.kv import KvBuffer
from pequin.kv.access import KvAccess
from pequin.kv.bank import KvBank
from pequin.kv.bench import KvBench
from pequin.kv.intake import KvIntake
from pequin.kv.reader import KvReader
from pequin.kv.walker import KvWalker
from pequin.tops import build_top
from pequin_sim.toolchain import lint

COMPONENTS = {
    "bank": lambda p: KvBank(p, bank=1),
    "intake": KvIntake,
    "walker": lambda p: KvWalker(),
    "reader": KvReader,
    "access": KvAccess,
    "bench": KvBench,
    "buffer": KvBuffer,
}


@pytest.mark.parametrize("preset", ["tiny", "ref"])
@pytest.mark.parametrize("name", COMPONENTS)
def test_converts_and_is_lint_clean(preset, name):
    params = TileParams(TileConfig.preset(preset))
    component = COMPONENTS[name](params)
    assert getattr(component, "params", params) is params
    lint(elaborate(component, f"kv_{name}"))


def test_the_command_line_knows_the_buffer():
    assert isinstance(build_top("kv-buffer", TileParams(TileConfig.preset("tiny"))), KvBuffer)


@pytest.mark.parametrize("bank", [-1, 2])
def test_a_bank_must_exist(params, bank):
    with pytest.raises(ConfigError, match=f"has banks 0 to 1, not {bank}"):
        KvBank(params, bank=bank)
    assert KvBank(params, bank=1).bank == 1
