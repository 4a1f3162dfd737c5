"""Clocks of the KV buffer: two beats per clock, one item per clock, and nobody starves."""

import numpy as np
import pytest


def granule_beats(blocks):
    return 8 + 64 * blocks


START = 16
"""Clocks for the first command to reach the output and the last transfer to be recorded."""


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_keys_take_17_clocks_for_a_chunk(design, script, causes, blocks):
    size = granule_beats(blocks)
    count = 512 // size
    for _ in range(12):
        script.keys(0, size, 32 * count, blocks)
    run = script.run(design)
    transfers = 12 * count * blocks * 17
    assert len(script.transfers) == transfers
    assert transfers <= run.clocks <= transfers + START
    counts = causes(run)
    assert counts["BUSY"] == transfers * 16 // 17
    assert counts["SCALE"] == transfers // 17
    assert counts["BANK"] == counts["WRITES"] == counts["OUTPUT"] == 0
    assert counts["SETUP"] <= 3


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_values_of_pairs_of_granules_take_two_beats_per_clock(design, script, causes, blocks):
    size = granule_beats(blocks)
    for _ in range(8):
        script.values_of(0, size, 32 * blocks, 2)
    run = script.run(design)
    clocks = 8 * 32 * blocks
    assert run.after["beats"] == 2 * clocks
    assert clocks <= run.clocks <= clocks + START
    assert causes(run)["BUSY"] == clocks


def test_granules_in_one_bank_take_a_clock_each(design, script, causes):
    script.values_of(0, 144, 32, 3)
    script.values_of(0, 72, 32, 7)
    run = script.run(design)
    assert causes(run)["BUSY"] == 32 * 3 + 32 * 4
    assert run.clocks <= 32 * 7 + START


def test_short_commands_follow_each_other_every_other_clock(design, script):
    for _ in range(100):
        script.keys(0, 72, 3, 1)
    run = script.run(design)
    assert run.clocks <= 300 + START


def test_elements_of_v_are_stored_one_per_clock(design, script):
    rng = np.random.default_rng(0)
    script.configure(3)
    for lane in range(24):
        script.values(8 * (lane % 3) + 200 * (lane % 2), lane, rng.integers(0, 256, 96), lane)
    script.read_all()
    run = script.run(design)
    alone = 24 * 96
    # Reading all beats takes 6 clocks each.
    assert run.clocks <= alone + 6 * 512 + 150


@pytest.mark.parametrize(("blocks", "most"), [(1, 1.6), (2, 1.5), (3, 1.4)])
def test_blocks_of_k_are_stored_nearly_one_per_clock(design, script, blocks, most):
    rng = np.random.default_rng(0)
    script.configure(blocks)
    items = 0
    while items < 1500:
        vector = items // blocks
        granule, lane = (
            granule_beats(blocks) * (vector % (512 // granule_beats(blocks))),
            vector % 32,
        )
        for block in range(blocks):
            elements = rng.integers(0, 256, 32)
            script.key(granule + block, lane, elements, block, last=block + 1 == blocks)
            items += 1
    script.keys(0, granule_beats(blocks), 64, blocks)
    run = script.run(design)
    assert run.clocks <= most * items + len(script.transfers) + START


def test_accesses_and_writes_get_their_clocks_from_a_busy_reader(design, script, causes):
    rng = np.random.default_rng(0)
    script.configure(1)
    # Reads of granule 0 again and again, while granule 1 is written and looked at.
    script.keys(0, 0, 32 * 300, 1)
    for i in range(40):
        script.host_read(int(rng.integers(72)))
        script.dma(int(rng.integers(72)))
        script.host_write(200 + i, rng.integers(0, 256, 32))
    script.values(72, 3, rng.integers(0, 256, 32), 7)
    script.key(72, 3, rng.integers(0, 256, 32), 7)
    script.keys(0, 0, 32, 1, barrier=True)
    script.read_all()
    run = script.run(design)
    served = 40 * 3 + 33 + 2
    assert 0 < causes(run)["BANK"] <= 2 * served
    # One after the other it would take 13 clocks for each access, on top of the command.
    assert run.clocks <= 300 * 17 + causes(run)["BANK"] + 6 * 512 + 100


def test_an_access_does_not_wait_for_the_end_of_writing(design, script):
    rng = np.random.default_rng(0)
    script.configure(7)
    elements = rng.integers(1, 256, 224).tolist()
    for d, element in enumerate(elements):
        if d == 100:
            # A hundred writes later its beat is written, which the access must not see.
            script.host_read(8 + 32 * 7 + 200)
        script.value(d, 3, element, 7, last=d == 223)
    script.host_read(8 + 32 * 7 + 200)
    run = script.run(design)
    assert not script.answers[0][1].any()
    assert script.answers[1][1][3] == elements[200]
    assert run.clocks < 224 + 80
