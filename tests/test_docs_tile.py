"""docs/tile.md: its counters, registers and sizes are those of the hardware."""

import importlib
import re
from pathlib import Path

import pytest

from pequin.config import PRESETS, TileConfig
from pequin.hbm.types import RefreshMode
from pequin.tile import registers
from pequin.tile.core import STATE_BITS
from pequin.tile.counters import CAUSE_GROUPS, cause_groups, counter_names

PAGE = (Path(__file__).parents[1] / "docs" / "tile.md").read_text()


def rows(heading):
    """Return the cells of the first table's rows below a heading or a table's first cell."""
    table = PAGE[PAGE.index(heading) :].split("|---", 1)[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")[1:]]


def test_every_counter_has_its_number():
    listed = {}
    for numbers, names, _ in rows("## Counters"):
        names = re.findall(r"`([a-z_.]+)`", names)
        assert len(names) == len(numbers.split(","))
        listed |= {int(n): name for n, name in zip(numbers.split(","), names, strict=True)}
    assert [listed[n] for n in range(len(listed))] == counter_names()


def test_every_group_of_causes_is_named():
    text = " ".join(PAGE.split("## Counters")[1].split("|")[0].split())
    named = set(re.findall(r"`([a-z.]+)`", text)) - {"clocks"}
    queues = {group for group in CAUSE_GROUPS if group.startswith("queue.")}
    assert named | queues == set(cause_groups())
    assert "one for each command queue" in text


def test_identity_and_status_are_word_by_word():
    beats = {beat[0]: content for beat, content in rows("## Registers")}
    assert (
        f"magic 0x{registers.MAGIC:X}, 1 version of this layout ({registers.VERSION})"
        in (beats[str(registers.IDENTITY_BEAT)])
    )
    for beat, words in (
        (registers.IDENTITY_BEAT, registers.IDENTITY),
        (registers.SETTINGS_BEAT, registers.SETTINGS),
    ):
        numbers = [int(n) for n in re.findall(r"(?:^|, )(\d) [a-z]", beats[str(beat)])]
        assert numbers == list(range(len(words)))
    status = beats[str(registers.STATUS_BEAT)]
    assert "5 and 6 clocks since reset" in status
    assert f"{len(registers.STATUS) - 1} waiting" in status
    assert f"{registers.COUNTER_BEAT} on" in PAGE


def test_state_bits_and_settings():
    assert [int(bit) for bit, _ in rows("| bit of the state")] == list(range(STATE_BITS))
    settings = {name: (reset, meaning) for name, reset, meaning in rows("| setting")}
    assert list(settings) == list(registers.SETTINGS)
    assert settings["watchdog"][0] == f"{registers.WATCHDOG_CLOCKS:,}"
    assert settings["refresh"][0] == str(RefreshMode.PER_BANK.value)
    for mode, words in ((RefreshMode.NONE, "none"), (RefreshMode.ALL_BANK, "all banks")):
        assert f"{mode.value} {words}" in settings["refresh"][1]


def size(text):
    number, unit = re.match(r"([\d,]+)(?: ([KM]iB))?", text).groups()
    return int(number.replace(",", "")) * {None: 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]


@pytest.mark.parametrize("preset", PRESETS)
def test_sizes(preset):
    config = TileConfig.preset(preset)
    column = re.search(r"^\| \| .*$", PAGE, re.M).group().split(" | ").index(f"`{preset}`")
    table = {row[0]: row[column] for row in rows("## Sizes")}
    expected = {
        "HBM store": config.store_bytes,
        "weight FIFO": 32 * config.fifo_beats,
        "KV buffer": 32 * config.kv_beats,
        "program memory": config.program_words,
        "vector memory": 4 * config.vector_elements,
        "scalar registers": config.scalars,
        "places of a command queue": config.queue_items,
    }
    for name, value in expected.items():
        assert size(table[name]) == value, name
    assert table["activation buffer"].startswith(f"{config.columns} x {config.act_blocks}")
    assert table["MAC columns, fp32 lanes"] == f"{config.columns}, {config.lanes}"


def test_parts_exist():
    names = re.findall(r"`(pequin\.[\w.]+)`", PAGE)
    assert len(names) > 20
    for name in names:
        module, _, member = name.rpartition(".")
        if not hasattr(importlib.import_module(module), member):
            importlib.import_module(name)
