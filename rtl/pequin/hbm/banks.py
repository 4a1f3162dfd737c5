"""Bank and bank-group state: which row is open, and which command each bank may get."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from pequin.hbm.config import HbmConfig
from pequin.hbm.rules import Spacings
from pequin.hbm.types import ColKind, RowKind


class BankFlags(data.Struct):
    """What one bank allows in this clock."""

    active: 1
    can_act: 1
    can_pre: 1
    opened: 1
    can_read: 1
    can_write: 1
    refreshing: 1


FLAG_BITS = 7


class BankState(wiring.Component):
    """Track every bank and say which commands keep all spacings.

    *Timing*: flags change in the clock after a command. Banks are numbered `2 * pair + g`.

    Parameters
    ----------
    config
        The channel's configuration.
    lookups
        Read ports into the table of open chunks.

    Members
    -------
    row_kind, row_pair, row_g, row_tag
        The row command of this clock.
    col_kind, col_pair, col_g
        The column command of this clock.
    flags
        `BankFlags` of every bank.
    quiet
        All banks are closed and may be refreshed, apart from precharge time.
    can_pre_all, can_ref_all, can_ref
        The commands that concern all banks, and whether a per-bank refresh of a bank that allows
        an activate keeps the spacing to other banks' commands.
    column_ok
        For reads and writes, whether the turnaround allows a column command at all.
    pair, open_tag
        Lookup: a pair's number, and the chunk number last opened in each of its banks.
    """

    def __init__(self, config: HbmConfig, *, lookups: int) -> None:
        self._config = config
        self._lookups = lookups
        banks = config.geometry.banks
        super().__init__(
            {
                "broken_rule": In(5),
                "row_kind": In(RowKind),
                "row_pair": In(config.pair_bits),
                "row_g": In(1),
                "row_tag": In(config.tag_bits),
                "col_kind": In(ColKind),
                "col_pair": In(config.pair_bits),
                "col_g": In(1),
                "flags": Out(data.ArrayLayout(BankFlags, banks)),
                "can_pre_all": Out(1),
                "can_ref_all": Out(1),
                "can_ref": Out(data.ArrayLayout(1, banks)),
                "column_ok": Out(data.StructLayout({"read": 1, "write": 1})),
                "pair": In(config.pair_bits).array(lookups),
                "open_tag": Out(config.tag_bits).array(2 * lookups),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the counters of banks, of groups and of the whole channel."""
        m = Module()
        self._spacings = Spacings(self._config, self.broken_rule)
        self._elaborate_global(m)
        self._elaborate_groups(m)
        for bank in range(self._config.geometry.banks):
            self._elaborate_bank(m, bank)
        self._elaborate_totals(m)
        self._elaborate_tags(m)
        return m

    def _counter(self, m: Module, name: str, width: int) -> Signal:
        """Return a down-counter that stops at zero; later statements reload it."""
        counter = Signal(width, name=name)
        with m.If(counter.any()):
            m.d.sync += counter.eq(counter - 1)
        return counter

    def _elaborate_global(self, m: Module) -> None:
        """Spacings between any two commands."""
        s = self._spacings
        self._act = Signal()
        self._ref = Signal()
        self._rd = Signal()
        self._wr = Signal()
        m.d.comb += [
            self._act.eq(self.row_kind == RowKind.ACT),
            self._ref.eq(self.row_kind == RowKind.REF_BANK),
            self._rd.eq(self.col_kind == ColKind.RD),
            self._wr.eq(self.col_kind == ColKind.WR),
        ]
        write_end = s.clocks("cwl") + 1
        self._any_act = self._counter(m, "any_act", s.longest("rrd_s", "rrefd"))
        self._any_ref = self._counter(m, "any_ref", s.longest("rrefd", "rrd_s"))
        self._any_rd = self._counter(m, "any_rd", s.longest("ccd_s", "wtr_s", extra=write_end))
        self._any_wr = self._counter(m, "any_wr", s.longest("ccd_s", "rtw"))
        self._all_ref = self._counter(m, "all_ref", s.longest("rfc"))
        with m.If(self._act):
            m.d.sync += [
                self._any_act.eq(s.load("rrd_s")),
                self._any_ref.eq(s.load("rrd_s")),
            ]
        with m.If(self._ref):
            m.d.sync += [self._any_act.eq(s.load("rrefd")), self._any_ref.eq(s.load("rrefd"))]
        with m.If(self.row_kind == RowKind.REF_ALL):
            m.d.sync += self._all_ref.eq(s.load("rfc"))
        with m.If(self._rd):
            m.d.sync += [self._any_rd.eq(s.load("ccd_s")), self._any_wr.eq(s.load("rtw"))]
        with m.If(self._wr):
            m.d.sync += [
                self._any_rd.eq(s.load("wtr_s", extra=write_end)),
                self._any_wr.eq(s.load("ccd_s")),
            ]
        self._elaborate_faw(m)

    def _elaborate_faw(self, m: Module) -> None:
        """Four-activate window: the activates and per-bank refreshes of the last tFAW."""
        length = self._spacings.clocks("faw") - 1
        history = Signal(length, name="faw_history")
        inside = Signal(3, name="faw_inside")
        opening = self._act | self._ref
        m.d.sync += [
            history.eq(Cat(opening, history)),
            inside.eq(inside + opening - history[-1]),
        ]
        self._faw_ok = Signal()
        m.d.comb += self._faw_ok.eq((inside < 4) | self._spacings.broken("faw"))

    def _elaborate_groups(self, m: Module) -> None:
        """Spacings between commands of one bank group."""
        s = self._spacings
        write_end = s.clocks("cwl") + 1
        self._group_act, self._group_rd, self._group_wr = [], [], []
        for group in range(self._config.geometry.groups):
            act = self._counter(m, f"group{group}_act", s.longest("rrd_l"))
            rd = self._counter(m, f"group{group}_rd", s.longest("ccd_l", "wtr_l", extra=write_end))
            wr = self._counter(m, f"group{group}_wr", s.longest("ccd_l"))
            stack, g = divmod(group, 2)
            row_here = (self.row_pair[3:] == stack) & (self.row_g == g)
            col_here = (self.col_pair[3:] == stack) & (self.col_g == g)
            with m.If(row_here & (self._act | self._ref)):
                m.d.sync += act.eq(s.load("rrd_l"))
            with m.If(col_here & self._rd):
                m.d.sync += rd.eq(s.load("ccd_l"))
            with m.If(col_here & self._wr):
                m.d.sync += [rd.eq(s.load("wtr_l", extra=write_end)), wr.eq(s.load("ccd_l"))]
            for name, counter, common in (
                ("act", act, self._any_act),
                ("rd", rd, self._any_rd),
                ("wr", wr, self._any_wr),
            ):
                ok = Signal(name=f"group{group}_{name}_ok")
                m.d.comb += ok.eq(~counter.any() & ~common.any())
                getattr(self, f"_group_{name}").append(ok)

    def _elaborate_bank(self, m: Module, bank: int) -> None:
        """One bank's open flag and its three counters."""
        s = self._spacings
        name = f"bank{bank}"
        pair, g = divmod(bank, 2)
        group = 2 * (pair // 8) + g
        row_here = Signal(name=f"{name}_row")
        col_here = Signal(name=f"{name}_col")
        m.d.comb += [
            row_here.eq((self.row_pair == pair) & (self.row_g == g)),
            col_here.eq((self.col_pair == pair) & (self.col_g == g)),
        ]
        active = Signal(name=f"{name}_active")
        to_act = self._counter(m, f"{name}_to_act", s.longest("rc", "rfc_pb", "rp"))
        to_pre_width = s.longest("ras", "rtp", "wr", extra=s.clocks("cwl") + 1)
        to_pre = self._counter(m, f"{name}_to_pre", to_pre_width)
        to_col = self._counter(m, f"{name}_to_col", s.longest("rcd_rd", "rcd_wr"))
        precharge = (row_here & (self.row_kind == RowKind.PRE)) | (
            active & (self.row_kind == RowKind.PRE_ALL)
        )
        with m.If(col_here & self._rd):
            self._raise(m, to_pre, s.load("rtp"))
        with m.If(col_here & self._wr):
            self._raise(m, to_pre, s.load("wr", extra=s.clocks("cwl") + 1))
        with m.If(row_here & self._act):
            m.d.sync += [
                active.eq(1),
                to_act.eq(s.load("rc")),
                to_pre.eq(s.load("ras")),
                to_col.eq(s.load("rcd_rd")),
            ]
        with m.If(precharge):
            m.d.sync += active.eq(0)
            self._raise(m, to_act, s.load("rp"))
        refreshing = Signal(name=f"{name}_refreshing")
        with m.If(row_here & self._ref):
            m.d.sync += [to_act.eq(s.load("rfc_pb")), refreshing.eq(1)]
        with m.Elif(~to_act.any()):
            m.d.sync += refreshing.eq(0)
        flags = self.flags[bank]
        write_slack = s.clocks("rcd_rd") - s.clocks("rcd_wr")
        slack = Mux(s.broken("rcd_wr"), write_slack + 1, write_slack)
        closed_ok = Signal(name=f"{name}_closed_ok")
        m.d.comb += [
            closed_ok.eq(~active & ~to_act.any() & ~self._all_ref.any()),
            flags.active.eq(active),
            flags.refreshing.eq(refreshing | self._all_ref.any()),
            flags.can_act.eq(closed_ok & self._group_act[group] & self._faw_ok),
            flags.can_pre.eq(active & ~to_pre.any()),
            flags.opened.eq(active & ~to_col.any()),
            flags.can_read.eq(flags.opened & self._group_rd[group]),
            flags.can_write.eq(active & (to_col <= slack) & self._group_wr[group]),
            self.can_ref[bank].eq(
                (closed_ok | (s.broken("ref_open") & ~self._all_ref.any()))
                & self._group_act[group]
                & ~self._any_ref.any()
                & self._faw_ok
            ),
        ]

    @staticmethod
    def _raise(m: Module, counter: Signal, value: Value) -> None:
        """Reload a counter unless it already has further to go."""
        with m.If(counter <= value):
            m.d.sync += counter.eq(value)

    def _elaborate_totals(self, m: Module) -> None:
        """Conditions over all banks."""
        banks = range(self._config.geometry.banks)
        waiting = Cat(self.flags[b].active & ~self.flags[b].can_pre for b in banks)
        any_active = Cat(self.flags[b].active for b in banks).any()
        closing = self._counter(m, "closing", self._spacings.longest("rc", "rfc_pb", "rp"))
        s = self._spacings
        with m.If(self._act):
            m.d.sync += closing.eq(s.load("rc"))
        with m.If((self.row_kind == RowKind.PRE_ALL) | (self.row_kind == RowKind.PRE)):
            self._raise(m, closing, s.load("rp"))
        with m.If(self._ref):
            m.d.sync += closing.eq(s.load("rfc_pb"))
        m.d.comb += [
            self.can_pre_all.eq(~waiting.any()),
            self.can_ref_all.eq(
                (~any_active | s.broken("ref_open")) & ~closing.any() & ~self._all_ref.any()
            ),
            self.column_ok.read.eq(~self._any_rd.any()),
            self.column_ok.write.eq(~self._any_wr.any()),
        ]

    def _elaborate_tags(self, m: Module) -> None:
        """The chunk number last opened in each bank, one small memory for each half of a pair."""
        pairs = self._config.geometry.pairs
        for g in range(2):
            memory = Memory(shape=self._config.tag_bits, depth=pairs, init=[])
            m.submodules[f"open_tags{g}"] = memory
            write = memory.write_port()
            m.d.comb += [
                write.addr.eq(self.row_pair),
                write.data.eq(self.row_tag),
                write.en.eq(self._act & (self.row_g == g)),
            ]
            for index in range(self._lookups):
                read = memory.read_port(domain="comb")
                m.d.comb += [
                    read.addr.eq(self.pair[index]),
                    self.open_tag[2 * index + g].eq(read.data),
                ]
