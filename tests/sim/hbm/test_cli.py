import json

import pytest
from click.testing import CliRunner

from pequin.errors import ConfigError, InputError
from pequin_sim.cli.hbm import command


def invoke(*arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_show_prints_ns_and_clocks():
    text = invoke("--show").stdout
    assert "450.4" in text
    assert "563" in text
    assert "576 MiB" in text


def test_show_as_json_is_json_only():
    data = json.loads(invoke("--show", "--json", "--timing", "hbm4-8g", "--path-ns", "3.5").stdout)
    assert data["clocks"]["rfc"] == 450
    assert data["peak_gbps"] == 32
    assert data["path_clocks"] == 4


def test_errors_name_the_input(tmp_path):
    with pytest.raises(ConfigError, match="hbm9"):
        invoke("--show", "--timing", "hbm9")
    with pytest.raises(InputError, match="pattern 'x' is unknown; choose from stream"):
        invoke("--pattern", "x")
    trace = tmp_path / "t"
    trace.write_text("R 0x20\nQ 0x40\n")
    with pytest.raises(InputError, match=r"t:2: a line is"):
        invoke("--trace", str(trace))
