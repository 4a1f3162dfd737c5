"""How busy a decoder layer keeps the HBM channel, measured in RTL."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pequin.config import BEAT_BYTES, TileConfig, TileParams
from pequin.tile.counters import cause_groups
from pequin.tile.types import Memory
from pequin_sim.compiler import CompiledDecoder, Options, compile_share
from pequin_sim.machine import Column, EventKind, Machine, Step
from pequin_sim.model import ModelShape, random_quantized
from pequin_sim.tile.compare import Comparison, compare_tile

STEPS = 2
"""Steps of a run; the difference of their ends is one step in which everything is warm."""


@dataclass(frozen=True)
class LayerCase:
    """A layer to measure.

    Parameters
    ----------
    name
        For the table.
    shape
        The whole model's sizes; its `layers` are not read.
    tiles
        Tiles that share each matrix by rows; 1 keeps the layer whole.
    context
        Tokens that the measured step attends to.
    target
        Share of the clocks in which the data bus is to be busy.
    """

    name: str
    shape: ModelShape
    tiles: int
    context: int
    target: float


def _shape(hidden: int, heads: int, kv_heads: int, head_dim: int, mlp: int) -> ModelShape:
    return ModelShape(
        layers=1,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=mlp,
        vocab=64,
    )


_LARGE = _shape(2880, 64, 8, 64, 2880)

CASES = (
    LayerCase("hidden 2880, whole", _LARGE, 1, 256, 0.97),
    LayerCase("hidden 512, whole", _shape(512, 8, 2, 64, 1536), 1, 256, 0.96),
    LayerCase("hidden 2880, 1/64 of the rows", _LARGE, 64, 256, 0.90),
    LayerCase("hidden 2880, 1/384 of the rows", _LARGE, 384, 256, 0.75),
)
"""The layers of the architecture's measurement plan, with what a cycle model found reachable."""


@dataclass(frozen=True)
class LayerResult:
    """One layer's clocks, as the difference of a run with one more layer.

    Parameters
    ----------
    case
        What was measured.
    clocks
        Clocks of the layer.
    beats
        HBM beats read in it, weights and their scales.
    expected_beats
        The closed form of the layer's weights.
    kv_clocks
        Clocks in which the KV buffer gave payload beats, one or two.
    busy
        beats / clocks.
    bound
        beats / (beats + exposed KV clocks): what comes from HBM while the array takes K and V
        fits the weight FIFO or waits. No vector clock is exposed.
    unbuffered
        The same without a weight FIFO: beats / (beats + KV clocks).
    causes
        Clocks by cause and group, the mean of both steps; each group adds up to `counted` but for
        rounding.
    counted
        Clocks of the layer by the tile's own counter, the mean of both steps; `clocks` is the
        second step alone.
    match
        Whether RTL and golden machine agreed in every place.
    """

    case: LayerCase
    clocks: int
    beats: int
    expected_beats: int
    kv_clocks: int
    busy: float
    bound: float
    unbuffered: float
    causes: dict[str, dict[str, int]]
    counted: int
    match: bool

    def describe(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "name": self.case.name,
            "tiles": self.case.tiles,
            "context": self.case.context,
            "clocks": self.clocks,
            "hbm_beats": self.beats,
            "hbm_beats_expected": self.expected_beats,
            "kv_clocks": self.kv_clocks,
            "busy": self.busy,
            "bound": self.bound,
            "bound_unbuffered": self.unbuffered,
            "target": self.case.target,
            "pass": self.passed,
            "match": self.match,
            "causes": self.causes,
            "causes_clocks": self.counted,
        }

    @property
    def passed(self) -> bool:
        """Whether the target is reached, with exactly the expected beats and values."""
        return self.match and self.beats == self.expected_beats and self.busy >= self.case.target


def measure_layer(
    case: LayerCase, config: TileConfig, *, layers: int = 1, seed: int = 1, **options: Any
) -> LayerResult:
    """Measure one layer between others: `layers` + 1 layers less `layers` layers.

    The KV cache of the earlier positions is filled with random numbers.

    Parameters
    ----------
    case
        What to measure.
    config
        The tile; its HBM store and KV buffer are enlarged as needed.
    layers
        Layers of the smaller run.
    seed
        Of weights and cache.
    options
        Go to `pequin_sim.rtl.tile.run_tile`.
    """
    runs = [_Run(case, config, count, seed) for count in (layers, layers + 1)]
    params = runs[1].params(config)
    parts = [run.play(params, options) for run in runs]
    clocks, beats, kv_clocks = (
        b - a for a, b in zip(parts[0].figures(), parts[1].figures(), strict=True)
    )
    expected = runs[1].program.weight_beats - runs[0].program.weight_beats
    causes = {
        group: {name.rsplit(".", 1)[-1]: _difference(parts, name) for name in names}
        for group, names in cause_groups().items()
    }
    exposed = max(0, kv_clocks - params.config.fifo_beats)
    return LayerResult(
        case=case,
        clocks=clocks,
        beats=beats,
        expected_beats=expected,
        kv_clocks=kv_clocks,
        busy=beats / clocks,
        bound=beats / (beats + exposed),
        unbuffered=beats / (beats + kv_clocks),
        causes=causes,
        counted=_difference(parts, "clocks"),
        match=all(part.comparison.match for part in parts),
    )


class _Run:
    """One of the two runs."""

    def __init__(self, case: LayerCase, config: TileConfig, layers: int, seed: int) -> None:
        self.case, self.seed = case, seed
        self.shape = dataclasses.replace(case.shape, layers=layers)
        # Sizes that fit; the places of a program do not depend on how much is left.
        self.program = self._compile(TileParams(self._enlarged(config, 1 << 27, 1 << 15)))

    def _enlarged(self, config: TileConfig, store: int, kv: int) -> TileConfig:
        # A layer does not fit the block RAM of an FPGA; what is measured is the HBM bus.
        return config.replace(
            memory="hbm",
            store_bytes=max(store, config.store_bytes),
            kv_beats=max(kv, config.kv_beats),
        )

    def _compile(self, params: TileParams) -> CompiledDecoder:
        return compile_share(
            self.shape, params, self.case.tiles, Options(max_positions=self.case.context)
        )

    def params(self, config: TileConfig) -> TileParams:
        """Return the smallest enlargement of the tile that holds this run."""
        beats = self.program.map.hbm.stop
        store = config.store_bytes
        while store < beats * BEAT_BYTES:
            store *= 2
        kv = config.kv_beats
        while kv < self.program.map.kv.slot:
            kv *= 2
        return TileParams(self._enlarged(config, store, kv))

    def play(self, params: TileParams, options: dict[str, Any]) -> _Part:
        """Run two steps at the end of the context on both machines."""
        program = self._compile(params)
        image = program.image(random_quantized(self.shape, self.seed))
        cache = _random_cache(program, params, self.case, self.seed)
        last = self.case.context - 1
        steps = [Step([Column(0, 1, position, 0, 0, 0)]) for position in (last - 1, last)]
        machine = Machine(params, image, program.program, races="off")
        machine.memory.kv[:] = cache
        golden = machine.run(steps)
        comparison = compare_tile(
            params,
            program.program,
            image,
            steps,
            golden=golden,
            job={"loads": [(Memory.KV, 0, cache)], "timeout_clocks": 50_000_000},
            **options,
        )
        return _Part(comparison)


@dataclass(frozen=True)
class _Part:
    comparison: Comparison

    def figures(self) -> tuple[int, int, int]:
        """Return clocks of the second step, HBM beats and KV clocks of a step."""
        run = self.comparison.rtl
        ends = [
            stamp
            for event, stamp in zip(run.events, run.stamps, strict=True)
            if event.kind is EventKind.DONE
        ]
        reads = run.counters["hbm.reads"]
        return ends[1] - ends[0], reads // STEPS, run.counters["kv.busy"] // STEPS


def _difference(parts: list[_Part], name: str) -> int:
    """Return a layer's clocks of one cause; a cause that rarely comes may be a few below zero."""
    before, after = (part.comparison.rtl.counters[name] for part in parts)
    return round((after - before) / STEPS)


def _random_cache(
    program: CompiledDecoder, params: TileParams, case: LayerCase, seed: int
) -> npt.NDArray[np.uint8]:
    """Return a KV buffer of random granules for all positions, with scales near 1."""
    rng = np.random.default_rng(seed)
    kv = program.map.kv
    beats = np.zeros((params.config.kv_beats, BEAT_BYTES), np.uint8)
    blocks = (kv.granule - 8) // 64
    for start in range(0, kv.slot, kv.granule):
        granule = beats[start : start + kv.granule]
        granule[8:] = rng.integers(-90, 90, granule[8:].shape).astype(np.int8).view(np.uint8)
        granule[: blocks + 1] = 0x7F
    assert case.context % 32 == 0
    return beats
