"""The instructions of attention, between the queries and the output projection."""

from __future__ import annotations

from typing import Any

from pequin_sim.compiler.builder import ProgramBuilder
from pequin_sim.compiler.plan import Plan, Wave
from pequin_sim.compiler.values import Each, Loop, Register, Sum, Waits


class Registers:
    """The sequencer's registers.

    position
        Of the token.
    last_granule, lane
        position / 32, and position mod 32 where a vector command has it.
    kv_layer, kv_token
        The layer's first granule, and the token's granule of its first head (KV beats).
    weights
        The layer's first beat.
    left
        Layers after this one.
    wants
        Whether logits are wanted.
    token, scratch, other
        For short use.
    """

    def __init__(self, b: ProgramBuilder) -> None:
        names = ("position", "last_granule", "lane", "kv_layer", "kv_token", "weights", "left")
        self.position, self.last_granule, self.lane, self.kv_layer, self.kv_token = (
            b.register(name) for name in names[:5]
        )
        self.weights, self.left = (b.register(name) for name in names[5:])
        self.wants, self.token, self.scratch, self.other = (
            b.register(name) for name in ("wants", "token", "scratch", "other")
        )

    @property
    def tokens(self) -> Sum:
        """Tokens to attend to: position + 1."""
        return self.position + 1

    @property
    def granules(self) -> Sum:
        """Granules that hold them."""
        return self.last_granule + 1


class AttentionCode:
    """Emits attention of one token: pass by pass, wave by wave.

    Parameters
    ----------
    b
        Takes the instructions.
    plan
        Sizes and places.
    """

    limits = 1
    """Whether tokens before a first one are masked."""

    def __init__(self, b: ProgramBuilder, plan: Plan) -> None:
        self.b, self.plan = b, plan
        self.shape, self.map = plan.shape, plan.map
        self.r = self.registers(b)

    def registers(self, b: ProgramBuilder) -> Registers:
        """Return the registers that the program has."""
        return Registers(b)

    def attention(self) -> None:
        """Scores, probabilities, outputs: wave by wave, the next wave's scores first."""
        waves = self.map.attention.waves
        overlapped = self.map.attention.buffers == 2
        self.scores(waves[0])
        for number, wave in enumerate(waves):
            last = number + 1 == len(waves)
            if overlapped and not last:
                self.scores(waves[number + 1])
            self.probabilities(wave)
            self.outputs(wave, last)
            if not overlapped and not last:
                self.scores(waves[number + 1])

    def _kv(self, wave: Wave, kind: str, wait: Waits, rows: int | Sum, blocks: int | Sum) -> None:
        """Stream keys or values of a wave's KV heads."""
        kv, plan = self.map.kv, self.map.attention
        head = wave.first // plan.groups
        self.b.launch(
            "kv",
            wait=wait,
            loops=[Loop(wave.groups), Loop(wave.kv_heads, {"address": kv.head})],
            kind=kind,
            address=self.r.kv_layer + head * kv.head,
            step=kv.granule,
            rows=rows,
            blocks=blocks,
        )

    def _kv_matrix(
        self,
        wave: Wave,
        wait: Waits,
        *,
        scaled: int,
        last_block: int | Register,
        last_row: int | Register,
        base: int,
        stride: int,
    ) -> None:
        """Multiply them with a wave's queries or probabilities."""
        plan = self.map.attention
        self.b.launch(
            "mac",
            wait=wait,
            loops=[Loop(wave.passes, {"base": stride})],
            format="mxint8",
            two_planes=0,
            scaled=scaled,
            paired=int(plan.paired),
            sink="drain",
            source="kv",
            last_block=last_block,
            last_row=last_row,
            first_row=0,
            last_vector=plan.vectors - 1,
            base=base,
        )

    def scores(self, wave: Wave) -> None:
        """Multiply keys with queries; keep each head's scores and their maximum."""
        first = wave.first == 0
        keys, queries = ("keys", "queries") if first else ((), ())
        self._scores(wave, keys, queries, self.map.activations.queries)

    def _scores(self, wave: Wave, keys: Waits, queries: Waits, base: int) -> None:
        """Emit the scores of a wave whose token's queries are at `base`."""
        plan, vector, act = self.map.attention, self.map.vector, self.map.activations
        self.b.section(f"scores of passes {wave.first} to {wave.first + wave.passes - 1}")
        buffer, step = wave.buffer * plan.wave_passes, plan.vectors
        self._kv(wave, "keys", keys, self.r.tokens, self.shape.head_blocks)
        self._kv_matrix(
            wave,
            queries,
            scaled=1,
            last_block=self.shape.head_blocks - 1,
            last_row=self.r.position,
            base=base + wave.first * act.query_stride,
            stride=act.query_stride,
        )
        self.b.launch(
            "drain",
            signal=Each("scores"),
            loops=[Loop(wave.passes, {"dst": step * vector.positions, "out": step})],
            op="copy",
            source="drain",
            length=self.r.tokens,
            vectors=plan.vectors,
            store=1,
            dst=vector.scores + buffer * step * vector.positions,
            dst_stride=vector.positions,
            limits=self.limits,
            reduce="max",
            out=self.map.scalars.maxima + buffer * step,
        )

    def probabilities(self, wave: Wave) -> None:
        """exp2(score - max) times V's scales, quantized; 1 / sum."""
        self._probabilities(wave, self.map.vector.value_scales)

    def _probabilities(self, wave: Wave, value_scales: int, masked: bool = False) -> None:
        """Emit the probabilities of a wave whose token's scales of V are at `value_scales`.

        With `masked`, limits are set, and an earlier command has waited for the scores.
        """
        plan, vector, act = self.map.attention, self.map.vector, self.map.activations
        scalars, share = self.map.scalars, 2 if plan.paired else 1
        self.b.section(f"probabilities of passes {wave.first} to {wave.first + wave.passes - 1}")
        buffer, step = wave.buffer * plan.wave_passes, plan.vectors
        scores: tuple[Each, ...] = () if masked else (Each("scores"),)
        scales = ("value scales",) if wave.first == 0 else ()
        one_pass = {
            "a": step * vector.positions,
            "s2": step,
            "out": step,
            "address": share * act.probability_stride,
        }
        one_head = {name: wave.groups * stride for name, stride in one_pass.items()}
        self.b.launch(
            "vector",
            wait=scores + scales,
            signal=Each("probabilities"),
            loops=[
                Loop(wave.groups, one_pass),
                Loop(wave.kv_heads, {**one_head, "b": vector.positions}),
            ],
            op="copy",
            function="exp2",
            factor="b",
            length=self.r.tokens,
            vectors=plan.vectors,
            a=vector.scores + buffer * step * vector.positions,
            a_stride=vector.positions,
            b=value_scales + wave.first // plan.groups * vector.positions,
            b_stride=0,
            use_s2=1,
            minus_s2=1,
            s2=scalars.maxima + buffer * step,
            per_vector="s2",
            limits=int(masked) or self.limits,
            reduce="sum",
            finish="reciprocal",
            out=scalars.inverses + buffer * step,
            quantize="activations",
            paired=int(plan.paired),
            column=0,
            column_step=1,
            address=share * (act.probabilities + buffer * act.probability_stride),
            address_step=0,
        )

    def outputs(self, wave: Wave, last: bool) -> None:
        """Multiply values with probabilities; gather the heads into one vector."""
        self._outputs(wave, "readable values" if wave.first == 0 else ())
        blocks = self.map.attention.vectors * self.shape.head_blocks
        self._gather(
            wave,
            signal="attention" if last else None,
            paired=1,
            column=0,
            address=2 * self.map.activations.attention + wave.first * blocks,
        )

    def _outputs(self, wave: Wave, wait: Waits) -> None:
        """Multiply values with probabilities."""
        plan, act, shape = self.map.attention, self.map.activations, self.shape
        buffer = wave.buffer * plan.wave_passes
        self.b.section(f"outputs of passes {wave.first} to {wave.first + wave.passes - 1}")
        self._kv(wave, "values", wait, shape.head_dim, self.r.granules)
        self._kv_matrix(
            wave,
            Each("probabilities"),
            scaled=0,
            last_block=self.r.last_granule,
            last_row=shape.head_dim - 1,
            base=act.probabilities + buffer * act.probability_stride,
            stride=act.probability_stride,
        )

    def _gather(self, wave: Wave, **fields: Any) -> None:
        """Put the outputs of a wave's heads behind each other, as one vector."""
        plan, shape = self.map.attention, self.shape
        buffer = wave.buffer * plan.wave_passes
        blocks = plan.vectors * shape.head_blocks
        self.b.launch(
            "drain",
            loops=[Loop(wave.passes, {"s1": plan.vectors, "address": blocks})],
            op="copy",
            source="drain",
            length=shape.head_dim,
            vectors=plan.vectors,
            use_s1=1,
            s1=self.map.scalars.inverses + buffer * plan.vectors,
            per_vector="s1",
            quantize="activations",
            column_step=0,
            address_step=shape.head_blocks,
            **fields,
        )
