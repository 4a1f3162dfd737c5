"""The instructions of a decoder layer for several columns, attention aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pequin_sim.compiler.attention import Registers
from pequin_sim.compiler.builder import ProgramBuilder
from pequin_sim.compiler.layer import FLOAT_ONE, LANE_BIT, LayerCode
from pequin_sim.compiler.maps import GRANULE_TOKENS
from pequin_sim.compiler.values import Choice, Loop, Register, Signal, Sum, Waits
from pequin_sim.isa import UNIT_FIELDS
from pequin_sim.mx import Format

GRANULE_BITS = GRANULE_TOKENS.bit_length() - 1


def _low(unit: str, field: str) -> int:
    """Return the lowest bit of a field in its word."""
    return UNIT_FIELDS[unit][field].low


class BatchRegisters(Registers):
    """The sequencer's registers in a program of batches.

    Those of a token are of the column that was looked up last.

    position, last_granule, lane, kv_layer, kv_token
        As in `Registers`.
    weights, left
        As in `Registers`.
    wants
        Columns that want logits.
    column, last
        The column at work, and the step's last one.
    shape
        Columns of the step where a vector command has its vectors.
    mode
        `paired` where a vector command has it.
    offset
        The layer's place in a sequence's KV cache (beats).
    scratch, other
        For short use.
    """

    def __init__(self, b: ProgramBuilder) -> None:
        self.position, self.last_granule, self.lane = (
            b.register(name) for name in ("position", "last_granule", "lane")
        )
        self.kv_layer, self.kv_token = b.register("kv_layer"), b.register("kv_token")
        self.weights, self.left, self.wants = (
            b.register(name) for name in ("weights", "left", "wants")
        )
        self.column, self.last, self.shape, self.mode, self.offset = (
            b.register(name) for name in ("column", "last", "shape", "mode", "offset")
        )
        self.scratch, self.other = b.register("scratch"), b.register("other")
        self.token = self.scratch


class BatchLayerCode(LayerCode):
    """Emits the matrices of a layer, and what is done with their rows, for 1 to C columns.

    A step of at most half the tile's columns is paired. Vector v is that of the step's column v
    everywhere: in vector memory, scalars and the activation buffer.
    """

    r: BatchRegisters
    limits = 0

    def registers(self, b: ProgramBuilder) -> Registers:
        """Return the registers that the program has."""
        return BatchRegisters(b)

    # Columns.

    def columns(self, body: Callable[[], None], name: str) -> None:
        """Build a loop over the step's columns."""
        b, r = self.b, self.r

        def one() -> None:
            body()
            b.leave("eq", r.column, r.last)
            b.add_constant(r.column, 1)

        b.let(r.column, 0)
        b.repeat(one, name)

    def on_last(self, name: str) -> list[Choice]:
        """Signal a semaphore when the column at work is the last one."""
        return [("eq", self.r.column, self.r.last, name)]

    def look_up(self) -> None:
        """Load the place of the column's sequence and the token's position."""
        b, r = self.b, self.r
        b.table(r.position, "position", r.column)
        b.table(r.kv_layer, "kv_base", r.column)
        b.compute("add", r.kv_layer, r.kv_layer, r.offset)
        b.compute("shr", r.last_granule, r.position, GRANULE_BITS)

    def look_up_place(self) -> None:
        """Load the token's granule of the first KV head, and its place there."""
        b, r = self.b, self.r
        self.look_up()
        b.multiply(r.kv_token, r.last_granule, self.map.kv.granule, r.scratch)
        b.compute("add", r.kv_token, r.kv_token, r.kv_layer)
        b.compute("andi", r.lane, r.position, GRANULE_TOKENS - 1)
        b.compute("shl", r.lane, r.lane, LANE_BIT)

    def times_column(self, rd: Register, stride: int, scratch: Register) -> Register:
        """Set a register to column * stride."""
        self.b.multiply(rd, self.r.column, stride, scratch)
        return rd

    def shifted_column(self, rd: Register, unit: str, *fields: str) -> Register:
        """Set a register to the column at some fields of a word, and return it."""
        b, column = self.b, self.r.column
        lows = sorted(_low(unit, field) for field in fields)
        b.compute("shl", rd, column, lows[0])
        for low, before in zip(lows[1:], lows, strict=False):
            assert before == lows[0], "at most two fields"
            b.compute("shl", self.r.scratch, column, low)
            b.compute("add", rd, rd, self.r.scratch)
        return rd

    def blocks_at(self, base: int) -> Sum:
        """Return a place of the activation buffer for vector commands: twice `base` if paired."""
        b, r = self.b, self.r
        if base == 0:
            return Sum(b.zero)
        b.compute("shr", r.other, r.mode, _low("vector", "paired"))
        b.multiply(r.other, r.other, base, r.scratch)
        return r.other + base

    def mac_mode(self) -> Register:
        """Return a register with `paired` where a `mac` command has it."""
        distance = _low("vector", "paired") - _low("mac", "paired")
        self.b.compute("shr", self.r.scratch, self.r.mode, distance)
        return self.r.scratch

    # Matrices.

    def matrix(
        self,
        name: str,
        base: int,
        wait: Waits = (),
        *,
        top_k: bool = False,
        signal: Signal | None = None,
    ) -> None:
        """Multiply a matrix with the columns' vectors at `base` of the activation buffer."""
        choice, (rows, k) = self.plan.options.formats[name], self.plan.sizes[name]
        self.b.launch(
            "mac",
            wait=wait,
            signal=signal,
            words={"mode": self.mac_mode()},
            format="mxfp4" if choice.fmt is Format.MXFP4 else "mxint8",
            two_planes=int(choice.planes == 2),
            scaled=1,
            sink="top_k" if top_k else "drain",
            select_first=int(top_k),
            select_last=int(top_k),
            source="fifo",
            last_block=k // 32 - 1,
            last_row=rows - 1,
            first_row=0,
            last_vector=self.r.last,
            base=base,
        )

    def store_rows(
        self,
        heads: int,
        dst: int,
        stride: int,
        signal: str,
        scale: int | None = None,
    ) -> None:
        """Store the rows of whole heads of all columns; columns are `stride` apart."""
        shape, vector = self.shape, self.map.vector
        whole = shape.head_dim == vector.head_stride
        self.b.launch(
            "drain",
            signal=signal,
            loops=[Loop(1 if whole else heads, {"dst": vector.head_stride})],
            words={"shape": self.r.shape},
            op="copy",
            source="drain",
            use_s1=int(scale is not None),
            s1=scale or 0,
            per_vector="s1",
            length=shape.head_dim * (heads if whole else 1),
            store=1,
            dst=dst,
            dst_stride=stride,
        )

    # Parts of a layer.

    def keys(self) -> None:
        """Store K's rows; they are turned and quantized column by column."""
        vector = self.map.vector
        self.store_rows(self.shape.kv_heads, vector.keys, vector.kv_stride, "raw keys")
        self.tell_after("raw keys")
        self.columns(self._column_keys, "K of a column")

    def tell_after(self, name: str) -> None:
        """Let the vector unit wait on a semaphore once, before a loop over columns."""
        self.b.launch(
            "vector",
            wait=name,
            op="set_scalar",
            vectors=1,
            out=self.map.scalars.one,
            immediate=FLOAT_ONE,
        )

    def _column_keys(self) -> None:
        r, vector, kv = self.r, self.map.vector, self.map.kv
        self.look_up_place()
        keys = self.times_column(r.position, vector.kv_stride, r.scratch)
        row = self.times_column(r.last_granule, vector.rotary_stride, r.scratch)
        self.b.launch(
            "vector",
            words={"extra": r.lane, "scalars": self.shifted_column(r.other, "vector", "s3")},
            op="rotary",
            factor="s3",
            s3=self.map.scalars.rms_attention,
            length=self.shape.head_dim,
            vectors=self.shape.kv_heads,
            a=keys + vector.keys,
            a_stride=vector.head_stride,
            b=row + vector.rotary,
            b_stride=0,
            quantize="keys",
            address=r.kv_token,
            address_step=kv.head,
        )

    def values(self) -> None:
        """Write V to the KV buffer, column by column."""
        vector = self.map.vector
        self.weights("v", self.map.activations.x)
        rms = self.map.scalars.rms_attention
        self.store_rows(self.shape.kv_heads, vector.values, vector.kv_stride, "raw values", rms)
        self.tell_after("raw values")
        self.columns(self._column_values, "V of a column")
        self.tell("stored values")
        self.tell("readable values")

    def tell(self, name: str) -> None:
        """Signal from the vector unit: commands of a unit end in order."""
        self.b.launch(
            "vector",
            signal=name,
            op="set_scalar",
            vectors=1,
            out=self.map.scalars.one,
            immediate=FLOAT_ONE,
        )

    def _column_values(self) -> None:
        r, vector, kv = self.r, self.map.vector, self.map.kv
        self.look_up_place()
        values = self.times_column(r.position, vector.kv_stride, r.scratch)
        self.b.launch(
            "vector",
            words={"extra": r.lane},
            op="copy",
            length=self.shape.head_dim,
            vectors=self.shape.kv_heads,
            a=values + vector.values,
            a_stride=vector.head_stride,
            quantize="values",
            address=r.kv_token,
            address_step=kv.head,
        )

    def queries(self) -> None:
        """Store the rows of q; they are turned and scattered column by column."""
        vector = self.map.vector
        self.weights("q", self.map.activations.x)
        self.store_rows(self.shape.heads, vector.queries, vector.query_stride, "raw queries")

    def add_residual(self, rms: int, signal: str, choose: Sequence[Choice] = ()) -> None:
        """Add what drains to the residuals: new x, its blocks and 1 / rms in one pass."""
        vector = self.map.vector
        self.b.launch(
            "drain",
            signal=signal,
            choose=choose,
            words={"shape": self.r.shape, "mode": self.r.mode},
            op="add",
            source="drain",
            length=self.shape.hidden,
            b=vector.x,
            b_stride=vector.x_stride,
            dst=vector.x,
            dst_stride=vector.x_stride,
            store=1,
            **self.normalize(rms),
        )

    def normalize(self, rms: int) -> dict[str, Any]:
        """Return the fields that quantize residuals as they are and give 1 / rms."""
        assert self.map.activations.x == 0, "the place is the same in both modes"
        return {**super().normalize(rms), "paired": 0, "column_step": 1, "address_step": 0}

    def gate_and_up(self) -> None:
        """SwiGLU: silu of the gate is computed while `up` streams."""
        act, vector, r = self.map.activations, self.map.vector, self.r
        rows = self.plan.sizes["up"][0]
        self.weights("gate", act.x, "mlp input")
        self.b.launch(
            "drain",
            signal="gate",
            words={"shape": r.shape},
            op="copy",
            source="drain",
            length=rows,
            store=1,
            dst=vector.gate,
            dst_stride=vector.mlp_stride,
        )
        self.weights("up", act.x)
        self.silu(rows)
        address = self.blocks_at(act.mlp)
        self.b.launch(
            "drain",
            wait="silu",
            signal="mlp",
            words={"shape": r.shape, "mode": r.mode},
            op="mul",
            source="drain",
            length=rows,
            b=vector.silu,
            b_stride=vector.mlp_stride,
            factor="s3",
            s3=self.map.scalars.up_factor,
            per_vector="s3",
            quantize="activations",
            column=0,
            column_step=1,
            address=address,
            address_step=0,
        )

    def silu(self, rows: int) -> None:
        """T = exp2(-log2(e) g / rms), then g / (T + 1), where g is raw: 1 / rms^2 comes later."""
        vector, scalars, shape = self.map.vector, self.map.scalars, self.r.shape
        self.b.section("silu")
        for out, factor, steps, wait in (
            (scalars.gate_factor, scalars.negative_log2_e, "s1", "gate"),
            (scalars.up_factor, scalars.rms_mlp, ("s1", "multiplier"), ()),
        ):
            self.b.launch(
                "vector",
                wait=wait,
                words={"shape": shape},
                op="scalar",
                s1=scalars.rms_mlp,
                use_multiplier=1,
                multiplier=factor,
                per_vector=steps,
                out=out,
            )
        silu: dict[str, Any] = {
            "op": "copy",
            "length": rows,
            "a_stride": vector.mlp_stride,
            "b_stride": vector.mlp_stride,
            "dst_stride": vector.mlp_stride,
            "store": 1,
            "dst": vector.silu,
        }
        self.b.launch(
            "vector",
            words={"shape": shape},
            function="exp2",
            a=vector.gate,
            use_s1=1,
            s1=scalars.gate_factor,
            per_vector="s1",
            **silu,
        )
        self.b.launch(
            "vector",
            signal="silu",
            words={"shape": shape},
            function="reciprocal",
            factor="b",
            a=vector.silu,
            use_s2=1,
            s2=scalars.one,
            b=vector.gate,
            **silu,
        )
