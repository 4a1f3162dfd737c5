"""The directions of import: hardware knows no host, the host knows no cocotb."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FORBIDDEN = {
    "rtl/pequin": ("pequin_sim", "pequin_tb", "cocotb", "cocotb_tools", "numpy"),
    "sim/pequin_sim": ("pequin_tb", "cocotb"),
    "tb/pequin_tb": (),
}
"""Packages that no module below a directory may import."""

RUNNER_ONLY = ("cocotb_tools",)
"""Packages of the simulator's runner; the rest of the host side must not know them."""

MAY_USE_RUNNER = ("sim/pequin_sim/runner/", "sim/pequin_sim/bench/")

INDEPENDENT = {
    "sim/pequin_sim/golden": ("pequin.config", "pequin.errors"),
    "sim/pequin_sim/mx": ("pequin.config", "pequin.errors"),
    "sim/pequin_sim/layout.py": ("pequin.config", "pequin.errors"),
    "sim/pequin_sim/isa": ("pequin.config", "pequin.errors"),
    "sim/pequin_sim/machine": ("pequin.config", "pequin.errors"),
}
"""What golden models and layouts may take from the hardware: names of sizes and errors."""


def modules(place):
    path = ROOT / place
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


def imported(path):
    """Yield the dotted names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide directions"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offenders(files, packages):
    pattern = re.compile(rf"({'|'.join(map(re.escape, packages))})(\.|$)") if packages else None
    return sorted(
        f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}: {name}"
        for path in files
        for name in imported(path)
        if pattern and pattern.match(name)
    )


@pytest.mark.parametrize("place", FORBIDDEN)
def test_no_module_imports_against_the_direction(place):
    files = modules(place)
    assert files
    assert offenders(files, FORBIDDEN[place]) == []


def test_only_the_runner_knows_cocotb_s_tools():
    files = [
        path
        for path in modules("sim/pequin_sim")
        if not path.relative_to(ROOT).as_posix().startswith(MAY_USE_RUNNER)
    ]
    assert offenders(files, RUNNER_ONLY) == []


@pytest.mark.parametrize("place", INDEPENDENT)
def test_golden_models_take_only_names_from_the_hardware(place):
    for path in modules(place):
        for name in imported(path):
            if name == "pequin" or name.startswith("pequin."):
                assert name.startswith(INDEPENDENT[place]), f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "text",
    ["import numpy", "from numpy.linalg import norm", "def f():\n    from pequin_sim import cli"],
)
def test_the_check_finds_an_offender(tmp_path, text):
    path = tmp_path / "bad.py"
    path.write_text(text)
    assert offenders([path], FORBIDDEN["rtl/pequin"])


def test_the_check_does_not_take_a_prefix_for_a_package(tmp_path):
    path = tmp_path / "good.py"
    path.write_text("import cocotb_toolset\nimport numpydoc")
    assert offenders([path], ("cocotb", "numpy", "cocotb_tools")) == []
