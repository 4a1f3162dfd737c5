"""Constructor errors; conversion to Verilog and Verilator's lint of every part."""

import pytest
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileConfig, TileParams
from pequin.errors import ConfigError
from pequin.export import elaborate
from pequin.harness.link_bench import LinkBench
from pequin.harness.packet_mailbox import PacketMailbox
from pequin.harness.tile_stub import StubTile
from pequin.host import HostPort
from pequin.host.crc import Crc32c
from pequin.host.dispatcher import Dispatcher
from pequin.host.memory import MemoryRequests, RequestIssuer, ResultCollector
from pequin.host.orders import OrderQueue
from pequin.host.rate import RateLimiter
from pequin.host.receiver import PacketReceiver
from pequin.host.sender import PacketSender
from pequin.host.steps import StepBuffer
from pequin.host.types import LinkWord
from pequin.tops import build_top
from pequin_sim.toolchain import lint

COMPONENTS = {
    "crc32c": lambda p: Crc32c(),
    "rate": lambda p: RateLimiter(rate=1.25),
    "receiver": lambda p: PacketReceiver(columns=p.config.columns),
    "dispatcher": lambda p: Dispatcher(columns=p.config.columns),
    "issuer": lambda p: RequestIssuer(),
    "collector": lambda p: ResultCollector(),
    "requests": lambda p: MemoryRequests(),
    "step_buffer": lambda p: StepBuffer(columns=p.config.columns),
    "orders": lambda p: OrderQueue(depth=16),
    "sender": PacketSender,
    "host_port": HostPort,
    "mailbox": lambda p: PacketMailbox(name="link"),
    "bench": lambda p: LinkBench(StubTile(HostPort(p))),
}


def params_of(preset, **changes):
    return TileParams(TileConfig.preset(preset).replace(**changes))


CASES = [("tiny", name) for name in COMPONENTS]
CASES += [(preset, "host_port") for preset in ("fpga", "ref", "wide")]


@pytest.mark.parametrize(("preset", "name"), CASES)
def test_converts_and_is_lint_clean(preset, name):
    params = params_of(preset)
    component = COMPONENTS[name](params)
    assert getattr(component, "params", params) is params
    lint(elaborate(component, name))


def test_the_command_line_knows_it():
    assert isinstance(build_top("host-port", params_of("tiny")), HostPort)


def test_conversion_is_repeatable():
    first, second = (elaborate(HostPort(params_of("ref")), "host_port").verilog for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: HostPort(params_of("tiny", host_bytes_per_clock=8.5)), "at most 8 bytes"),
        (lambda: StepBuffer(columns=0), "columns must be at least 1, not 0"),
        (lambda: Dispatcher(columns=0), "columns must be at least 1, not 0"),
        (lambda: OrderQueue(depth=0), "depth must be at least 1, not 0"),
        (lambda: PacketMailbox(name="a b"), "letters, digits, '_' and '.', not 'a b'"),
        (lambda: LinkBench(Crc32c()), r"has the streams rx and tx, not \[\]"),
    ],
)
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_a_bench_refuses_ports_of_its_own_names():
    class Clash(wiring.Component):
        rx: In(stream.Signature(LinkWord))
        tx: Out(stream.Signature(LinkWord))
        done: Out(1)

    with pytest.raises(ConfigError, match="port 'done' of the component"):
        LinkBench(Clash())
