"""The memory controller of one pseudo-channel: requests in, commands and data out."""

from amaranth.hdl import Cat, EnableInserter, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from pequin.hbm.address import AddressMap
from pequin.hbm.admission import Admission
from pequin.hbm.banks import BankState, flags_layout
from pequin.hbm.causes import CauseCounters
from pequin.hbm.config import HbmConfig
from pequin.hbm.counters import CAUSES, COUNTER_BITS, EVENTS
from pequin.hbm.ecc import EccDecoder
from pequin.hbm.refresh import RefreshEngine
from pequin.hbm.returns import ReturnBuffer
from pequin.hbm.turns import Turns
from pequin.hbm.types import (
    BEAT_BITS,
    CHECK_BITS,
    ColCommand,
    ColKind,
    HbmPort,
    RefreshMode,
    RowCommand,
    RowKind,
)
from pequin.hbm.window import Window, row_layout, run_layout
from pequin.hbm.writequeue import WriteQueue


class DeviceBus(wiring.Signature):
    """Between controller and device, seen from the controller.

    Members
    -------
    row, column
        Commands, one of each a clock.
    write_data, write_check
        A beat and its check bits, tCWL after the write command.
    read_valid, read_data, read_check
        A beat, tCL (and the path latency) after the read command.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "row": Out(RowCommand),
                "column": Out(ColCommand),
                "write_data": Out(BEAT_BITS),
                "write_check": Out(CHECK_BITS),
                "read_valid": In(1),
                "read_data": In(BEAT_BITS),
                "read_check": In(CHECK_BITS),
            }
        )


class EccEvent(data.Struct):
    """A read beat with an error: at beat address `address`; `double` when uncorrectable."""

    double: 1
    address: 32


class HbmController(wiring.Component):
    """Schedule several requesters' reads and writes onto one pseudo-channel.

    *Timing*: a read of an idle channel is on `read_data` 5 clocks more after the clock in which
    `request` was accepted than its commands and data take on the device: 1 request register, 1
    window, 1 command register, 1 ECC, 1 return buffer (and 1 its output register, of which the
    last coincides with the clock of the data). Streams move one beat a clock. A write is
    acknowledged once its last beat is in the write queue; a later read of its beats waits
    until those were issued.

    *Arbitration*: one piece a clock. A requester that continues the run admitted last comes first;
    otherwise the requesters take turns, so that concurrent streams alternate by chunks.

    Parameters
    ----------
    config
        The channel's configuration.

    Members
    -------
    port
        One port for each requester; its number is the requester id.
    refresh
        Refresh policy.
    bus
        The device.
    ecc_event, ecc_event_valid
        One clock for each read beat with an error.
    causes, events
        Counters in the order of `CAUSES` and `EVENTS`.
    refresh_late
        A refresh interval ended with a bank not refreshed; stays set.
    broken_rule
        Test only, see `HbmConfig.test_rules`; leave it at zero.
    clear, hold
        Set `causes` and `events` to zero; let them stand still.
    """

    def __init__(self, config: HbmConfig) -> None:
        self._config = config
        super().__init__(
            {
                "port": In(HbmPort()).array(config.requesters),
                "refresh": In(RefreshMode),
                "bus": Out(DeviceBus()),
                "ecc_event": Out(EccEvent),
                "ecc_event_valid": Out(1),
                "causes": Out(COUNTER_BITS).array(len(CAUSES)),
                "events": Out(COUNTER_BITS).array(len(EVENTS)),
                "refresh_late": Out(1),
                "broken_rule": In(5),
                "clear": In(1),
                "hold": In(1),
            }
        )

    @property
    def config(self) -> HbmConfig:
        """The channel's configuration."""
        return self._config

    def elaborate(self, platform: object) -> Module:
        """Join admission, windows, bank state, refresh and the data paths."""
        m = Module()
        config = self._config
        m.submodules.banks = self._banks = BankState(config, lookups=config.requesters)
        m.submodules.reads = self._reads = Window(config, entries=config.read_window, write=False)
        m.submodules.writes = self._writes = Window(config, entries=config.write_window, write=True)
        m.submodules.refresh = self._refresh = RefreshEngine(config)
        m.submodules.queue = self._queue = WriteQueue(config)
        m.submodules.turns = self._turns = Turns(config)
        m.submodules.admission = self._admission = Admission(config)
        self._causes = CauseCounters(config)
        counting = EnableInserter(~self.hold)(self._causes)
        m.submodules.causes = ResetInserter(self.clear)(counting)
        self._row = Signal(row_layout(config))
        self._elaborate_flags(m)
        self._elaborate_admission(m)
        self._elaborate_columns(m)
        self._elaborate_rows(m)
        self._elaborate_refresh(m)
        self._elaborate_write_data(m)
        self._elaborate_read_data(m)
        self._elaborate_counters(m)
        return m

    def _elaborate_flags(self, m: Module) -> None:
        """Give the windows what the banks allow, less what the refresh engine blocks."""
        config = self._config
        flags = Signal(flags_layout(config.geometry.banks))
        blocked, stopped = Signal(config.geometry.banks), Signal(config.geometry.banks)
        m.d.comb += [
            self._banks.broken_rule.eq(self.broken_rule),
            blocked.eq(Cat(bit.replicate(2) for bit in self._refresh.blocked)),
            flags.eq(self._banks.flags),
            flags.can_act.eq(self._banks.flags.can_act & ~blocked),
            flags.refreshing.eq(self._banks.flags.refreshing | blocked),
            stopped.eq(Cat(bit.replicate(2) for bit in self._refresh.stopped)),
            flags.can_read.eq(self._banks.flags.can_read & ~stopped),
            flags.can_write.eq(self._banks.flags.can_write & ~stopped),
        ]
        for window, ok in (
            (self._reads, self._banks.column_ok.read),
            (self._writes, self._banks.column_ok.write),
        ):
            m.d.comb += [
                window.flags.eq(flags),
                window.column_ok.eq(ok & ~self._refresh.hold_columns),
                window.row.eq(self._row),
            ]

    def _elaborate_admission(self, m: Module) -> None:
        """Connect the requesters' entrance to the windows and the write queue."""
        a = self._admission
        for q in range(self._config.requesters):
            port = self.port[q]
            wiring.connect(m, wiring.flipped(port.request), a.request[q])
            wiring.connect(m, wiring.flipped(port.write_data), a.write_data[q])
            wiring.connect(m, a.write_ack[q], wiring.flipped(port.write_ack))
            m.d.comb += [
                self._banks.pair[q].eq(a.lookup_pair[q]),
                self._reads.probe[q].eq(a.probe[q]),
                self._writes.probe[q].eq(a.probe[q]),
                a.can_merge_read[q].eq(self._reads.can_merge[q]),
                a.can_merge_write[q].eq(self._writes.can_merge[q]),
                a.read_conflict[q].eq(self._reads.probe_hit[q]),
                a.write_conflict[q].eq(self._writes.probe_hit[q]),
            ]
            active = self._banks.flags.active.word_select(a.lookup_pair[q], 2)
            match = Cat(self._banks.open_tag[2 * q + g] == a.probe[q].tag for g in range(2))
            m.d.comb += a.lookup_hit[q].eq(active & match)
        m.d.comb += [
            a.read_count.eq(self._reads.count),
            a.write_count.eq(self._writes.count),
            a.leaving.eq(self._reads.leaving),
            a.leaving_requester.eq(self._reads.leaving_requester),
            a.write_room.eq(self._queue.room),
            a.write_slot.eq(self._queue.slot),
            self._reads.push.eq(a.push_read),
            self._writes.push.eq(a.push_write),
            self._queue.push.eq(a.push_write),
            self._queue.push_data.eq(a.push_data),
        ]
        for window in (self._reads, self._writes):
            m.d.comb += [window.new.eq(a.new), window.merge.eq(a.merge)]

    def _elaborate_columns(self, m: Module) -> None:
        """Issue the column command of the direction whose turn it is."""
        config, turns = self._config, self._turns
        reads, writes = self._reads, self._writes
        read, write = Signal(), Signal()
        run = Signal(run_layout(config), name="column_run")
        kind = Mux(read, ColKind.RD, Mux(write, ColKind.WR, ColKind.NOP))
        m.d.comb += [
            read.eq(reads.column_valid & ~turns.writing),
            write.eq(writes.column_valid & turns.writing),
            reads.column_take.eq(read),
            writes.column_take.eq(write),
            run.eq(Mux(turns.writing, writes.column.as_value(), reads.column.as_value())),
            self._banks.col_kind.eq(kind),
            self._banks.col_pair.eq(run.pair),
            self._banks.col_g.eq(run.beat[0]),
            turns.read_issued.eq(read),
            turns.write_issued.eq(write),
            turns.read_waiting.eq(reads.oldest_valid),
            turns.write_waiting.eq(writes.oldest_valid),
            turns.level.eq(self._queue.level),
            turns.urgent.eq(self._admission.read_blocked),
            turns.full.eq(self._admission.write_stuck),
            turns.frozen.eq(self._refresh.busy),
        ]
        column = self.bus.column
        m.d.sync += [
            column.kind.eq(kind),
            column.group.eq(Cat(run.beat[0], run.pair[3:])),
            column.bank.eq(run.pair[:3]),
            column.column.eq(run.beat[1:]),
        ]

    def _elaborate_rows(self, m: Module) -> None:
        """Issue a row command: refresh first, then the current direction, then the other."""
        config, refresh = self._config, self._refresh
        first, second = (Signal(row_layout(config), name=n) for n in ("first_row", "second_row"))
        first_valid, second_valid, kept = Signal(), Signal(), Signal()
        reads, writes, writing = self._reads, self._writes, self._turns.writing
        m.d.comb += [
            first.eq(Mux(writing, writes.want.as_value(), reads.want.as_value())),
            second.eq(Mux(writing, reads.want.as_value(), writes.want.as_value())),
            first_valid.eq(Mux(writing, writes.want_valid, reads.want_valid)),
            second_valid.eq(Mux(writing, reads.want_valid, writes.want_valid)),
            reads.keep.eq(Cat(writes.want.g, writes.want.pair)),
            writes.keep.eq(Cat(reads.want.g, reads.want.pair)),
            kept.eq(Mux(writing, writes.kept, reads.kept) & (second.kind == RowKind.PRE)),
        ]
        with m.If(refresh.want_valid):
            m.d.comb += [
                self._row.kind.eq(refresh.want_kind),
                self._row.pair.eq(refresh.want_pair),
                self._row.g.eq(refresh.want_g),
                refresh.taken.eq(1),
            ]
        with m.Elif(first_valid):
            m.d.comb += self._row.eq(first)
        with m.Elif(second_valid & ~kept):
            m.d.comb += self._row.eq(second)
        row, banks, amap = self.bus.row, self._banks, AddressMap(config)
        m.d.comb += [
            banks.row_kind.eq(self._row.kind),
            banks.row_pair.eq(self._row.pair),
            banks.row_g.eq(self._row.g),
            banks.row_tag.eq(self._row.tag),
        ]
        m.d.sync += [
            row.kind.eq(self._row.kind),
            row.group.eq(Cat(self._row.g, self._row.pair[3:])),
            row.bank.eq(self._row.pair[:3]),
            row.row.eq(amap.row(self._row.tag)),
        ]

    def _elaborate_refresh(self, m: Module) -> None:
        refresh, banks = self._refresh, self._banks
        m.d.comb += [
            refresh.mode.eq(self.refresh),
            refresh.broken_rule.eq(self.broken_rule),
            refresh.claimed.eq(self._reads.claimed | self._writes.claimed),
            refresh.flags.eq(banks.flags),
            refresh.can_ref.eq(banks.can_ref),
            refresh.can_pre_all.eq(banks.can_pre_all),
            refresh.can_ref_all.eq(banks.can_ref_all),
            refresh.position_valid.eq(self._admission.position_valid),
            self.refresh_late.eq(refresh.late),
        ]
        for index in range(2 * self._config.requesters):
            m.d.comb += refresh.position[index].eq(self._admission.position[index])

    def _elaborate_write_data(self, m: Module) -> None:
        queue, writes = self._queue, self._writes
        bits = len(queue.slot)
        m.d.comb += [
            queue.issue.eq(writes.column_take),
            queue.issue_slot.eq(writes.column.index[:bits]),
            queue.oldest.eq(writes.oldest.index[:bits]),
            queue.oldest_valid.eq(writes.oldest_valid),
            self.bus.write_data.eq(queue.data),
            self.bus.write_check.eq(queue.check),
        ]

    def _elaborate_read_data(self, m: Module) -> None:
        """Follow each read with its label, check the beat, and hand it to its requester."""
        config = self._config
        slot_bits = (config.return_beats - 1).bit_length()
        label_layout = data.StructLayout(
            {
                "requester": 2,
                "slot": slot_bits,
                "beat": config.beat_bits + config.tag_bits,
            }
        )
        depth = config.timing.clocks("cl") + config.path_clocks + 4
        m.submodules.labels = labels = fifo.SyncFIFOBuffered(width=label_layout.size, depth=depth)
        run = self._reads.column
        m.submodules.ecc = ecc = EccDecoder()
        label = data.View(label_layout, labels.r_data)
        m.d.comb += [
            labels.w_en.eq(self._reads.column_take),
            labels.w_data.eq(Cat(run.requester, run.index[:slot_bits], run.beat, run.tag)),
            labels.r_en.eq(self.bus.read_valid),
            ecc.data.eq(self.bus.read_data),
            ecc.check.eq(self.bus.read_check),
        ]
        stored, fixed, double = Signal(), Signal(BEAT_BITS), Signal()
        owner = Signal(label_layout)
        m.d.sync += [
            stored.eq(self.bus.read_valid),
            fixed.eq(ecc.fixed),
            double.eq(ecc.double),
            owner.eq(label),
            self.ecc_event_valid.eq(self.bus.read_valid & (ecc.single | ecc.double)),
            self.ecc_event.double.eq(ecc.double),
            self.ecc_event.address.eq(label.beat),
        ]
        a = self._admission
        for q in range(config.requesters):
            m.submodules[f"returns{q}"] = buffer = ReturnBuffer(config)
            wiring.connect(m, buffer.read_data, wiring.flipped(self.port[q].read_data))
            m.d.comb += [
                buffer.store.eq(stored & (owner.requester == q)),
                buffer.store_slot.eq(owner.slot),
                buffer.store_data.eq(fixed),
                buffer.store_error.eq(double),
                buffer.mark_last.eq(a.mark_last[q]),
                buffer.refuse.eq(a.refuse[q]),
                buffer.mark_slot.eq(a.mark_slot),
                a.head[q].eq(buffer.head),
                self._reads.heads[q].eq(buffer.head),
            ]

    def _elaborate_counters(self, m: Module) -> None:
        causes, reads, writes = self._causes, self._reads, self._writes
        writing = self._turns.writing
        oldest = Mux(writing, writes.oldest.as_value(), reads.oldest.as_value())
        flags = Mux(writing, writes.oldest_flags.as_value(), reads.oldest_flags.as_value())
        conflict = (self._row.kind == RowKind.PRE) & ~self._refresh.want_valid
        refreshed = (self._row.kind == RowKind.REF_BANK) | (self._row.kind == RowKind.REF_ALL)
        m.d.comb += [
            causes.writing.eq(writing),
            causes.run.eq(oldest),
            causes.flags.eq(flags),
            causes.run_valid.eq(Mux(writing, writes.oldest_valid, reads.oldest_valid)),
            causes.other_valid.eq(Mux(writing, reads.oldest_valid, writes.oldest_valid)),
            causes.room.eq(writing | reads.oldest_room),
            causes.column_ok.eq(
                Mux(writing, self._banks.column_ok.write, self._banks.column_ok.read)
            ),
            causes.busy.eq(self._refresh.busy),
            causes.event.eq(
                Cat(
                    reads.column_take,
                    writes.column_take,
                    self._row.kind == RowKind.ACT,
                    conflict,
                    refreshed,
                    self.ecc_event_valid & ~self.ecc_event.double,
                    self.ecc_event_valid & self.ecc_event.double,
                    self._admission.refused,
                )
            ),
        ]
        for index in range(len(CAUSES)):
            m.d.comb += self.causes[index].eq(causes.clocks[index])
        for index in range(len(EVENTS)):
            m.d.comb += self.events[index].eq(causes.counts[index])
