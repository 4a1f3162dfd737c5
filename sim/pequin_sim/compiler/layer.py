"""The instructions of a decoder layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pequin_sim.compiler.builder import ProgramBuilder
from pequin_sim.compiler.plan import Plan, Wave
from pequin_sim.compiler.values import Each, Loop, Register, Signal, Sum, Waits
from pequin_sim.model import MATRICES
from pequin_sim.model.formats import HEAD
from pequin_sim.mx import Format

LANE_BIT = 21
"""Lowest bit of a token's place in its granule, in word `extra` of the vector unit."""

FLOAT_ONE = 0x3F800000
"""fp32 1.0."""


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


class LayerCode:
    """Emits a layer: everything on one tile.

    The order of the matrices is k, v, q, o, gate, up, down. V's quantization and the scales' way
    to vector memory are hidden behind q. Residuals are raw when they are quantized; 1 / rms is
    applied where a matrix drains.

    Parameters
    ----------
    b
        Takes the instructions.
    plan
        Sizes and places.
    """

    def __init__(self, b: ProgramBuilder, plan: Plan) -> None:
        self.b, self.plan = b, plan
        self.shape, self.map = plan.shape, plan.map
        self.r = Registers(b)

    # Streams of weights and the matrices that take them.

    def stream(self, name: str, layer: int = 0) -> None:
        """Stream a matrix of this layer, or of one `layer` layers on."""
        hbm, address = self.map.hbm, Sum(self.b.zero, self.map.hbm.head)
        if name != HEAD:
            address = self.r.weights + (hbm.offsets[name] + layer * hbm.layer_beats)
        self.b.launch("stream", address=address, beats=hbm.beats[name])

    def stream_ahead(self, index: int) -> None:
        """Stream the matrix that is `ahead` after matrix `index` of this layer."""
        target = index + self.plan.ahead
        if target < len(MATRICES):
            self.stream(MATRICES[target])
            return
        name = MATRICES[target - len(MATRICES)]
        last = self._stream_head if target == len(MATRICES) and HEAD in self.plan.sizes else None
        zero = self.b.zero
        self.b.when("ne", self.r.left, zero, lambda: self.stream(name, 1), last)

    def _stream_head(self) -> None:
        self.b.when("ne", self.r.wants, self.b.zero, lambda: self.stream(HEAD))

    def matrix(
        self,
        name: str,
        base: int,
        wait: Waits = (),
        *,
        top_k: bool = False,
        signal: Signal | None = None,
    ) -> None:
        """Multiply a matrix with the vector at `base` of the activation buffer."""
        choice, (rows, k) = self.plan.options.formats[name], self.plan.sizes[name]
        self.b.launch(
            "mac",
            wait=wait,
            signal=signal,
            format="mxfp4" if choice.fmt is Format.MXFP4 else "mxint8",
            two_planes=int(choice.planes == 2),
            scaled=1,
            paired=1,
            sink="top_k" if top_k else "drain",
            select_first=int(top_k),
            select_last=int(top_k),
            source="fifo",
            last_block=k // 32 - 1,
            last_row=rows - 1,
            first_row=0,
            last_vector=0,
            base=base,
        )

    def weights(self, name: str, base: int, wait: Waits = ()) -> None:
        """Launch a matrix of the layer, after the stream that is due."""
        self.b.section(f"matrix {name}")
        self.stream_ahead(MATRICES.index(name))
        self.matrix(name, base, wait)

    # Parts of a layer.

    def first_matrix(self, wait: str) -> None:
        """Launch the layer's first matrix, once its input is there."""
        self.weights("k", self.map.activations.x, wait)

    def rest(self, residual_ready: Callable[[], None]) -> None:
        """Emit the layer after its first matrix; `residual_ready` launches the last command."""
        self.keys()
        self.values()
        self.queries()
        self.attention()
        self.output()
        self.gate_and_up()
        self.down(residual_ready)

    def keys(self) -> None:
        """Turn K and write it to the KV buffer."""
        shape, kv = self.shape, self.map.kv
        self.b.launch(
            "drain",
            signal="keys",
            loops=[Loop(shape.kv_heads, {"address": kv.head})],
            words={"extra": self.r.lane},
            op="rotary",
            source="drain",
            factor="s3",
            s3=self.map.scalars.rms_attention,
            length=shape.head_dim,
            vectors=1,
            b=self.map.vector.rotary,
            quantize="keys",
            address=self.r.kv_token,
        )

    def values(self) -> None:
        """Write V to the KV buffer, then take the scales of all tokens to vector memory."""
        shape, vector = self.shape, self.map.vector
        self.weights("v", self.map.activations.x)
        whole = shape.head_dim == vector.head_stride
        self.b.launch(
            "drain",
            signal="raw values",
            loops=[Loop(1 if whole else shape.kv_heads, {"dst": vector.head_stride})],
            op="copy",
            source="drain",
            use_s1=1,
            s1=self.map.scalars.rms_attention,
            length=shape.head_dim * (shape.kv_heads if whole else 1),
            vectors=1,
            store=1,
            dst=vector.values,
        )
        self.store_values(shape.kv_heads)

    def store_values(self, kv_heads: int) -> None:
        """Quantize V from vector memory into the KV buffer; fetch the scales of all tokens."""
        vector, kv = self.map.vector, self.map.kv
        self.b.launch(
            "vector",
            wait="raw values",
            signal="stored values",
            words={"extra": self.r.lane},
            op="copy",
            length=self.shape.head_dim,
            vectors=kv_heads,
            a=vector.values,
            a_stride=vector.head_stride,
            quantize="values",
            address=self.r.kv_token,
            address_step=kv.head,
        )
        # Commands of a unit end in order: this one tells a second unit of the same end.
        self.b.launch(
            "vector",
            signal="readable values",
            op="set_scalar",
            vectors=1,
            out=self.map.scalars.one,
            immediate=FLOAT_ONE,
        )
        self.b.launch(
            "dma",
            wait="stored values",
            signal="value scales",
            loops=[Loop(kv_heads, {"source": kv.head, "dst": vector.positions})],
            kind="scales",
            source=self.r.kv_layer,
            dst=vector.value_scales,
            count=self.r.granules,
            step=kv.granule,
        )

    def queries(self) -> None:
        """Turn the queries and scatter the heads of a pass over columns."""
        self.weights("q", self.map.activations.x)
        plan, act = self.map.attention, self.map.activations
        share = 2 if plan.paired else 1
        self.b.launch(
            "drain",
            signal="queries",
            loops=[
                Loop(plan.vectors, {"column": 1}),
                Loop(plan.passes, {"address": share * act.query_stride}),
            ],
            op="rotary",
            source="drain",
            factor="s3",
            s3=self.map.scalars.rms_attention,
            length=self.shape.head_dim,
            vectors=1,
            b=self.map.vector.rotary,
            quantize="activations",
            paired=int(plan.paired),
            column=0,
            address=share * act.queries,
        )

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
        plan, vector, act = self.map.attention, self.map.vector, self.map.activations
        first = wave.first == 0
        self.b.section(f"scores of passes {wave.first} to {wave.first + wave.passes - 1}")
        buffer, step = wave.buffer * plan.wave_passes, plan.vectors
        self._kv(wave, "keys", "keys" if first else (), self.r.tokens, self.shape.head_blocks)
        self._kv_matrix(
            wave,
            "queries" if first else (),
            scaled=1,
            last_block=self.shape.head_blocks - 1,
            last_row=self.r.position,
            base=act.queries + wave.first * act.query_stride,
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
            limits=1,
            reduce="max",
            out=self.map.scalars.maxima + buffer * step,
        )

    def probabilities(self, wave: Wave) -> None:
        """exp2(score - max) times V's scales, quantized; 1 / sum."""
        plan, vector, act = self.map.attention, self.map.vector, self.map.activations
        scalars, share = self.map.scalars, 2 if plan.paired else 1
        self.b.section(f"probabilities of passes {wave.first} to {wave.first + wave.passes - 1}")
        buffer, step = wave.buffer * plan.wave_passes, plan.vectors
        one_pass = {
            "a": step * vector.positions,
            "s2": step,
            "out": step,
            "address": share * act.probability_stride,
        }
        one_head = {name: wave.groups * stride for name, stride in one_pass.items()}
        self.b.launch(
            "vector",
            wait=(Each("scores"), "value scales") if wave.first == 0 else Each("scores"),
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
            b=vector.value_scales + wave.first // plan.groups * vector.positions,
            b_stride=0,
            use_s2=1,
            minus_s2=1,
            s2=scalars.maxima + buffer * step,
            per_vector="s2",
            limits=1,
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
        plan, act, shape = self.map.attention, self.map.activations, self.shape
        buffer = wave.buffer * plan.wave_passes
        self.b.section(f"outputs of passes {wave.first} to {wave.first + wave.passes - 1}")
        wait = "readable values" if wave.first == 0 else ()
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
        blocks = plan.vectors * shape.head_blocks
        self.b.launch(
            "drain",
            signal="attention" if last else None,
            loops=[Loop(wave.passes, {"s1": plan.vectors, "address": blocks})],
            op="copy",
            source="drain",
            length=shape.head_dim,
            vectors=plan.vectors,
            use_s1=1,
            s1=self.map.scalars.inverses + buffer * plan.vectors,
            per_vector="s1",
            quantize="activations",
            paired=1,
            column=0,
            column_step=0,
            address=2 * act.attention + wave.first * blocks,
            address_step=shape.head_blocks,
        )

    def output(self) -> None:
        """Multiply with Wo, and add to the residual."""
        self.weights("o", self.map.activations.attention, "attention")
        self.add_residual(self.map.scalars.rms_mlp, "mlp input")

    def add_residual(self, rms: int, signal: str) -> None:
        """Add what drains to the residual: new x, its blocks and 1 / rms in one pass."""
        x = self.map.vector.x
        self.b.launch(
            "drain",
            signal=signal,
            op="add",
            source="drain",
            length=self.shape.hidden,
            vectors=1,
            b=x,
            dst=x,
            store=1,
            **self.normalize(rms),
        )

    def normalize(self, rms: int) -> dict[str, Any]:
        """Return the fields that quantize a residual as it is and give 1 / rms."""
        scalars = self.map.scalars
        return {
            "quantize": "activations",
            "paired": 1,
            "column": 0,
            "address": 2 * self.map.activations.x,
            "factor": "square",
            "reduce": "sum",
            "out": rms,
            "use_multiplier": 1,
            "multiplier": scalars.inverse_hidden,
            "use_addend": 1,
            "addend": scalars.epsilon,
            "finish": "rsqrt",
        }

    def gate_and_up(self) -> None:
        """SwiGLU: silu of the gate is computed while `up` streams."""
        act, vector, scalars = self.map.activations, self.map.vector, self.map.scalars
        rows = self.plan.sizes["up"][0]
        self.weights("gate", act.x, "mlp input")
        self.b.launch(
            "drain",
            signal="gate",
            op="copy",
            source="drain",
            length=rows,
            vectors=1,
            store=1,
            dst=vector.gate,
        )
        self.weights("up", act.x)
        self.silu(rows)
        self.b.launch(
            "drain",
            wait="silu",
            signal="mlp",
            op="mul",
            source="drain",
            length=rows,
            vectors=1,
            b=vector.silu,
            factor="s3",
            s3=scalars.up_factor,
            quantize="activations",
            paired=1,
            column=0,
            address=2 * act.mlp,
        )

    def silu(self, rows: int) -> None:
        """T = exp2(-log2(e) g / rms), then g / (T + 1), where g is raw: 1 / rms^2 comes later."""
        vector, scalars = self.map.vector, self.map.scalars
        self.b.section("silu")
        self.b.launch(
            "vector",
            wait="gate",
            op="scalar",
            vectors=2,
            s1=scalars.rms_mlp,
            use_multiplier=1,
            multiplier=scalars.negative_log2_e,
            per_vector="multiplier",
            out=scalars.gate_factor,
        )
        self.b.launch(
            "vector",
            op="copy",
            function="exp2",
            length=rows,
            vectors=1,
            a=vector.gate,
            use_s1=1,
            s1=scalars.gate_factor,
            store=1,
            dst=vector.silu,
        )
        self.b.launch(
            "vector",
            signal="silu",
            op="copy",
            function="reciprocal",
            factor="b",
            length=rows,
            vectors=1,
            a=vector.silu,
            use_s2=1,
            s2=scalars.one,
            b=vector.gate,
            store=1,
            dst=vector.silu,
        )

    def down(self, residual_ready: Callable[[], None]) -> None:
        """Multiply with the last matrix; `residual_ready` adds to the residual."""
        self.weights("down", self.map.activations.mlp, "mlp")
        residual_ready()
