"""From the KV buffer's commands to the beats that are read."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import BLOCK
from pequin.kv.types import (
    GRANULE_ALIGN,
    MAX_ROWS,
    MAX_TOKEN_BLOCKS,
    TOKENS,
    KvKind,
    kv_read,
)
from pequin.tile.types import ErrorCode, UnitId, unit_words

_COUNT_BITS = 32


def _walk() -> data.StructLayout:
    """Return a place in a command.

    is_keys
        Granule by granule; otherwise row by row.
    at
        Next payload beat.
    base
        Granule (keys), or first beat of the row (values).
    step, apart
        To the next granule, and from one payload beat to the next.
    pairs
        Neighbours in the order of reading lie in two banks.
    left
        Payload beats left in this granule or row.
    more
        Granules or rows that follow.
    whole, part
        Payload beats of a granule or row, and of the last one.
    chunk
        Payload beats until the next scale beat.
    scale_at
        Next scale beat.
    """
    return data.StructLayout(
        {
            "is_keys": 1,
            "at": 32,
            "base": 32,
            "step": 32,
            "apart": 32,
            "pairs": 1,
            "left": _COUNT_BITS,
            "more": _COUNT_BITS,
            "whole": _COUNT_BITS,
            "part": _COUNT_BITS,
            "chunk": range(TOKENS + 1),
            "scale_at": 32,
        }
    )


class KvWalker(wiring.Component):
    """Walk through granules (keys) or through rows of several granules (values).

    *Timing*: a command's first read shows two clocks after it was accepted, one read of one or
    two beats per clock, without a gap between commands. A command waits until what was written
    before it is stored.

    Members
    -------
    command : In(stream of unit_words(UnitId.KV))
    reads : Out(stream of kv_read())
    quiet : In(1)
        Nothing that was accepted is still to be written.
    hold : Out(1), waits : Out(1)
        Accept nothing more until then, for the sake of a command; it has to wait.
    token_blocks : Out(3)
        As configured; 0 before.
    active : Out(1)
        A command was accepted and is not walked through.
    """

    command: Any
    reads: Any
    quiet: Any
    hold: Any
    waits: Any
    token_blocks: Any
    active: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(stream.Signature(unit_words(UnitId.KV))),
                "reads": Out(stream.Signature(kv_read())),
                "quiet": In(1),
                "hold": Out(1),
                "waits": Out(1),
                "token_blocks": Out(3),
                "active": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        self._words = Signal.like(self.command.payload, name="words")
        self._waiting, self._clean = Signal(name="waiting"), Signal(name="clean")
        self._walking, self._walk = Signal(name="walking"), Signal(_walk(), name="walk")
        self._begin, self._free = Signal(name="begin"), Signal(name="free")
        self._ends = Signal(name="ends")
        stopped, special = Signal(), Signal()
        m.d.comb += [
            self._free.eq(~self.reads.valid | self.reads.ready),
            self.hold.eq(self._waiting & ~self._clean & ~stopped),
            self.waits.eq(self.hold & ~self.quiet),
            self._begin.eq(
                self._waiting
                & (self._clean | self.quiet)
                & self._free
                & (~self._walking | (self._ends & ~special))
                & ~stopped
            ),
            self.command.ready.eq(~self._waiting),
            self.active.eq((self._waiting & ~stopped) | self._walking),
        ]
        m.d.sync += self._clean.eq(self._waiting & ~self._begin & (self._clean | self.quiet))
        with m.If(self._begin):
            m.d.sync += self._waiting.eq(0)
        with m.If(self.command.ready):
            m.d.sync += [
                self._words.eq(self.command.payload),
                self._waiting.eq(self.command.valid),
            ]
        with m.If(self.reads.ready):
            m.d.sync += self.reads.valid.eq(0)
        self._step(m)
        self._start(m, stopped, special)
        return m

    def _step(self, m: Module) -> None:
        """Make the next read of the command at work."""
        walk, read = self._walk, self.reads.payload
        scale, two, row_ends = Signal(), Signal(), Signal()
        base, follows = Signal(32), Signal(_COUNT_BITS)
        m.d.comb += [
            scale.eq(walk.is_keys & (walk.chunk == 0)),
            two.eq(~scale & walk.pairs & walk.left[1:].any()),
            row_ends.eq(~scale & (walk.left == 1 + two)),
            self._ends.eq(row_ends & (walk.more == 0)),
            base.eq(walk.base + Mux(walk.is_keys, walk.step, 1)),
            follows.eq(walk.more - 1),
        ]
        with m.If(self._walking & self._free):
            m.d.sync += [
                self.reads.valid.eq(1),
                read.error.eq(ErrorCode.NONE),
                read.none.eq(0),
                read.addresses[0].eq(Mux(scale, walk.scale_at, walk.at)),
                read.addresses[1].eq(walk.at + walk.apart),
                read.two.eq(two),
                read.scale.eq(scale),
                read.last.eq(self._ends),
                self._walking.eq(~self._ends),
            ]
            with m.If(scale):
                m.d.sync += [walk.chunk.eq(TOKENS), walk.scale_at.eq(walk.scale_at + 1)]
            with m.Elif(row_ends):
                m.d.sync += [
                    walk.base.eq(base),
                    walk.at.eq(base + Mux(walk.is_keys, GRANULE_ALIGN, 0)),
                    walk.scale_at.eq(base),
                    walk.chunk.eq(0),
                    walk.left.eq(Mux(follows == 0, walk.part, walk.whole)),
                    walk.more.eq(follows),
                ]
            with m.Else():
                m.d.sync += [
                    walk.at.eq(walk.at + Mux(two, walk.apart << 1, walk.apart)),
                    walk.left.eq(walk.left - 1 - two),
                    walk.chunk.eq(walk.chunk - 1 - two),
                ]

    def _start(self, m: Module, stopped: Signal, special: Signal) -> None:
        """Take the waiting command, or refuse it in its turn."""
        words, read = self._words, self.reads.payload
        impossible, misplaced = Signal(), Signal()
        granules = Signal(_COUNT_BITS)
        is_keys = words[0] == KvKind.KEYS.value
        configures = words[0] == KvKind.CONFIGURE.value
        m.d.comb += [
            granules.eq(Mux(is_keys, (words[3] + (TOKENS - 1)) >> 5, words[4])),
            impossible.eq(self._impossible()),
            misplaced.eq(
                ~configures & (words[1][:3].any() | (words[2][:3].any() & (granules != 1)))
            ),
            special.eq(impossible | misplaced | configures),
        ]
        with m.If(self._begin):
            with m.If(special):
                m.d.sync += [
                    self.reads.valid.eq(1),
                    read.none.eq(1),
                    read.last.eq(1),
                    read.error.eq(ErrorCode.NONE),
                ]
                with m.If(impossible):
                    m.d.sync += [read.error.eq(ErrorCode.COMMAND), read.detail.eq(words[0])]
                with m.Elif(misplaced):
                    step = Mux(words[1][:3].any(), 0, words[2])
                    m.d.sync += [
                        read.error.eq(ErrorCode.KV_ADDRESS),
                        read.detail.eq(words[1] + step),
                    ]
                with m.Else():
                    m.d.sync += self.token_blocks.eq(words[4])
                m.d.sync += stopped.eq(impossible | misplaced)
            with m.Else():
                m.d.sync += [self._walking.eq(1), self._first(is_keys, granules)]

    def _first(self, is_keys: Value, granules: Value) -> list[Any]:
        """Return the assignments of a command's first place."""
        words, walk = self._words, self._walk
        blocks, tokens = words[4][:3], words[3][:5]
        row_blocks = ((words[3] + (BLOCK - 1)) >> 5)[:3]
        whole = Mux(is_keys, Cat(Const(0, 5), blocks), words[4])
        part = Mux(is_keys & (tokens != 0), tokens * blocks, whole)
        left = Mux(is_keys & (granules == 1), part, whole)
        offset = Mux(is_keys, 0, Cat(Const(0, 5), row_blocks))
        place = words[1] + GRANULE_ALIGN + offset
        return [
            walk.is_keys.eq(is_keys),
            walk.at.eq(place),
            walk.base.eq(Mux(is_keys, words[1], place)),
            walk.step.eq(words[2]),
            walk.apart.eq(Mux(is_keys, 1, words[2])),
            walk.pairs.eq(is_keys | words[2][3]),
            walk.left.eq(left),
            walk.more.eq(Mux(is_keys, granules, words[3]) - 1),
            walk.whole.eq(whole),
            walk.part.eq(part),
            walk.chunk.eq(0),
            walk.scale_at.eq(words[1]),
        ]

    def _impossible(self) -> Value:
        """Return whether a command has no meaning, or nothing to do."""
        words = self._words
        is_values, configures = words[0] == KvKind.VALUES.value, words[0] == 2
        return Cat(
            words[0] > KvKind.CONFIGURE.value,
            ~configures & (words[3] == 0),
            is_values & (words[3] > MAX_ROWS),
            words[4] == 0,
            ~is_values & (words[4] > MAX_TOKEN_BLOCKS),
        ).any()
