"""A program that decodes and prefills up to C columns of any sequences in a step."""

from __future__ import annotations

from typing import Any

from pequin_sim.compiler.batch_attention import BatchAttentionCode
from pequin_sim.compiler.batch_layer import BatchRegisters
from pequin_sim.compiler.builder import ProgramBuilder
from pequin_sim.compiler.decoder import DONE, WANTS_LOGITS, DecoderCode
from pequin_sim.compiler.options import Embedding, Head
from pequin_sim.compiler.plan import Plan
from pequin_sim.compiler.values import Register
from pequin_sim.isa import UNIT_FIELDS
from pequin_sim.model import MATRICES, padded
from pequin_sim.model.formats import HEAD

VECTORS_BIT = UNIT_FIELDS["vector"]["vectors"].low
PAIRED_BIT = UNIT_FIELDS["vector"]["paired"].low


class BatchCode(DecoderCode):
    """Emits the program around the layers: start, table, embedding, layer loop, head.

    Parameters
    ----------
    b
        Takes the instructions.
    plan
        Sizes and places.
    layer
        Emits a layer.
    """

    layer: BatchAttentionCode
    r: BatchRegisters

    def __init__(self, b: ProgramBuilder, plan: Plan, layer: BatchAttentionCode) -> None:
        super().__init__(b, plan, layer)

    def constants(self) -> dict[int, float]:
        """Return the scalars that no step changes."""
        return {**super().constants(), self.map.scalars.zero: 0.0}

    def start(self) -> None:
        """Set what no step changes; all sets of V's scales are free."""
        super().start()
        for _ in range(self.layer.sets):
            self.layer.tell("scales free")

    def step(self) -> None:
        """Work on all columns of a step."""
        b, r = self.b, self.r
        b.section("step")
        b.step()
        b.let(r.weights, self.map.hbm.base)
        b.let(r.left, self.plan.shape.layers - 1)
        b.section("first streams")
        for name in MATRICES[: self.plan.ahead]:
            self.layer.stream(name)
        self.read_table()
        self.load()
        self.layer.first_matrix("embedded")
        b.repeat(self.one_layer, "layer")
        self.finish()
        b.table(r.scratch, "columns")
        b.event(r.scratch, DONE)

    def read_table(self) -> None:
        """Count the columns and those that want logits."""
        b, r = self.b, self.r
        b.section("table")
        b.table(r.scratch, "columns")
        b.let(r.last, r.scratch + -1)
        b.let(r.offset, 0)
        self.set_columns(r.scratch)
        b.let(r.wants, 0)

        def count() -> None:
            b.table(r.scratch, "flags", r.column)
            b.compute("andi", r.scratch, r.scratch, WANTS_LOGITS)
            b.compute("add", r.wants, r.wants, r.scratch)

        self.layer.columns(count, "flags")

    def set_columns(self, count: Register) -> None:
        """Set how many vectors commands have, and whether they are paired."""
        b, r = self.b, self.r
        b.compute("shl", r.shape, count, VECTORS_BIT)
        b.let(r.other, self.plan.params.config.columns // 2 + 1)
        b.let(r.mode, 0)
        b.when("lt", count, r.other, lambda: b.let(r.mode, 1 << PAIRED_BIT))

    def load(self) -> None:
        """Fetch each column's rotary row and embedding; normalize."""
        self.b.section("rows of a column")
        self.layer.columns(self._load_column, "rows of a column")

    def _load_column(self) -> None:
        b, r, hbm, vector = self.b, self.r, self.map.hbm, self.map.vector
        layer, fp32 = self.layer, self.plan.options.embedding is Embedding.FP32
        b.table(r.position, "position", r.column)
        b.multiply(r.position, r.position, hbm.rotary_row, r.scratch)
        layer.times_column(r.other, vector.rotary_stride, r.scratch)
        b.launch(
            "dma",
            signal=None if fp32 else "rotary row",
            kind="rows",
            source=r.position + hbm.rotary,
            dst=r.other + vector.rotary,
            count=hbm.rotary_row,
        )
        b.table(r.position, "token", r.column)
        b.multiply(r.position, r.position, hbm.embedding_row, r.scratch)
        layer.times_column(r.other, vector.x_stride, r.scratch)
        source, x = r.position + hbm.embedding, r.other + vector.x
        if fp32:
            b.launch(
                "dma",
                signal="embedding row",
                kind="rows",
                source=source,
                dst=x,
                count=hbm.embedding_row,
            )
            self._embed("vector", "embedding row", source="memory", a=x)
            return
        b.launch("dma", kind="blocks", source=source, count=padded(self.plan.shape.hidden) // 32)
        self._embed("drain", "rotary row", source="blocks", store=1, dst=x)

    def _embed(self, unit: str, wait: str, **fields: Any) -> None:
        """Make the blocks and 1 / rms of a column's embedding."""
        r, layer = self.r, self.layer
        self.b.launch(
            unit,
            wait=wait,
            choose=layer.on_last("embedded"),
            words={"mode": r.mode, "scalars": layer.shifted_column(r.lane, "vector", "out")},
            op="copy",
            length=self.plan.shape.hidden,
            vectors=1,
            **{**layer.normalize(self.map.scalars.rms_attention), "column": r.column},
            **fields,
        )

    def one_layer(self) -> None:
        """Emit a layer after its first matrix, and the next layer's first matrix."""
        b, r = self.b, self.r
        self.layer.rest(self.last_residual)
        b.section("next layer")
        b.leave("eq", r.left, b.zero)
        b.add_constant(r.left, -1)
        b.add_constant(r.weights, self.map.hbm.layer_beats)
        b.add_constant(r.offset, self.map.kv.layer)
        self.layer.first_matrix(self.input_ready)

    def last_residual(self) -> None:
        """Add to the residual, and tell who goes on.

        That is the MAC array, or the vector unit when some columns want logits and others do not,
        or nobody but the host.
        """
        b, r = self.b, self.r
        b.let(r.scratch, r.last + 1)
        self.layer.add_residual(
            self.map.scalars.rms_attention,
            self.input_ready,
            [
                ("ne", r.left, b.zero, self.input_ready),
                ("eq", r.wants, b.zero, "residual finished"),
                ("ne", r.wants, r.scratch, "last residual"),
            ],
        )

    def head(self) -> None:
        """Multiply the last matrix with the columns that want logits.

        r.lane is the first of their 1 / rms.
        """
        b, r, scalars = self.b, self.r, self.map.scalars
        if self.plan.ahead == 0:
            self.layer.stream(HEAD)
        top_k = self.plan.options.head is not Head.LOGITS
        selected = "selected" if top_k else None

        def all_columns() -> None:
            b.let(r.lane, scalars.rms_attention)
            self.layer.matrix(HEAD, 0, self.input_ready, top_k=top_k, signal=selected)

        def some_columns() -> None:
            self.gather()
            b.let(r.lane, scalars.gate_factor)
            self.layer.matrix(HEAD, 0, "gathered", top_k=top_k, signal=selected)

        b.let(r.scratch, r.last + 1)
        b.when("eq", r.wants, r.scratch, all_columns, some_columns)
        if self.plan.options.head is Head.LOGITS:
            self._store_logits()
        elif self.plan.options.head is Head.TOP_K:
            self._tell_factors()
        else:
            b.wait("selected")

    def gather(self) -> None:
        """Quantize the residuals of the columns that want logits once more, side by side."""
        b, r = self.b, self.r
        b.section("gather")
        self.layer.tell_after("last residual")
        b.let(r.last, r.wants + -1)
        self.set_columns(r.wants)
        b.let(r.position, 0)
        b.let(r.column, 0)

        def column() -> None:
            b.table(r.scratch, "flags", r.column)
            b.compute("andi", r.scratch, r.scratch, WANTS_LOGITS)
            b.when("ne", r.scratch, b.zero, self._gather_column)
            b.add_constant(r.column, 1)

        b.repeat(column, "gather")

    def _gather_column(self) -> None:
        """Copy 1 / rms and blocks of a column to place r.position."""
        b, r, vector, scalars = self.b, self.r, self.map.vector, self.map.scalars
        b.compute("shl", r.other, r.position, UNIT_FIELDS["vector"]["out"].low)
        b.compute("add", r.other, r.other, r.column)
        b.launch(
            "vector",
            words={"scalars": r.other},
            op="scalar",
            vectors=1,
            s1=scalars.rms_attention,
            out=scalars.gate_factor,
        )
        x = self.layer.times_column(r.lane, vector.x_stride, r.scratch)
        b.launch(
            "vector",
            choose=[("eq", r.position, r.last, "gathered")],
            words={"mode": r.mode},
            op="copy",
            length=self.plan.shape.hidden,
            vectors=1,
            a=x + vector.x,
            quantize="activations",
            column=r.position,
            address=0,
        )
        b.leave("eq", r.position, r.last)
        b.add_constant(r.position, 1)

    def _store_logits(self) -> None:
        """Store true logits, and tell the largest."""
        r, vector = self.r, self.map.vector
        self.b.launch(
            "drain",
            signal="logits",
            words={"shape": r.shape, "scalars": r.lane},
            op="copy",
            source="drain",
            length=self.plan.shape.vocab,
            use_s1=1,
            s1=0,
            per_vector="s1",
            store=1,
            dst=vector.logits,
            dst_stride=vector.logits_stride,
            reduce="arg_max",
            out=self.map.scalars.up_factor,
        )
        self.b.wait("logits")

    def _tell_factors(self) -> None:
        """Tell 1 / rms of each column that wants logits: exp2(0) times it is the largest of one."""
        r, scalars = self.r, self.map.scalars
        self.b.launch(
            "vector",
            wait="selected",
            signal="factors",
            words={"shape": r.shape, "extra": r.lane},
            op="copy",
            function="exp2",
            length=1,
            a=self.map.vector.x,
            a_stride=0,
            use_s1=1,
            s1=scalars.zero,
            reduce="arg_max",
            use_multiplier=1,
            per_vector="multiplier",
            out=scalars.up_factor,
        )
        self.b.wait("factors")
