"""Refresh: all banks at once, or one bank at a time far ahead of the streams."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.address import AddressMap
from pequin.hbm.banks import flags_layout
from pequin.hbm.config import HbmConfig
from pequin.hbm.rules import Spacings
from pequin.hbm.select import first_of, indexed
from pequin.hbm.types import RefreshMode, RowKind

NEAR_CHUNKS = (8, 4, 3)
"""Chunks ahead of every stream that are spared, in the thirds of a refresh interval."""

CLOCKS_PER_PAIR = 80
"""What refreshing one pair may take at worst (clocks): two precharges and the spacings."""


class RefreshEngine(wiring.Component):
    """Issue refreshes.

    All-bank: activates stop tRAS before the interval ends, columns at its end; then all banks are
    precharged and `postpone` refreshes follow each other.

    Per bank: every pair of banks has a done bit for the current interval. The engine walks
    along the chunks that each stream is about to use, and refreshes a pair that is neither near
    any stream nor needed by a run in a window. Early in the interval it spares eight chunks ahead
    of every stream, later fewer, and when time runs short none.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    mode
        The policy; changes take effect at once.
    position, position_valid
        Chunk numbers that requesters were last seen at, reads and writes apart.
    claimed
        Pairs that a run in a window is for.
    flags, can_ref, can_pre_all, can_ref_all
        From `BankState`.
    want_kind, want_pair, want_g, want_valid, taken
        The row command asked for, and whether it is issued in this clock.
    blocked
        Pairs that must not be activated.
    stopped
        Pairs that must not be read or written: a refresh cannot wait for them any longer.
    hold_columns
        No column command may be issued.
    busy
        An all-bank refresh is under way.
    late
        An interval ended with a bank not refreshed; stays set.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        pairs = config.geometry.pairs
        super().__init__(
            {
                "mode": In(RefreshMode),
                "broken_rule": In(5),
                "position": In(config.tag_bits).array(2 * config.requesters),
                "position_valid": In(2 * config.requesters),
                "claimed": In(pairs),
                "flags": In(flags_layout(config.geometry.banks)),
                "can_ref": In(config.geometry.banks),
                "can_pre_all": In(1),
                "can_ref_all": In(1),
                "want_kind": Out(RowKind),
                "want_pair": Out(config.pair_bits),
                "want_g": Out(1),
                "want_valid": Out(1),
                "taken": In(1),
                "blocked": Out(pairs),
                "stopped": Out(pairs),
                "hold_columns": Out(1),
                "busy": Out(1),
                "late": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the interval timer and the two state machines."""
        m = Module()
        self._spacings = Spacings(self._config, self.broken_rule, m)
        self._elaborate_timer(m)
        self._elaborate_all(m)
        self._elaborate_near(m)
        self._elaborate_pick(m)
        self._elaborate_bank(m)
        return m

    def _elaborate_timer(self, m: Module) -> None:
        interval = self._spacings.clocks("refi")
        self._time = Signal(range(2 * interval))
        self._wrap = Signal()
        end = Mux(self._spacings.broken("refi"), interval + interval // 2, interval)
        m.d.comb += self._wrap.eq(self._time >= end - 1)
        m.d.sync += self._time.eq(Mux(self._wrap, 0, self._time + 1))
        with m.If(self.mode == RefreshMode.NONE):
            m.d.sync += self._time.eq(0)

    def _elaborate_all(self, m: Module) -> None:
        interval, postpone = self._spacings.clocks("refi"), self._config.postpone
        due = Signal(range(postpone + 1))
        left = Signal(range(postpone + 1))
        soon = Signal()
        enabled = self.mode == RefreshMode.ALL_BANK
        m.d.comb += soon.eq(
            enabled
            & (due == postpone - 1)
            & (self._time >= interval - self._spacings.clocks("ras") - 1)
        )
        with m.If(enabled & self._wrap):
            m.d.sync += due.eq(Mux(due == postpone - 1, 0, due + 1))
        self._all_blocked = Signal()
        m.d.comb += self._all_blocked.eq(soon | self.busy)
        closing = Signal()
        with m.FSM(name="all_bank"):
            with m.State("WAIT"), m.If(enabled & self._wrap & (due == postpone - 1)):
                m.d.sync += left.eq(postpone)
                m.next = "CLOSE"
            with m.State("CLOSE"):
                m.d.comb += [self.busy.eq(1), closing.eq(1)]
                with m.If(self.can_pre_all):
                    m.d.comb += [self.want_valid.eq(1), self.want_kind.eq(RowKind.PRE_ALL)]
                    with m.If(self.taken):
                        m.next = "REFRESH"
            with m.State("REFRESH"):
                m.d.comb += self.busy.eq(1)
                with m.If(self.can_ref_all):
                    m.d.comb += [self.want_valid.eq(1), self.want_kind.eq(RowKind.REF_ALL)]
                    with m.If(self.taken):
                        m.d.sync += left.eq(left - 1)
                        with m.If(left == 1):
                            m.next = "WAIT"
        m.d.comb += self.hold_columns.eq(closing)

    def _elaborate_near(self, m: Module) -> None:
        """Collect the pairs near any stream, one chunk of one stream a clock."""
        config, interval = self._config, self._spacings.clocks("refi")
        pairs, streams = config.geometry.pairs, 2 * config.requesters
        self._near = Signal(pairs)
        self._walk = Signal()
        self._walked = Signal()
        stream, step = Signal(range(streams)), Signal(range(NEAR_CHUNKS[0] + 1))
        steps = Mux(
            self._time < interval // 3,
            NEAR_CHUNKS[0],
            Mux(self._time < 2 * interval // 3, NEAR_CHUNKS[1], NEAR_CHUNKS[2]),
        )
        tag, tag_valid = Signal(config.tag_bits), Signal()
        m.d.sync += [
            tag.eq(indexed([self.position[i] for i in range(streams)], stream) + step),
            tag_valid.eq(self._walk & self.position_valid.bit_select(stream, 1)),
        ]
        pair = AddressMap(config).pair(tag)
        with m.If(tag_valid):
            m.d.sync += self._near.eq(self._near | (1 << pair)[:pairs])
        with m.If(self._walk):
            m.d.sync += step.eq(step + 1)
            with m.If(step >= steps):
                m.d.sync += [step.eq(0), stream.eq(stream + 1)]
                with m.If(stream == streams - 1):
                    m.d.sync += stream.eq(0)
                    m.d.comb += self._walked.eq(1)

    def _elaborate_pick(self, m: Module) -> None:
        """Choose the pair to refresh next."""
        pairs = self._config.geometry.pairs
        interval = self._spacings.clocks("refi")
        self._done = Signal(pairs)
        open_pairs = Signal(range(pairs + 1), init=pairs)
        self._left = open_pairs
        self._forced = Signal()
        m.d.sync += self._forced.eq(
            interval - self._time <= open_pairs * CLOCKS_PER_PAIR + 2 * CLOCKS_PER_PAIR
        )
        free = Signal(pairs)
        m.d.comb += free.eq(~self._done & ~self._near & ~self.claimed)
        with m.If(self._forced):
            m.d.comb += free.eq(~self._done & ~self.claimed)
            with m.If(~(~self._done & ~self.claimed).any()):
                m.d.comb += free.eq(~self._done)
        self._choice = first_of(m, [free[p] for p in range(pairs)], "pair_pick")

    def _elaborate_bank(self, m: Module) -> None:
        """Close and refresh both banks of the chosen pair."""
        pairs = self._config.geometry.pairs
        enabled = self.mode == RefreshMode.PER_BANK
        target, half = Signal(pairs), Signal()
        number = Signal(self._config.pair_bits)
        active, can_pre, can_ref = Signal(), Signal(), Signal()
        banks, insists = Cat(half, number), Signal()
        m.d.comb += [
            number.eq(
                Cat(
                    Cat(target[p] for p in range(pairs) if p >> b & 1).any()
                    for b in range(len(number))
                )
            ),
            active.eq(self.flags.active.bit_select(banks, 1)),
            can_pre.eq(self.flags.can_pre.bit_select(banks, 1)),
            can_ref.eq(self.can_ref.bit_select(banks, 1)),
        ]
        m.d.comb += [self.want_pair.eq(number), self.want_g.eq(half)]
        with m.If(self._all_blocked):
            m.d.comb += self.blocked.eq((1 << pairs) - 1)
        with m.Elif(enabled):
            m.d.comb += [self.blocked.eq(target), self.stopped.eq(Mux(insists | half, target, 0))]
        with m.FSM(name="per_bank"):
            with m.State("IDLE"):
                m.d.sync += [target.eq(0), half.eq(0), self._near.eq(0)]
                with m.If(enabled & self._left.any()):
                    m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += self._walk.eq(1)
                with m.If(self._walked | self._forced):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.next = "PICK"
            with m.State("PICK"):
                m.d.sync += [target.eq(self._choice), insists.eq(self._forced)]
                with m.If(self._choice.any()):
                    m.next = "REFRESH"
                with m.Else():
                    m.next = "IDLE"
            with m.State("REFRESH"):
                waste = (target & self.claimed).any() & ~insists & ~half
                skip_close = self._spacings.broken("ref_open")
                with m.If(waste):
                    m.next = "IDLE"
                with m.Elif(active & ~skip_close):
                    m.d.comb += [self.want_valid.eq(can_pre), self.want_kind.eq(RowKind.PRE)]
                with m.Else():
                    m.d.comb += [self.want_valid.eq(can_ref), self.want_kind.eq(RowKind.REF_BANK)]
                    with m.If(can_ref & self.taken):
                        m.d.sync += half.eq(1)
                        with m.If(half):
                            m.d.sync += [
                                self._done.eq(self._done | target),
                                self._left.eq(self._left - 1),
                            ]
                            m.next = "IDLE"
        with m.If(self._wrap | (self.mode != RefreshMode.PER_BANK)):
            m.d.sync += [self._done.eq(0), self._left.eq(pairs)]
            with m.If(self._left.any() & self._wrap & enabled):
                m.d.sync += self.late.eq(1)
