"""The instructions of a decoder layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pequin_sim.compiler.attention import AttentionCode
from pequin_sim.compiler.values import Loop, Signal, Sum, Waits
from pequin_sim.model import MATRICES
from pequin_sim.model.formats import HEAD
from pequin_sim.mx import Format

LANE_BIT = 21
"""Lowest bit of a token's place in its granule, in word `extra` of the vector unit."""

FLOAT_ONE = 0x3F800000
"""fp32 1.0."""


class LayerCode(AttentionCode):
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
