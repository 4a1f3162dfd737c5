import functools

import pytest

from pequin.config import TileConfig, TileParams
from pequin_sim.rtl.link import host_bench, run_link


@functools.lru_cache
def _params(preset, rate):
    config = TileConfig.preset(preset)
    if rate is not None:
        config = config.replace(host_bytes_per_clock=rate)
    return TileParams(config)


@functools.lru_cache
def _design(preset, rate):
    return host_bench(_params(preset, rate))


@pytest.fixture(scope="session")
def run():
    """Run a scenario of `pequin_tb.host.scenarios`, or a script; return the run."""

    def run_one(testcase=None, *, preset="tiny", rate=None, **options):
        if testcase is not None:
            options |= {"test_module": "pequin_tb.host.scenarios", "testcase": testcase}
        return run_link(_design(preset, rate), seed=1, **options)

    return run_one


@pytest.fixture(scope="session")
def bench():
    """Return a function from a preset's name and a rate to the bench."""
    return lambda preset="tiny", rate=None: _design(preset, rate)
