"""A program that decodes one sequence, token by token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pequin.errors import InputError
from pequin_sim.compiler.builder import ProgramBuilder
from pequin_sim.compiler.images import Beats, hbm_parts, image, total_beats
from pequin_sim.compiler.layer import FLOAT_ONE, LANE_BIT, LayerCode
from pequin_sim.compiler.maps import GRANULE_TOKENS
from pequin_sim.compiler.options import Embedding, Head
from pequin_sim.compiler.plan import Plan, TileMap
from pequin_sim.isa import Program
from pequin_sim.model import MATRICES, Model, QuantizedModel, padded
from pequin_sim.model.formats import HEAD

WANTS_LOGITS = 1
"""Bit of the table's flags."""

DONE = 0
"""Code of the event at the end of a step; its value is the position."""


@dataclass(frozen=True, eq=False)
class CompiledDecoder:
    """A program with its places and images.

    Parameters
    ----------
    plan
        What it was made from.
    program
        Instructions.
    semaphores
        Numbers by name.
    """

    plan: Plan
    program: Program
    semaphores: Mapping[str, int]

    @property
    def map(self) -> TileMap:
        """Where everything lies."""
        return self.plan.map

    @property
    def weight_beats(self) -> int:
        """HBM beats of all weights of a step that wants logits, in closed form."""
        return total_beats(self.map.hbm.beats, self.plan.shape.layers)

    def step_beats(self, wants_logits: bool = True) -> int:
        """Return the HBM beats that a step reads: weights, embedding row, rotary row."""
        hbm = self.map.hbm
        head = 0 if wants_logits else hbm.beats.get(HEAD, 0)
        return self.weight_beats - head + hbm.embedding_row + hbm.rotary_row

    def hbm_parts(self, model: Model | QuantizedModel) -> list[tuple[int, Beats]]:
        """Return (first beat, beats) of each matrix and table."""
        return hbm_parts(self.plan, model)

    def image(self, model: Model | QuantizedModel) -> Beats:
        """Return HBM from beat 0 on."""
        return image(self.plan, model)


LOOP_LEVELS = {"mac": 1, "stream": 0, "kv": 2, "vector": 2, "drain": 2, "dma": 1}
"""Loop levels that the program's launches have, by unit."""


class DecoderCode:
    """Emits the program around the layers: start, step, embedding, layer loop, head.

    Parameters
    ----------
    b
        Takes the instructions.
    plan
        Sizes and places.
    layer
        Emits a layer.
    input_ready
        Semaphore that tells that a layer's input is there.
    """

    def __init__(
        self, b: ProgramBuilder, plan: Plan, layer: LayerCode, input_ready: str = "layer input"
    ) -> None:
        self.b, self.plan, self.layer, self.map = b, plan, layer, plan.map
        self.r, self.input_ready = layer.r, input_ready

    def emit(self) -> None:
        """Emit everything."""
        self.start()
        self.b.repeat(self.step, "step")

    def start(self) -> None:
        """Set what no step changes."""
        b, shape = self.b, self.plan.shape
        b.section("start")
        for unit, levels in LOOP_LEVELS.items():
            b.clear(unit, levels)
        b.launch("kv", signal="configured", kind="configure", blocks=shape.head_blocks)
        s, constants = self.map.scalars, self.constants()
        for number, (place, value) in enumerate(constants.items(), 1):
            last = number == len(constants)
            b.launch(
                "vector",
                signal="vector ready" if last else None,
                op="set_scalar",
                vectors=1,
                out=place,
                immediate=int(np.float32(value).view(np.uint32)),
            )
        b.wait("configured")
        b.wait("vector ready")
        assert constants[s.one] == np.uint32(FLOAT_ONE).view(np.float32)

    def constants(self) -> dict[int, float]:
        """Return the scalars that no step changes."""
        s, shape = self.map.scalars, self.plan.shape
        return {
            s.inverse_hidden: 1 / shape.hidden,
            s.epsilon: shape.norm_eps,
            s.one: 1.0,
            s.negative_log2_e: -np.log2(np.e),
        }

    def step(self) -> None:
        """Decode one token."""
        b, r = self.b, self.r
        b.section("step")
        b.step()
        self.read_table()
        b.section("first streams")
        for name in MATRICES[: self.plan.ahead]:
            self.layer.stream(name)
        self.load()
        self.layer.first_matrix(self.embed())
        b.repeat(self.one_layer, "layer")
        self.finish()
        b.event(r.position, DONE)

    def read_table(self) -> None:
        """Load the step's column and compute what follows from the position."""
        b, r, kv = self.b, self.r, self.map.kv
        b.table(r.position, "position")
        b.table(r.token, "token")
        b.table(r.wants, "flags")
        b.table(r.kv_layer, "kv_base")
        b.compute("andi", r.wants, r.wants, WANTS_LOGITS)
        b.let(r.weights, self.map.hbm.base)
        b.let(r.left, self.plan.shape.layers - 1)
        b.compute("shr", r.last_granule, r.position, GRANULE_TOKENS.bit_length() - 1)
        b.multiply(r.kv_token, r.last_granule, kv.granule, r.scratch)
        b.compute("add", r.kv_token, r.kv_token, r.kv_layer)
        b.compute("andi", r.lane, r.position, GRANULE_TOKENS - 1)
        b.compute("shl", r.lane, r.lane, LANE_BIT)

    def load(self) -> None:
        """Fetch the position's rotary row and the token's embedding; set the limits."""
        b, r, hbm, vector = self.b, self.r, self.map.hbm, self.map.vector
        blocks = self.plan.options.embedding is Embedding.MXINT8
        b.section("load rows")
        b.multiply(r.other, r.position, hbm.rotary_row, r.scratch)
        b.launch(
            "dma",
            signal="rotary row" if blocks else None,
            kind="rows",
            source=r.other + hbm.rotary,
            dst=vector.rotary,
            count=hbm.rotary_row,
        )
        b.multiply(r.other, r.token, hbm.embedding_row, r.scratch)
        source = r.other + hbm.embedding
        if blocks:
            count = padded(self.plan.shape.hidden) // 32
            b.launch("dma", kind="blocks", source=source, count=count)
        else:
            b.launch(
                "dma",
                signal="embedding row",
                kind="rows",
                source=source,
                dst=vector.x,
                count=hbm.embedding_row,
            )
        self.set_limits()

    def set_limits(self) -> None:
        """Let every query head attend to the tokens from `start` to `position`."""
        b, r, vectors = self.b, self.r, self.map.attention.vectors
        if not vectors:
            return
        b.table(r.other, "start")
        b.compute("shl", r.scratch, r.position, 16)
        b.compute("add", r.other, r.other, r.scratch)
        b.launch(
            "vector",
            signal="vector ready",
            op="set_limits",
            vectors=vectors,
            out=0,
            immediate=r.other + (1 << 16),
        )
        b.wait("vector ready")

    def embed(self) -> str:
        """Store the embedding as residual, with its blocks and 1 / rms; return who tells."""
        b, x, shape = self.b, self.map.vector.x, self.plan.shape
        normalize = self.layer.normalize(self.map.scalars.rms_attention)
        b.section("embedding")
        if self.plan.options.embedding is Embedding.MXINT8:
            b.launch(
                "drain",
                wait="rotary row",
                signal="embedded",
                op="copy",
                source="blocks",
                length=shape.hidden,
                vectors=1,
                store=1,
                dst=x,
                **normalize,
            )
        else:
            b.launch(
                "vector",
                wait="embedding row",
                signal="embedded",
                op="copy",
                source="memory",
                length=shape.hidden,
                vectors=1,
                a=x,
                **normalize,
            )
        return "embedded"

    def one_layer(self) -> None:
        """Emit a layer after its first matrix, and the next layer's first matrix."""
        b, r, kv = self.b, self.r, self.map.kv
        self.layer.rest(self.last_residual)
        b.section("next layer")
        b.leave("eq", r.left, b.zero)
        b.add_constant(r.left, -1)
        b.add_constant(r.weights, self.map.hbm.layer_beats)
        b.add_constant(r.kv_layer, kv.layer)
        b.add_constant(r.kv_token, kv.layer)
        self.layer.first_matrix(self.input_ready)

    def last_residual(self) -> None:
        """Add to the residual, and tell who goes on: the MAC array, or nobody but the host."""
        b, r, rms = self.b, self.r, self.map.scalars.rms_attention
        b.compute("add", r.scratch, r.left, r.wants)
        b.when(
            "ne",
            r.scratch,
            b.zero,
            lambda: self.layer.add_residual(rms, self.input_ready),
            lambda: self.layer.add_residual(rms, "residual finished"),
        )

    def finish(self) -> None:
        """Compute the logits if they are wanted, and wait for the end."""
        self.b.section("head")
        zero = self.b.zero
        self.b.when("ne", self.r.wants, zero, self.head, lambda: self.b.wait("residual finished"))

    def head(self) -> None:
        """Multiply with the last matrix."""
        b, vector, scalars = self.b, self.map.vector, self.map.scalars
        act = self.map.activations.x
        if self.plan.ahead == 0:
            self.layer.stream(HEAD)
        if self.plan.options.head is not Head.LOGITS:
            self.layer.matrix(HEAD, act, self.input_ready, top_k=True, signal="selected")
            b.wait("selected")
            return
        self.layer.matrix(HEAD, act, self.input_ready)
        b.launch(
            "drain",
            signal="logits",
            op="copy",
            source="drain",
            length=self.plan.shape.vocab,
            vectors=1,
            use_s1=1,
            s1=scalars.rms_attention,
            store=1,
            dst=vector.logits,
            reduce="arg_max",
            out=scalars.gate_factor,
        )
        b.wait("logits")


def finished(b: ProgramBuilder, plan: Plan) -> CompiledDecoder:
    """Return a built program after checking that the program memory holds it."""
    program = b.finish()
    room = plan.params.config.program_words
    if len(program) > room:
        raise InputError(
            f"the program has {len(program)} instructions, but the program memory holds {room} "
            f"({plan.map.attention.passes} passes of attention in "
            f"{len(plan.map.attention.waves)} waves)"
        )
    return CompiledDecoder(plan, program, b.semaphores)
