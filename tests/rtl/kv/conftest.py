"""Scripts for the KV buffer, run in RTL and compared with the golden model."""

import functools

import numpy as np
import pytest

from pequin.config import TileConfig, TileParams
from pequin.harness.stream_bench import StreamBench
from pequin.kv.bench import KvBench, StepKind, kv_script, kv_transfer
from pequin.kv.types import KvCause
from pequin.tile.types import ErrorCode, Memory, UnitFault, UnitId, beat_access, beat_answer
from pequin.tile.types import unit_words as words_of
from pequin.vector.types import kv_write
from pequin_sim.golden.kv import KvModel, NoPlaceError, misaligned
from pequin_sim.rtl.bench import BenchJob, Pauses
from pequin_sim.rtl.designs import cached_design
from pequin_sim.rtl.payloads import pack, unpack, word_bytes

DEPTHS = {
    "script": 1 << 13,
    "output": 1 << 14,
    "dma_data": 1 << 10,
    "answer": 1 << 11,
    "completions": 1 << 9,
    "faults": 16,
}
STREAMS = tuple(DEPTHS)
SRAM = Memory.KV.value << 28


def random_pauses(seed, rate=90):
    """Pause every stream, now and then for long."""
    return {
        name: Pauses(rate=rate, burst_rate=700, burst_clocks=60, seed=seed + 17 * i)
        for i, name in enumerate(STREAMS)
    }


class Script:
    """Collect a script's items, and what the golden model expects of them.

    `double` has the places whose stored words were given an error of two bits.
    """

    def __init__(self, params):
        self.params = params
        self.model = KvModel(params.config.kv_beats)
        self.fields = {name: [] for name in ("barrier", "kind", "flip")}
        self.words = {name: [] for name in ("write", "command", "access")}
        self.transfers, self.answers, self.dma_answers = [], [], []
        self.completions, self.faults = 0, []
        self.double = set()
        self.written_dead = self.read_dead = False
        self.payload_beats = 0

    def _add(self, kind, barrier, *, flip=0, **words):
        self.fields["barrier"].append(barrier)
        self.fields["kind"].append(kind.value)
        self.fields["flip"].append(flip)
        for name, stored in self.words.items():
            stored.append(words.get(name))

    # Writes of the vector unit.

    def key(self, address, lane, elements, scale, *, last=True, barrier=False):
        item = {"values": 0, "address": address, "lane": lane, "scale": scale, "last": last}
        item["elements"] = np.asarray(elements, np.uint8)[None]
        self._add(StepKind.WRITE, barrier, write=pack(kv_write(), item, 1)[0])
        self._write(lambda: self.model.write_key(address, lane, elements, scale))

    def value(self, address, lane, element, scale, *, last, barrier=False):
        item = {"values": 1, "address": address, "lane": lane, "scale": scale, "last": last}
        item["elements"] = np.full((1, 32), element, np.uint8)
        self._add(StepKind.WRITE, barrier, write=pack(kv_write(), item, 1)[0])
        self._write(lambda: self.model.write_value(address, lane, element, scale, last))

    def values(self, granule, lane, elements, scale, *, barrier=False):
        for d, element in enumerate(elements):
            last = d + 1 == len(elements)
            self.value(granule + d, lane, int(element), scale, last=last, barrier=barrier)
            barrier = False

    def token(self, rng, granule, lane, *, barrier=False, head=None):
        """Write one token's K and V."""
        for block in range(self.model.blocks):
            scale = int(rng.integers(256))
            elements = rng.integers(0, 256, 32).astype(np.uint8)
            last = block + 1 == self.model.blocks
            self.key(granule + block, lane, elements, scale, last=last, barrier=barrier)
            barrier = False
        size = head or 32 * self.model.blocks
        self.values(granule, lane, rng.integers(0, 256, size), int(rng.integers(256)))

    def _write(self, change):
        if self.written_dead:
            return
        try:
            change()
        except NoPlaceError as error:
            self.written_dead = True
            self.faults.append((ErrorCode.KV_ADDRESS.value, error.address))

    # Commands.

    def command(self, kind, address=0, step=0, rows=0, last=0, *, barrier=False):
        words = [kind, address, step, rows, last]
        layout = np.array(words, np.uint32).view(np.uint8)
        assert len(layout) == word_bytes(words_of(UnitId.KV))
        self._add(StepKind.COMMAND, barrier, command=layout)
        if self.read_dead:
            return
        bad = kind > 2 or last == 0 or (kind != 2 and rows == 0)
        bad = bad or (kind != 1 and last > 7) or (kind == 1 and rows > 224)
        if bad:
            self._fail(ErrorCode.COMMAND, kind)
        elif kind == 2:
            self.model.blocks = last
            self.completions += 1
        else:
            self._read(kind, address, step, rows, last)

    def configure(self, blocks, **options):
        self.command(2, last=blocks, **options)

    def keys(self, address, step, tokens, blocks, **options):
        self.command(0, address, step, tokens, blocks, **options)

    def values_of(self, address, step, rows, granules, **options):
        self.command(1, address, step, rows, granules, **options)

    def _fail(self, code, detail):
        self.read_dead = True
        self.faults.append((code.value, detail))

    def _read(self, kind, address, step, rows, last):
        wrong = misaligned(address, step, last if kind == 1 else -(-rows // 32))
        if wrong is not None:
            self._fail(ErrorCode.KV_ADDRESS, wrong)
            return
        walk = self.model.values if kind == 1 else self.model.keys
        whole = walk(address, step, rows, last)
        transfers, outside = self.model.checked(whole)
        for i, transfer in enumerate(transfers):
            lost = [a for a in transfer if a in self.double]
            if lost:
                self._fail(ErrorCode.SRAM_ECC, SRAM | lost[0])
                return
            beats = [self.model.beats[a].copy() for a in transfer]
            self.transfers.append((beats, i + 1 == len(whole)))
        if outside is not None:
            self._fail(ErrorCode.KV_ADDRESS, outside)
        else:
            self.completions += 1
            beats = sum(map(len, whole))
            self.payload_beats += rows * last if kind == 0 else beats

    # DMA and host.

    def dma(self, address, *, barrier=False):
        given = pack(beat_access(), {"address": [address]}, 1)[0]
        self._add(StepKind.DMA, barrier, access=given)
        self.dma_answers.append(self._look(address, ErrorCode.KV_ADDRESS))

    def host_read(self, address, *, barrier=False):
        given = pack(beat_access(), {"address": [address]}, 1)[0]
        self._add(StepKind.ACCESS, barrier, access=given)
        self.answers.append(self._look(address, ErrorCode.ACCESS))

    def host_write(self, address, beat, *, flip=0, barrier=False):
        given = {"write": 1, "address": [address], "data": np.asarray(beat, np.uint8)[None]}
        self._add(StepKind.ACCESS, barrier, flip=flip, access=pack(beat_access(), given, 1)[0])
        if address >= self.model.size:
            self.answers.append((ErrorCode.ACCESS.value, np.zeros(32, np.uint8)))
            return
        self.model.beats[address] = beat
        self.answers.append((0, None))
        (self.double.add if flip.bit_count() == 2 else self.double.discard)(address)

    def _look(self, address, outside):
        if address >= self.model.size:
            return outside.value, np.zeros(32, np.uint8)
        if address in self.double:
            return ErrorCode.SRAM_ECC.value, np.zeros(32, np.uint8)
        return 0, self.model.beats[address].copy()

    def read_all(self, *, barrier=True):
        for address in range(self.model.size):
            self.host_read(address, barrier=barrier)
            barrier = False

    # Running.

    def packed(self):
        layout, count = kv_script(), len(self.fields["kind"])
        fields = {name: np.array(self.fields[name]) for name in ("barrier", "kind")}
        flips = [np.frombuffer(f.to_bytes(36, "little"), np.uint8) for f in self.fields["flip"]]
        fields["flip"] = np.stack(flips)
        sizes = {"write": kv_write(), "command": words_of(UnitId.KV), "access": beat_access()}
        for name, inner in sizes.items():
            empty = np.zeros(word_bytes(inner), np.uint8)
            fields[name] = np.stack([empty if w is None else w for w in self.words[name]])
        return pack(layout, fields, count)

    def run(self, design, pauses=None, **options):
        """Run in RTL, compare everything, and return the run."""
        answer_size = word_bytes(beat_answer())
        outputs = {
            "output": (len(self.transfers), word_bytes(kv_transfer())),
            "dma_data": (len(self.dma_answers), answer_size),
            "answer": (len(self.answers), answer_size),
            "completions": (self.completions, 1),
            "faults": (len(self.faults), word_bytes(UnitFault.as_shape())),
        }
        script = self.packed()
        for name, (count, _) in outputs.items():
            assert count <= DEPTHS[name], name
        assert len(script) <= DEPTHS["script"]
        job = BenchJob(
            inputs={"script": script},
            outputs=outputs,
            pauses=pauses or {},
            monitors=("counts", "beats", "repairs", "broken"),
            timeout_clocks=5000 + 60 * len(script) + 40 * len(self.transfers),
        )
        run = job.run(design, **options)
        assert run.after["broken"] == 0
        self._check(run)
        return run

    def _check(self, run):
        check_transfers(run.recorded["output"], self.transfers)
        check_answers(run.recorded["dma_data"], self.dma_answers)
        check_answers(run.recorded["answer"], self.answers)
        faults = unpack(UnitFault.as_shape(), run.recorded["faults"])
        got = list(zip(faults["code"].tolist(), faults["detail"].tolist(), strict=True))
        assert got == self.faults
        if not self.faults:
            assert run.after["beats"] == self.payload_beats


def check_transfers(words, expected):
    layout = kv_transfer()
    bits = np.unpackbits(words, axis=1, bitorder="little")
    beats = np.packbits(bits[:, :512], axis=1, bitorder="little").reshape(-1, 2, 32)
    two = bits[:, 512].astype(bool)
    last = bits[:, 513].astype(bool)
    assert layout.size == 514
    assert two.tolist() == [len(b) == 2 for b, _ in expected]
    assert last.tolist() == [end for _, end in expected]
    for i, (wanted, _) in enumerate(expected):
        np.testing.assert_array_equal(beats[i, : len(wanted)], np.stack(wanted), err_msg=f"{i}")


def check_answers(words, expected):
    assert words.shape[0] == len(expected)
    if not len(expected):
        return
    assert words[:, 0].tolist() == [error for error, _ in expected]
    for i, (_, beat) in enumerate(expected):
        if beat is not None:
            np.testing.assert_array_equal(words[i, 1:], beat, err_msg=f"answer {i}")


def cause_counts_of(run):
    """Return clocks by cause, and that they sum to those of the run."""
    mask, packed = (1 << 48) - 1, run.after["counts"]
    return {cause.name: packed >> 48 * i & mask for i, cause in enumerate(KvCause)}


@functools.lru_cache
def _params(preset):
    return TileParams(TileConfig.preset(preset))


@pytest.fixture(scope="session")
def params():
    return _params("tiny")


@pytest.fixture(scope="session")
def design(params):
    """Return the bench as Verilog."""

    def build():
        return StreamBench(KvBench(params), depths=DEPTHS)

    return cached_design("kv_stream_bench", params, build, variant=repr(DEPTHS))


@pytest.fixture
def script(params):
    """Return a new script."""
    return Script(params)


@pytest.fixture
def pauses():
    return random_pauses


@pytest.fixture
def causes():
    return cause_counts_of
