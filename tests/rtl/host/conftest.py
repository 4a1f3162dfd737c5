import pytest
from amaranth.sim import Simulator


@pytest.fixture
def simulate():
    """Run testbenches on a component in Amaranth's simulator."""

    def run(component, *benches):
        simulator = Simulator(component)
        simulator.add_clock(1e-6)
        for bench in benches:
            simulator.add_testbench(bench)
        simulator.run()

    return run
