"""The instructions of attention for several columns."""

from __future__ import annotations

import dataclasses

from pequin_sim.compiler.batch_layer import BatchLayerCode
from pequin_sim.compiler.plan import Wave
from pequin_sim.compiler.values import Each, Loop, Waits


class BatchAttentionCode(BatchLayerCode):
    """Emits attention column by column.

    With two sets of buffers, the scores of a column come before the outputs of the column before,
    so that its softmax is hidden; the code of a column is then there twice, once for each set.
    """

    @property
    def sets(self) -> int:
        """Sets of queries and of V's scales: columns that are at work at a time."""
        return self.map.attention.buffers

    def attention(self) -> None:
        """Attend with all columns to the sequences of each."""
        b, r = self.b, self.r
        b.section("attention")
        b.let(r.column, 0)
        self.look_up()
        self.tell_after("raw queries")
        self.begin(0, first=True)

        def both() -> None:
            for number in range(self.sets):
                self._column(number)

        b.repeat(both, "attention of a column")

    def wave(self, number: int, of_set: int) -> Wave:
        """Return a wave with its set of buffers, where it follows the other set's column."""
        waves, buffers = self.map.attention.waves, self.map.attention.buffers
        buffer = (of_set * len(waves) + number) % buffers
        return dataclasses.replace(waves[number], buffer=buffer)

    def begin(self, of_set: int, first: bool = False) -> None:
        """Start on a column: V's scales, queries, scores of the first wave."""
        self._value_scales(of_set, "stored values" if first else ())
        self._scatter_queries(of_set)
        self._some_scores(0, of_set, "readable values" if first else (), "queries")

    def _some_scores(self, number: int, of_set: int, keys: Waits, queries: Waits) -> None:
        plan, act = self.map.attention, self.map.activations
        base = act.queries + of_set * plan.passes * act.query_stride
        self._scores(self.wave(number, of_set), keys, queries, base)

    def _value_scales(self, of_set: int, wait: Waits) -> None:
        """Fetch the scales of V of all tokens that the column attends to."""
        vector, kv = self.map.vector, self.map.kv
        waits = (wait, "scales free") if isinstance(wait, str) else "scales free"
        self.b.launch(
            "dma",
            wait=waits,
            signal="value scales",
            loops=[Loop(self.shape.kv_heads, {"source": kv.head, "dst": vector.positions})],
            kind="scales",
            source=self.r.kv_layer,
            dst=self._scales_at(of_set),
            count=self.r.granules,
            step=kv.granule,
        )

    def _scales_at(self, of_set: int) -> int:
        vector = self.map.vector
        return vector.value_scales + of_set * self.shape.kv_heads * vector.positions

    def _scatter_queries(self, of_set: int) -> None:
        """Turn the column's queries; the heads of a pass go to columns of the array."""
        r, vector, act = self.r, self.map.vector, self.map.activations
        plan = self.map.attention
        share = 2 if plan.paired else 1
        queries = self.times_column(r.lane, vector.query_stride, r.scratch)
        row = self.times_column(r.kv_token, vector.rotary_stride, r.scratch)
        self.b.launch(
            "vector",
            signal="queries",
            loops=[
                Loop(
                    plan.passes,
                    {
                        "a": plan.vectors * vector.head_stride,
                        "address": share * act.query_stride,
                    },
                )
            ],
            words={"scalars": self.shifted_column(r.other, "vector", "s3")},
            op="rotary",
            factor="s3",
            s3=self.map.scalars.rms_attention,
            length=self.shape.head_dim,
            vectors=plan.vectors,
            a=queries + vector.queries,
            a_stride=vector.head_stride,
            b=row + vector.rotary,
            b_stride=0,
            quantize="activations",
            paired=int(plan.paired),
            column=0,
            column_step=1,
            address=share * (act.queries + of_set * plan.passes * act.query_stride),
            address_step=0,
        )

    def _column(self, of_set: int) -> None:
        """Emit what is left of a column whose first scores are on their way."""
        b, r = self.b, self.r
        waves = self.map.attention.waves
        overlapped = self.map.attention.buffers == 2
        following = (of_set + 1) % self.sets
        for number in range(len(waves)):
            ends = number + 1 == len(waves)
            if overlapped and ends:
                self._next(following)
            elif overlapped:
                self._some_scores(number + 1, of_set, (), ())
            self._weigh(number, of_set)
            if not overlapped and not ends:
                self._some_scores(number + 1, of_set, (), ())
        b.leave("eq", r.column, r.last)
        b.add_constant(r.column, 1)
        self.look_up()
        if not overlapped:
            self.begin(following)

    def _next(self, of_set: int) -> None:
        """Start on the next column, if there is one, and come back."""
        b, r = self.b, self.r

        def start() -> None:
            b.add_constant(r.column, 1)
            self.look_up()
            self.begin(of_set)
            b.add_constant(r.column, -1)
            self.look_up()

        b.when("ne", r.column, r.last, start)

    def _weigh(self, number: int, of_set: int) -> None:
        """Softmax and outputs of a wave."""
        wave, r = self.wave(number, of_set), self.r
        ends = number + 1 == len(self.map.attention.waves)
        self._soften(wave, self._scales_at(of_set))
        if ends:
            self.tell("scales free")
        self._outputs(wave, ())
        blocks = self.map.attention.vectors * self.shape.head_blocks
        address = self.blocks_at(self.map.activations.attention)
        self._gather(
            wave,
            choose=self.on_last("attention") if ends else (),
            words={"mode": r.mode},
            column=r.column,
            address=address + wave.first * blocks,
        )

    def _soften(self, wave: Wave, scales: int) -> None:
        """Probabilities; a column that does not start at position 0 has its maxima taken again.

        Limits belong to the vector unit alone: drains of the next column run beside it.
        """
        b, r = self.b, self.r

        def masked() -> None:
            self._mask(wave)
            self._probabilities(wave, scales, masked=True)

        b.table(r.other, "start", r.column)
        b.when("ne", r.other, b.zero, masked, lambda: self._probabilities(wave, scales))

    def _mask(self, wave: Wave) -> None:
        """Set the limits to [start, position]; take the largest score within them."""
        b, r, plan, vector = self.b, self.r, self.map.attention, self.map.vector
        b.compute("shl", r.scratch, r.position, 16)
        b.compute("add", r.other, r.other, r.scratch)
        b.launch(
            "vector",
            op="set_limits",
            vectors=plan.vectors,
            out=0,
            immediate=r.other + (1 << 16),
        )
        first = wave.buffer * plan.wave_passes * plan.vectors
        b.launch(
            "vector",
            wait=Each("scores"),
            loops=[Loop(wave.passes, {"a": plan.vectors * vector.positions, "out": plan.vectors})],
            op="copy",
            length=r.tokens,
            vectors=plan.vectors,
            a=vector.scores + first * vector.positions,
            a_stride=vector.positions,
            limits=1,
            reduce="max",
            out=self.map.scalars.maxima + first,
        )
