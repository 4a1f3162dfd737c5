"""The documents: links lead somewhere, and the commands and options they show exist."""

import importlib
import re
from pathlib import Path

import pytest

from pequin_sim.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page):
    return str(page.relative_to(ROOT))


def anchors(page):
    """Return the anchors of a page's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page):
    for name in re.findall(r"(?:^|`|bin/)pequin ([a-z]+)", page.read_text(), re.M):
        assert name in COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_of_commands_exist(page):
    for name, words in re.findall(r"^pequin ([a-z]+)(.*(?:\n {8,}.*)*)", page.read_text(), re.M):
        command = importlib.import_module(f"pequin_sim.cli.{name}").command
        # A group's options are those of its subcommands.
        parts = [command, *getattr(command, "commands", {}).values()]
        known = {o for c in parts for p in c.params for o in (*p.opts, *p.secondary_opts)}
        for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", words.split("#")[0]):
            assert option in known, f"pequin {name} has no option {option}"
