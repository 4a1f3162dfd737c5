"""Bank and bank-group state: which row is open, and which command each bank may get."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from pequin.hbm.config import HbmConfig
from pequin.hbm.rules import Spacings
from pequin.hbm.types import ColKind, RowKind

FLAGS = ("active", "can_act", "can_pre", "opened", "can_read", "can_write", "refreshing")
"""What is known of a bank in a clock: its row is open, which commands it may get, its row may be
read, a refresh holds it."""


def flags_layout(banks: int) -> data.StructLayout:
    """Return the layout of `FLAGS`, a vector over `banks` banks for each."""
    return data.StructLayout(dict.fromkeys(FLAGS, banks))


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
        `FLAGS` of every bank.
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
                "flags": Out(flags_layout(banks)),
                "can_pre_all": Out(1),
                "can_ref_all": Out(1),
                "can_ref": Out(banks),
                "column_ok": Out(data.StructLayout({"read": 1, "write": 1})),
                "pair": In(config.pair_bits).array(lookups),
                "open_tag": Out(config.tag_bits).array(2 * lookups),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the counters of banks, of groups and of the whole channel."""
        m = Module()
        self._spacings = Spacings(self._config, self.broken_rule, m)
        self._elaborate_global(m)
        self._elaborate_groups(m)
        self._elaborate_decode(m)
        for bank in range(self._config.geometry.banks):
            self._elaborate_bank(m, bank)
        self._elaborate_flags(m)
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
        self._pre = Signal()
        self._pre_all = Signal()
        self._rd = Signal()
        self._wr = Signal()
        m.d.comb += [
            self._act.eq(self.row_kind == RowKind.ACT),
            self._ref.eq(self.row_kind == RowKind.REF_BANK),
            self._pre.eq(self.row_kind == RowKind.PRE),
            self._pre_all.eq(self.row_kind == RowKind.PRE_ALL),
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
                self._any_rd.eq(s.load("wtr_s")),
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
        self._group_act: list[Signal] = []
        self._group_rd: list[Signal] = []
        self._group_wr: list[Signal] = []
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
                m.d.sync += [rd.eq(s.load("wtr_l")), wr.eq(s.load("ccd_l"))]
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
        acts, refreshes, closes = (vector[bank] for vector in self._row_here)
        reads, writes = (vector[bank] for vector in self._column_here)
        active = Signal(name=f"{name}_active")
        to_act = self._counter(m, f"{name}_to_act", s.longest("rc", "rfc_pb", "rp"))
        to_pre_width = s.longest("ras", "rtp", "wr", extra=s.clocks("cwl") + 1)
        to_pre = self._counter(m, f"{name}_to_pre", to_pre_width)
        to_col = self._counter(m, f"{name}_to_col", s.longest("rcd_rd", "rcd_wr"))
        with m.If(reads):
            self._raise(m, to_pre, s.load("rtp"))
        with m.If(writes):
            self._raise(m, to_pre, s.load("wr"))
        with m.If(acts):
            m.d.sync += [
                active.eq(1),
                to_act.eq(s.load("rc")),
                to_pre.eq(s.load("ras")),
                to_col.eq(s.load("rcd_rd")),
            ]
        with m.If(closes):
            m.d.sync += active.eq(0)
            self._raise(m, to_act, s.load("rp"))
        refreshing = Signal(name=f"{name}_refreshing")
        with m.If(refreshes):
            m.d.sync += [to_act.eq(s.load("rfc_pb")), refreshing.eq(1)]
        with m.Elif(~to_act.any()):
            m.d.sync += refreshing.eq(0)
        write_slack = s.clocks("rcd_rd") - s.clocks("rcd_wr")
        slack = Mux(s.broken("rcd_wr"), write_slack + 1, write_slack)
        m.d.comb += [
            self._active[bank].eq(active),
            self._refreshing[bank].eq(refreshing),
            self._to_act[bank].eq(to_act.any()),
            self._to_pre[bank].eq(to_pre.any()),
            self._to_read[bank].eq(to_col.any()),
            self._to_write[bank].eq(to_col > slack),
        ]

    def _elaborate_decode(self, m: Module) -> None:
        """Tell each bank about the commands of this clock that are for it."""
        banks = self._config.geometry.banks
        row, column = Signal(banks), Signal(banks)
        acts, refreshes, closes = (Signal(banks, name=n) for n in ("acts", "refs", "closes"))
        reads, writes = Signal(banks), Signal(banks)
        for name in ("active", "refreshing", "to_act", "to_pre", "to_read", "to_write"):
            setattr(self, f"_{name}", Signal(banks, name=name))
        m.d.comb += [
            row.eq(1 << Cat(self.row_g, self.row_pair)),
            column.eq(1 << Cat(self.col_g, self.col_pair)),
            acts.eq(Mux(self._act, row, 0)),
            refreshes.eq(Mux(self._ref, row, 0)),
            closes.eq(Mux(self._pre, row, 0) | Mux(self._pre_all, self._active, 0)),
            reads.eq(Mux(self._rd, column, 0)),
            writes.eq(Mux(self._wr, column, 0)),
        ]
        self._row_here, self._column_here = (acts, refreshes, closes), (reads, writes)

    def _elaborate_flags(self, m: Module) -> None:
        """Join what each bank, its group and the channel allow."""
        banks, groups = self._config.geometry.banks, self._config.geometry.groups
        spread = {}
        for name in ("act", "rd", "wr"):
            oks = getattr(self, f"_group_{name}")
            spread[name] = Signal(banks, name=f"spread_{name}")
            parts = [Cat(oks[2 * s], oks[2 * s + 1]).replicate(8) for s in range(groups // 2)]
            m.d.comb += spread[name].eq(Cat(parts))
        active, flags, broken = self._active, self.flags, self._spacings.broken
        all_ref, any_ref = Signal(), Signal()
        closed = Signal(banks)
        self._can_pre = can_pre = Signal(banks)
        m.d.comb += [
            all_ref.eq(self._all_ref.any()),
            any_ref.eq(self._any_ref.any()),
            closed.eq(~active & ~self._to_act & ~all_ref.replicate(banks)),
            flags.refreshing.eq(self._refreshing | all_ref.replicate(banks)),
            flags.can_act.eq(closed & spread["act"] & self._faw_ok.replicate(banks)),
            can_pre.eq(active & ~self._to_pre),
            flags.active.eq(active),
            flags.can_pre.eq(can_pre),
            flags.opened.eq(active & ~self._to_read),
            flags.can_read.eq(active & ~self._to_read & spread["rd"]),
            flags.can_write.eq(active & ~self._to_write & spread["wr"]),
            self.can_ref.eq(
                Mux(broken("ref_open") & ~all_ref, can_pre | closed, closed)
                & spread["act"]
                & (self._faw_ok & ~any_ref).replicate(banks)
            ),
        ]

    @staticmethod
    def _raise(m: Module, counter: Signal, value: Value) -> None:
        """Reload a counter unless it already has further to go."""
        with m.If(counter <= value):
            m.d.sync += counter.eq(value)

    def _elaborate_totals(self, m: Module) -> None:
        """Conditions over all banks."""
        waiting = self._active & ~self._can_pre
        any_active = self._active.any()
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
        """Keep the chunk number last opened in each bank, one memory for each half of a pair."""
        pairs = self._config.geometry.pairs
        for g in range(2):
            memory: Memory = Memory(shape=self._config.tag_bits, depth=pairs, init=[])
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
