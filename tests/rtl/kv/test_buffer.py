"""KvBuffer against the golden model: writes, keys, values, DMA, host, errors."""

import numpy as np
import pytest

from pequin.tile.types import ErrorCode


def granule_beats(blocks):
    return 8 + 64 * blocks


@pytest.mark.parametrize("pausing", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_tokens_come_back_as_keys_and_values(design, script, pauses, blocks, pausing):
    rng = np.random.default_rng(blocks)
    size = granule_beats(blocks)
    count = min(3, 512 // size)
    script.configure(blocks)
    tokens = 32 * count - 5
    for token in range(tokens):
        script.token(rng, token // 32 * size, token % 32, head=32 * blocks - 3)
    script.keys(0, size, tokens, blocks)
    script.values_of(0, size, 32 * blocks - 3, count)
    script.keys(size * (count - 1), 0, 1, blocks)
    for granule in range(count):
        script.dma(size * granule + blocks)
    script.read_all()
    assert len(script.transfers) > 100
    run = script.run(design, pauses(blocks) if pausing else None)
    assert run.after["repairs"] == 0


@pytest.mark.parametrize("seed", range(6))
def test_random_scripts(design, script, pauses, seed):
    # Every command and access comes right behind the writes that it must see.
    rng = np.random.default_rng(seed)
    blocks = int(rng.integers(1, 4))
    size = granule_beats(blocks)
    bases = [size * i for i in range(512 // size)]
    script.configure(blocks)
    reading = False
    while len(script.fields["kind"]) < 3000 and len(script.answers) < 900:
        base = int(rng.choice(bases))
        match rng.integers(6):
            case 0 | 1:
                for lane in rng.integers(0, 32, rng.integers(1, 4)):
                    script.token(rng, base, int(lane), barrier=reading)
                    reading = False
            case 2:
                back = rng.random() < 0.3
                place = bases.index(base)
                tokens = int(rng.integers(1, 32 * (place + 1 if back else len(bases) - place) + 1))
                step = -size % (1 << 32) if back else size
                script.keys(base, step, tokens, blocks)
                reading = True
            case 3:
                count = int(rng.integers(1, 1 + len(bases[bases.index(base) :])))
                script.values_of(base, size, int(rng.integers(1, 32 * blocks + 1)), count)
                reading = True
            case 4:
                script.dma(base + int(rng.integers(0, size)))
                reading = True
            case _:
                address = int(rng.integers(0, 512))
                if rng.random() < 0.5:
                    script.host_write(address, rng.integers(0, 256, 32), barrier=reading)
                    reading = False
                for _ in range(int(rng.integers(1, 4))):
                    script.host_read(address)
                    address = int(rng.integers(0, 512))
                reading = True
    script.read_all()
    assert not script.faults
    script.run(design, pauses(seed) if seed % 3 else None)


@pytest.mark.parametrize("reader", ["command", "dma", "host"])
def test_a_reading_right_behind_a_write_sees_it(design, script, reader):
    rng = np.random.default_rng(5)
    script.configure(1)
    for turn in range(60):
        lane, value = int(rng.integers(32)), turn % 2
        if value:
            script.values(0, lane, [int(rng.integers(256))], int(rng.integers(256)), barrier=True)
        else:
            elements = rng.integers(0, 256, 32).astype(np.uint8)
            script.key(0, lane, elements, int(rng.integers(256)), barrier=True)
        place = (8 + 32 if turn % 4 == 1 else 1) if value else 0
        if reader == "host":
            script.host_read(place)
        elif reader == "dma":
            script.dma(place)
        elif value:
            script.values_of(0, 0, 1, 1)
        else:
            script.keys(0, 0, lane + 1, 1)
    script.run(design)


@pytest.mark.parametrize("pausing", [False, True])
@pytest.mark.parametrize("blocks", [2, 3])
def test_k_in_the_order_of_a_drain_with_v_between(design, script, pauses, blocks, pausing):
    # Block j of all vectors before block j + 1; elements of V come at any time.
    rng = np.random.default_rng(blocks)
    size = granule_beats(blocks)
    heads = 512 // size
    script.configure(blocks)
    for lane in range(12):
        keys = [(h, b) for b in range(blocks) for h in range(heads)]
        values = [(h, d) for h in range(heads) for d in range(32 * blocks - 1)]
        scales = rng.integers(0, 256, heads)
        while keys or values:
            if keys and (not values or rng.random() < 0.1):
                head, block = keys.pop(0)
                place, scale = size * head + block, int(rng.integers(256))
                elements = rng.integers(0, 256, 32).astype(np.uint8)
                script.key(place, lane, elements, scale, last=block + 1 == blocks)
            else:
                head, d = values.pop(0)
                last, element = d + 1 == 32 * blocks - 1, int(rng.integers(256))
                script.value(size * head + d, lane, element, int(scales[head]), last=last)
    script.keys(0, size, 32 * heads, blocks)
    script.read_all()
    script.run(design, pauses(blocks) if pausing else None)


@pytest.mark.parametrize("seed", range(3))
def test_single_errors_are_corrected_everywhere(design, script, seed):
    rng = np.random.default_rng(seed)
    script.configure(2)
    beats = rng.integers(0, 256, (512, 32)).astype(np.uint8)
    for address in range(136):
        # One error in each of the four words, in data or check bits.
        flip = 0
        for word in range(4):
            bit = int(rng.integers(72))
            flip |= 1 << (64 * word + bit if bit < 64 else 256 + 8 * word + bit - 64)
        script.host_write(address, beats[address], flip=flip)
    script.host_write(511, beats[511])
    script.keys(0, 136, 32, 2, barrier=True)
    script.values_of(0, 136, 64, 1)
    script.dma(2)
    script.token(rng, 0, 7, barrier=True)
    script.read_all()
    run = script.run(design)
    assert run.after["repairs"] > 136


def test_a_double_error_stops_a_command_with_its_address(design, script):
    rng = np.random.default_rng(1)
    for address in range(80):
        script.host_write(address, rng.integers(0, 256, 32))
    script.host_write(20, rng.integers(0, 256, 32), flip=0b101)
    script.host_write(511, np.zeros(32))
    script.keys(0, 0, 5, 1, barrier=True)
    script.keys(0, 0, 32, 1)
    script.host_read(20)
    script.host_read(21)
    script.dma(20)
    script.dma(19)
    assert script.faults == [(ErrorCode.SRAM_ECC.value, 2 << 28 | 20)]
    script.run(design)


@pytest.mark.parametrize("value", [False, True])
def test_a_double_error_met_by_a_write_is_a_fault(design, script, value):
    rng = np.random.default_rng(1)
    address = 8 + 32 + 13 if value else 0
    script.configure(1)
    script.host_write(address, rng.integers(0, 256, 32), flip=3 << 70, barrier=True)
    script.host_write(511, np.zeros(32), barrier=True)
    if value:
        script.values(0, 3, range(14), 5)
    else:
        script.key(0, 3, range(32), 5)
    script.faults.append((ErrorCode.SRAM_ECC.value, 2 << 28 | address))
    script.run(design)


COMMANDS = {
    "kind": ((3, 0, 0, 1, 1), (ErrorCode.COMMAND, 3)),
    "no tokens": ((0, 0, 0, 0, 1), (ErrorCode.COMMAND, 0)),
    "no blocks": ((0, 0, 0, 1, 0), (ErrorCode.COMMAND, 0)),
    "many blocks": ((0, 0, 0, 1, 8), (ErrorCode.COMMAND, 0)),
    "no rows": ((1, 0, 0, 0, 1), (ErrorCode.COMMAND, 1)),
    "many rows": ((1, 0, 0, 225, 1), (ErrorCode.COMMAND, 1)),
    "no granules": ((1, 0, 0, 1, 0), (ErrorCode.COMMAND, 1)),
    "nothing to configure": ((2, 0, 0, 0, 0), (ErrorCode.COMMAND, 2)),
    "too much to configure": ((2, 0, 0, 0, 9), (ErrorCode.COMMAND, 2)),
    "misaligned": ((0, 12, 0, 1, 1), (ErrorCode.KV_ADDRESS, 12)),
    "misaligned step": ((1, 8, 73, 1, 2), (ErrorCode.KV_ADDRESS, 81)),
    "scale outside": ((0, 512, 0, 1, 1), (ErrorCode.KV_ADDRESS, 512)),
    "far outside": ((0, 1 << 31, 0, 1, 1), (ErrorCode.KV_ADDRESS, 1 << 31)),
    "payload outside": ((0, 496, 0, 9, 1), (ErrorCode.KV_ADDRESS, 512)),
    "second of a pair outside": ((1, 432, 72, 2, 2), (ErrorCode.KV_ADDRESS, 544)),
    "second granule outside": ((0, 432, 72, 33, 1), (ErrorCode.KV_ADDRESS, 512)),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_commands_are_told_in_their_turn(design, script, pauses, name):
    words, (code, detail) = COMMANDS[name]
    script.keys(0, 72, 70, 1)
    script.command(*words)
    script.host_read(3)
    assert script.faults == [(code.value, detail)]
    assert script.completions == 1
    script.run(design, pauses(3))


def test_a_step_of_a_single_granule_is_not_looked_at(design, script):
    script.keys(0, 3, 32, 1)
    script.values_of(8, 5, 3, 1)
    assert not script.faults
    script.run(design)


WRITES = {
    "never configured": (0, "key", 0),
    "block beyond": (2, "key", 8 + 2),
    "payload outside": (2, "key", 504),
    "misaligned value": (2, "value", 4),
    "value outside": (7, "value", 512 - 8 - 7 * 32),
    "value far outside": (7, "value", (1 << 24) - 8),
    "value beyond": (1, "values", 0),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_without_a_place_are_told(design, script, name):
    blocks, kind, address = WRITES[name]
    if blocks:
        script.configure(blocks)
    if kind == "key":
        script.key(address, 31, range(32), 9, barrier=True)
        expected = address
    elif kind == "value":
        script.values(address, 1, [5], 9, barrier=True)
        expected = address
    else:
        script.values(address, 1, range(33), 9, barrier=True)
        expected = 32
    script.key(0, 0, range(32), 1)
    for address in range(0, 128, 8):
        script.host_read(address)
    assert script.faults == [(ErrorCode.KV_ADDRESS.value, expected)]
    script.run(design)


def test_accesses_outside_are_refused(design, script):
    script.host_read(512)
    script.host_write(1 << 31, np.ones(32))
    script.host_write(0, np.ones(32))
    script.dma(512)
    script.dma(0)
    script.host_read(0)
    script.run(design)
    assert [e for e, _ in script.answers] == [ErrorCode.ACCESS.value] * 2 + [0, 0]
