"""`pequin verilog`: the text, its port description, and outputs that cannot be written."""

import json
import os
import subprocess
import sys

import pytest
from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

import pequin_sim.cli as cli
from pequin import tops
from pequin.config import PRESETS, TileConfig, TileParams
from pequin.errors import ConfigError
from pequin.export import Design
from pequin.tile.core import TileCore
from pequin.tile.tile import Tile
from pequin_sim import outputs
from pequin_sim.toolchain import lint


class Small(wiring.Component):
    """As large as its preset says."""

    def __init__(self, params):
        pair = data.StructLayout({"first": 3, "second": params.config.columns})
        super().__init__({"source": In(stream.Signature(pair)), "sink": Out(stream.Signature(3))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.source.ready.eq(self.sink.ready)
        m.d.sync += [
            self.sink.valid.eq(self.source.valid),
            self.sink.payload.eq(self.source.payload.first),
        ]
        return m


@pytest.fixture(autouse=True)
def small_top(monkeypatch):
    monkeypatch.setitem(tops.TOPS, "small-one", Small)


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["pequin", "verilog", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code or 0


def test_the_text_goes_to_stdout(monkeypatch, capsys):
    assert call(monkeypatch, "--top", "small-one") == 0
    out, err = capsys.readouterr()
    assert "module small_one(" in out
    assert out.endswith("endmodule\n")
    assert err == ""


def test_a_file_gets_a_description_of_its_ports_beside_it(monkeypatch, capsys, tmp_path):
    path = tmp_path / "design.v"
    assert call(monkeypatch, "--top", "small-one", "--preset", "tiny", "-o", str(path)) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert f"wrote {path} and {tmp_path / 'design.json'}" in err
    assert sorted(os.listdir(tmp_path)) == ["design.json", "design.v"]  # noqa: PTH208
    described = json.loads((tmp_path / "design.json").read_text())
    assert (described["component"], described["preset"]) == ("small-one", "tiny")
    assert described["top"] == "small_one"
    ports = {port["name"]: port for port in described["ports"]}
    assert ports["clk"]["role"] == "clock"
    assert ports["source__payload"] == {
        "name": "source__payload",
        "direction": "input",
        "width": 5,
        "signed": False,
        "stream": "source",
        "role": "payload",
        "fields": [
            {"name": "first", "offset": 0, "width": 3, "signed": False},
            {"name": "second", "offset": 3, "width": 2, "signed": False},
        ],
    }
    for name in ports:
        assert name in path.read_text()


def test_the_same_bytes_come_twice(monkeypatch, tmp_path):
    for name in ("a", "b"):
        assert call(monkeypatch, "--top", "small-one", "-o", str(tmp_path / f"{name}.v")) == 0
    assert (tmp_path / "a.v").read_bytes() == (tmp_path / "b.v").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--top", "mac"], "top 'mac' is unknown; choose one of mac-array"),
        (["--preset", "huge"], "preset 'huge' is unknown; choose one of ref, wide, fpga, tiny"),
        (["-o", "{tmp}/none/a.v"], "cannot write {tmp}/none/a.v: there is no directory {tmp}/none"),
        (["-o", "{tmp}"], "cannot write {tmp}: it is a directory"),
        (["-o", "{tmp}/a.json"], "{tmp}/a.json would be overwritten by its port description"),
        (["-o", "{tmp}/b.v"], "cannot write {tmp}/b.json: it is a directory"),
        (["-o", "/proc/a.v"], "cannot write /proc/a.v: "),
    ],
)
def test_bad_input_is_one_line_before_any_work(monkeypatch, capsys, tmp_path, words, message):
    def worked(*_arguments):
        raise AssertionError("the input must be refused before elaboration")

    monkeypatch.setattr("pequin.export.elaborate", worked)
    (tmp_path / "b.json").mkdir()
    assert call(monkeypatch, *(word.format(tmp=tmp_path) for word in words)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pequin: error: " + message.format(tmp=tmp_path))
    assert err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.json"]


def test_every_top_has_a_verilog_name():
    for name in tops.TOPS:
        assert tops.module_name(name).isidentifier()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("top", "kind"), [("tile", Tile), ("tile-core", TileCore)])
def test_the_tile_is_a_top_with_every_preset(top, kind, preset):
    built = tops.build_top(top, TileParams(TileConfig.preset(preset)))
    assert type(built) is kind
    assert built.params.config.name == preset


def test_the_tile_is_the_same_with_any_hash_seed_and_lint_clean(tmp_path):
    words = ["verilog", "--top", "tile", "--preset", "tiny"]
    program = f"import sys; sys.argv[1:1] = {words}; from pequin_sim.cli import main; main()"
    paths = {seed: tmp_path / seed / "tile.v" for seed in ("0", "4242")}
    running = []
    for seed, path in paths.items():
        path.parent.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program, "-o", str(path)]
        running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE))
    assert [process.communicate()[1].count(b"wrote ") for process in running] == [1, 1]
    texts = {path.read_text() for path in paths.values()}
    assert len(texts) == 1
    assert len({path.with_suffix(".json").read_text() for path in paths.values()}) == 1
    described = json.loads(paths["0"].with_suffix(".json").read_text())
    roles = {port["name"]: (port["direction"], port["role"]) for port in described["ports"]}
    assert roles["rx__payload"] == ("input", "payload")
    assert roles["tx__valid"] == ("output", "valid")
    assert roles["state"] == ("output", "signal")
    lint(Design("tile", texts.pop(), ()))


def test_an_unknown_top_lists_the_known_ones():
    with pytest.raises(ConfigError, match="'nothing' is unknown; choose one of mac-array, "):
        tops.build_top("nothing", TileParams(TileConfig.preset("tiny")))


def test_a_reader_never_sees_a_part_of_a_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    outputs.write_atomic(path, "old")
    monkeypatch.setattr(os, "fdopen", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        outputs.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
