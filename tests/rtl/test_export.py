"""Conversion to Verilog: the described ports are the real ones, and the bytes are stable."""

import os
import re
import subprocess
import sys

import pytest
from amaranth.hdl import ClockDomain, Module, Signal, signed, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.export import LIBRARY, Design, Field, Port, elaborate, library_text
from pequin.ram import Ram
from pequin_sim.toolchain import lint


class Kind(enum.Enum, shape=unsigned(2)):
    NONE = 0
    SOME = 1


class Inner(data.Struct):
    low: unsigned(3)
    high: signed(5)


class Word(data.Struct):
    kind: Kind
    inner: Inner
    nothing: unsigned(0)
    pair: data.ArrayLayout(signed(4), 2)


class Everything(wiring.Component):
    """Ports of every sort, joined so that none is removed."""

    words: In(stream.Signature(Word))
    plain: Out(stream.Signature(signed(6)))
    lanes: In(stream.Signature(unsigned(2))).array(2)
    level: In(4)
    empty: In(0)
    flags: Out(Inner)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.words.ready.eq(self.plain.ready),
            self.plain.valid.eq(self.words.valid),
            self.lanes[0].ready.eq(self.lanes[1].valid),
            self.lanes[1].ready.eq(self.lanes[0].valid ^ self.lanes[0].payload[0]),
            self.flags.low.eq(self.lanes[1].payload + self.level),
        ]
        m.d.sync += self.plain.payload.eq(self.words.payload.inner.high)
        return m


class Wire(wiring.Component):
    """No clock at all."""

    a: In(1)
    b: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.b.eq(~self.a)
        return m


@pytest.fixture(scope="module")
def everything():
    return elaborate(Everything(), "everything")


def declared(design):
    """Return the top's ports as its Verilog text declares them."""
    body = re.search(rf"^module {design.top}\(.*?^endmodule", design.verilog, re.M | re.S)[0]
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", body, re.M)
    return {name: (direction, int(high or 0) + 1) for direction, high, name in found}


def test_the_described_ports_are_those_of_the_text(everything):
    assert declared(everything) == {p.name: (p.direction, p.width) for p in everything.ports}


def test_clock_and_reset_come_first(everything):
    assert everything.ports[:2] == (
        Port("clk", "input", 1, role="clock"),
        Port("rst", "input", 1, role="reset"),
    )
    assert {port.name for port in elaborate(Wire(), "wire_").ports} == {"a", "b"}


def test_a_stream_s_ports_know_their_role(everything):
    roles = {(p.stream, p.role): p.direction for p in everything.ports if p.stream}
    assert roles["words", "payload"] == roles["words", "valid"] == "input"
    assert roles["words", "ready"] == "output"
    assert roles["plain", "payload"] == "output"
    assert ("lanes__1", "payload") in roles
    assert everything.port("level").role == "signal"


def test_a_payload_s_fields_are_at_their_offsets(everything):
    port = everything.port("words__payload")
    assert port.width == 18
    assert port.fields == (
        Field("kind", 0, 2, False),
        Field("inner.low", 2, 3, False),
        Field("inner.high", 5, 5, True),
        Field("pair.0", 10, 4, True),
        Field("pair.1", 14, 4, True),
    )


def test_a_plain_payload_has_a_sign_and_no_fields(everything):
    port = everything.port("plain__payload")
    assert port.signed
    assert port.fields == ()


def test_a_port_of_no_bits_is_left_out(everything):
    assert "empty" not in {port.name for port in everything.ports}
    with pytest.raises(KeyError):
        everything.port("empty")


def test_the_description_is_plain_data(everything):
    described = everything.describe()
    assert described["top"] == "everything"
    first = next(p for p in described["ports"] if p["name"] == "words__payload")
    assert first["fields"][1] == {"name": "inner.low", "offset": 2, "width": 3, "signed": False}


def test_the_text_is_lint_clean_and_names_no_file(everything):
    lint(everything)
    assert __file__ not in everything.verilog
    assert "src =" not in everything.verilog


def test_the_top_s_name_must_be_an_identifier():
    component = Wire()
    for name in ("2fast", "a-b", "", "a b", "é"):
        with pytest.raises(ConfigError, match="must be a Verilog identifier"):
            elaborate(component, name)
    assert elaborate(component, "a_b2").top == "a_b2"


def test_a_library_module_comes_along_only_where_it_is_used(everything):
    design = elaborate(Ram(width=8, depth=4, name="store"), "with_ram")
    assert design.verilog.endswith(library_text("pequin_ram"))
    assert design.verilog.count("module pequin_ram") == 1
    for name in LIBRARY:
        assert (f"module {name}" in design.verilog) == (name == "pequin_ram")
        assert name not in everything.verilog


def test_a_signal_named_like_a_library_module_brings_nothing():
    class Decoy(Wire):
        def elaborate(self, platform):
            m = Module()
            decoy = Signal(name="pequin_ram")
            m.domains.sync = ClockDomain()
            m.d.comb += [decoy.eq(self.a), self.b.eq(decoy)]
            return m

    assert "module pequin_ram" not in elaborate(Decoy(), "decoy").verilog


def test_the_caller_s_choice_of_yosys_is_ignored_and_kept(monkeypatch):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "system")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert isinstance(elaborate(Wire(), "wire_"), Design)
    assert os.environ["AMARANTH_USE_YOSYS"] == "system"
    monkeypatch.delenv("AMARANTH_USE_YOSYS")
    elaborate(Wire(), "wire_")
    assert "AMARANTH_USE_YOSYS" not in os.environ


def test_the_bytes_do_not_depend_on_the_hash_seed():
    program = (
        "from pequin.config import TileConfig, TileParams\n"
        "from pequin.export import elaborate\n"
        "from pequin.mac.feeder import Feeder\n"
        "import sys\n"
        "params = TileParams(TileConfig.preset('tiny'))\n"
        "sys.stdout.write(elaborate(Feeder(params), 'feeder').verilog)\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(texts) == 1
    assert len(texts.pop()) > 1000
