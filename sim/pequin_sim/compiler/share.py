"""A tile's share of layers whose matrices are cut by rows over many tiles."""

from __future__ import annotations

from pequin.config import TileParams
from pequin.errors import InputError
from pequin_sim.compiler.builder import ProgramBuilder
from pequin_sim.compiler.decoder import CompiledDecoder, DecoderCode, finished
from pequin_sim.compiler.layer import LayerCode
from pequin_sim.compiler.options import Options
from pequin_sim.compiler.plan import make_plan
from pequin_sim.model import MATRICES, ModelShape, matrix_rows, padded


def share_sizes(shape: ModelShape, tiles: int) -> dict[str, tuple[int, int]]:
    """Return rows and K of each matrix of a layer when its rows are spread over some tiles."""
    sizes = {name: matrix_rows(shape, name) for name in MATRICES}
    return {name: (-(-rows // tiles), k) for name, (rows, k) in sizes.items()}


def share_heads(shape: ModelShape, tiles: int) -> tuple[int, int]:
    """Return query and KV heads of a tile: 0 and 0 when there are more tiles than heads."""
    if tiles > shape.heads:
        return 0, 0
    kv_heads = max(1, shape.kv_heads // tiles)
    heads = max(1, shape.heads // tiles // kv_heads) * kv_heads
    return heads, kv_heads


class ShareLayer(LayerCode):
    """Emits a tile's share of a layer.

    What tiles exchange is not modelled: the tile writes its rows where the gathered vector is,
    and finds there, or in the activation buffer, what others would have written. It does all
    that is done on each tile: residual, norm and quantization of the full hidden vector.
    """

    def keys(self) -> None:
        """Store this tile's rows of K; turn and quantize whole heads."""
        heads, vector = self.map.attention.kv_heads, self.map.vector
        self.store_rows("k", vector.keys, "raw keys" if heads else None)
        if not heads:
            return
        self.b.launch(
            "vector",
            wait="raw keys",
            signal="keys",
            words={"extra": self.r.lane},
            op="rotary",
            factor="s3",
            s3=self.map.scalars.rms_attention,
            length=self.shape.head_dim,
            vectors=heads,
            a=vector.keys,
            a_stride=vector.head_stride,
            b=vector.rotary,
            b_stride=0,
            quantize="keys",
            address=self.r.kv_token,
            address_step=self.map.kv.head,
        )

    def values(self) -> None:
        """Store this tile's rows of V, and quantize whole heads."""
        heads = self.map.attention.kv_heads
        self.weights("v", self.map.activations.x)
        rms = self.map.scalars.rms_attention
        self.store_rows("v", self.map.vector.values, "raw values" if heads else None, rms)
        if heads:
            self.store_values(heads)

    def queries(self) -> None:
        """Turn the heads that are this tile's; store the rows that are of no whole head."""
        heads = self.map.attention.passes * self.map.attention.vectors
        rows = self.plan.sizes["q"][0] - heads * self.shape.head_dim
        if heads:
            super().queries()
        else:
            self.weights("q", self.map.activations.x)
        if rows > 0:
            self._drain(rows, self.map.vector.queries)

    def attention(self) -> None:
        """Attend with the heads of this tile."""
        if self.map.attention.passes:
            super().attention()

    def output(self) -> None:
        """Multiply the gathered attention output with this tile's rows of Wo."""
        wait = "attention" if self.map.attention.passes else ()
        self.weights("o", self.map.activations.attention, wait)
        self.add_residual(self.map.scalars.rms_mlp, "mlp input")

    def add_residual(self, rms: int, signal: str) -> None:
        """Store this tile's rows; add the gathered vector to the full residual."""
        vector = self.map.vector
        self.store_rows("o", vector.gathered, "rows")
        self.b.launch(
            "vector",
            wait="rows",
            signal=signal,
            op="add",
            source="memory",
            length=self.shape.hidden,
            vectors=1,
            a=vector.x,
            b=vector.gathered,
            dst=vector.x,
            store=1,
            **self.normalize(rms),
        )

    def store_rows(self, name: str, dst: int, signal: str | None, scale: int | None = None) -> None:
        """Store the rows of a matrix, times a scalar if one is named."""
        self._drain(self.plan.sizes[name][0], dst, signal, scale)

    def _drain(
        self, rows: int, dst: int, signal: str | None = None, scale: int | None = None
    ) -> None:
        self.b.launch(
            "drain",
            signal=signal,
            op="copy",
            source="drain",
            length=rows,
            vectors=1,
            use_s1=int(scale is not None),
            s1=scale or 0,
            store=1,
            dst=dst,
        )


class ShareCode(DecoderCode):
    """Emits the program around shares of layers: there is no head."""

    def read_table(self) -> None:
        """Read the step's column; logits are never wanted."""
        super().read_table()
        self.b.let(self.r.wants, 0)

    def finish(self) -> None:
        """Wait for the last residual."""
        self.b.section("end")
        self.b.wait("residual finished")


def compile_share(
    shape: ModelShape,
    params: TileParams,
    tiles: int,
    options: Options,
    *,
    exchange: bool | None = None,
) -> CompiledDecoder:
    """Return the program of one of many tiles that hold the rows of a model's layers.

    Each matrix has ceil(rows / tiles) rows here. Heads that are whole are attended to; with more
    tiles than query heads there is no attention. The hidden vector is whole: its residual, norm
    and quantization are done on every tile.

    Parameters
    ----------
    shape
        The whole model's sizes.
    params
        The tile.
    tiles
        Tiles that share the rows.
    options
        Choices; there is no head.
    exchange
        Pass rows of K, V and the residual through the gathered vectors. By default that is done
        when there are several tiles; one tile does without, as in `compile_decoder`.

    Raises
    ------
    InputError
        The share does not fit the tile; the message has the numbers.
    """
    if tiles < 1:
        raise InputError(f"a model is shared by at least one tile, not {tiles}")
    if tiles > 1 and exchange is False:
        raise InputError(f"{tiles} tiles have to exchange their rows")
    sizes = share_sizes(shape, tiles)
    heads, kv_heads = share_heads(shape, tiles)
    if exchange is None:
        exchange = tiles > 1
    # The room of the other queries too: rows of q that are of no whole head.
    room = padded(max(shape.hidden, sizes["q"][0] - heads * shape.head_dim))
    plan = make_plan(
        shape,
        params,
        options,
        sizes,
        heads=heads,
        kv_heads=kv_heads,
        gathered=room if exchange else 0,
    )
    b = ProgramBuilder("share")
    layer = ShareLayer(b, plan) if exchange else LayerCode(b, plan)
    ShareCode(b, plan, layer).emit()
    return finished(b, plan)
