"""The ledger of simulated clocks: what `make test` may spend, and which tests spend it."""

import collections
import json
import os
import tempfile
from pathlib import Path

import pytest

from pequin_sim.runner.run import LEDGER

CLOCKS = 60_000_000
"""What all simulation in `make test` may take together; long campaigns are not bound by it."""

SHOWN = 8
"""Tests that the summary names."""

FOLDER = pytest.StashKey()


def pytest_configure(config):
    """Name the ledger, once for all processes of a run."""
    if LEDGER not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="pequin-ledger-")
        config.stash[FOLDER] = folder
        os.environ[LEDGER] = str(Path(folder.name) / "ledger.jsonl")


def spent(path):
    """Return the clocks of each test."""
    tests = collections.Counter()
    if path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            tests[entry["test"] or entry["design"]] += entry["clocks"]
    return tests


def ledger():
    return Path(os.environ[LEDGER])


def bound_by_it(config):
    return FOLDER in config.stash and "not soak" in config.option.markexpr


def pytest_sessionfinish(session, exitstatus):
    """Fail a run that took too many clocks."""
    passed = exitstatus == pytest.ExitCode.OK
    if passed and bound_by_it(session.config) and spent(ledger()).total() > CLOCKS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    """Show where the clocks went."""
    if FOLDER not in config.stash:
        return
    tests = spent(ledger())
    if tests:
        terminalreporter.section("simulated clocks")
        for test, clocks in tests.most_common(SHOWN):
            terminalreporter.line(f"{clocks:>12,}  {test}")
        limit = f" of at most {CLOCKS:,}" if bound_by_it(config) else ""
        terminalreporter.line(f"{tests.total():>12,}  in all{limit}")


def pytest_unconfigure(config):
    """Remove the ledger."""
    if FOLDER in config.stash:
        del os.environ[LEDGER]
        config.stash[FOLDER].cleanup()
