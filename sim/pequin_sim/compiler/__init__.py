"""From a model to a program of the tile and a memory image; docs/compiler.md describes it."""

from pequin_sim.compiler.builder import Label, ProgramBuilder
from pequin_sim.compiler.compile import compile_decoder
from pequin_sim.compiler.decoder import CompiledDecoder
from pequin_sim.compiler.maps import Region
from pequin_sim.compiler.options import Embedding, Head, Options
from pequin_sim.compiler.plan import Plan, TileMap
from pequin_sim.compiler.share import compile_share, share_heads, share_sizes
from pequin_sim.compiler.values import Each, Loop, Register, Sum

__all__ = [
    "CompiledDecoder",
    "Each",
    "Embedding",
    "Head",
    "Label",
    "Loop",
    "Options",
    "Plan",
    "ProgramBuilder",
    "Region",
    "Register",
    "Sum",
    "TileMap",
    "compile_decoder",
    "compile_share",
    "share_heads",
    "share_sizes",
]
