"""Watches over the units: faults, hangs, semaphore overflows; stops the tile."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.tile.stop import FaultSource, Stopper, Watchdog
from pequin.tile.types import PC_BITS, ErrorCode, TileEvent, UnitFault, UnitId

NO_SEMAPHORE = 0xFFFFFFFF
"""Detail of a watchdog's error when the unit waits for no semaphore."""


class UnitReport(wiring.Signature):
    """What a unit and its queue tell, seen from them.

    Members
    -------
    fault, fault_valid
        The unit cannot go on.
    pc
        Program counter of the command at work.
    signal_pc
        Program counter of the command that signals a semaphore in this clock.
    pending
        There is work.
    waiting, waiting_for
        It waits for this semaphore.
    moved
        Something moved in this clock.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "fault": Out(UnitFault),
                "fault_valid": Out(1),
                "pc": Out(PC_BITS),
                "signal_pc": Out(PC_BITS),
                "pending": Out(1),
                "waiting": Out(1),
                "waiting_for": Out(5),
                "moved": Out(1),
            }
        )


class Supervisor(wiring.Component):
    """Find the first fault of all units and stop the tile for it.

    When nothing moves, the watchdog names
    the first unit that waits for a semaphore, and that semaphore; without one, the first unit
    that has work.

    Members
    -------
    report : In(UnitReport()).array(7)
        By `UnitId`.
    fifo_fault : In(UnitFault), fifo_fault_valid : In(1)
        Of the weight FIFO; it counts for the MAC array.
    overflow : In(1), overflow_unit : In(3), overflow_number : In(5)
        A signal that found its semaphore full.
    stop : In(FaultSource), stop_valid : In(1)
        The host's.
    moved : In(1)
        Something moved that belongs to no unit.
    held_up : In(1)
        The host does not take events: not moving is no fault.
    limit : In(32)
        The watchdog's, in clocks.
    drained, freeze, clear, event, last
        As `Stopper`.
    pending : Out(1)
        Some unit has work.
    """

    report: Any
    fifo_fault: Any
    fifo_fault_valid: Any
    overflow: Any
    overflow_unit: Any
    overflow_number: Any
    stop: Any
    stop_valid: Any
    moved: Any
    held_up: Any
    limit: Any
    drained: Any
    freeze: Any
    clear: Any
    event: Any
    last: Any
    pending: Any

    def __init__(self) -> None:
        super().__init__(
            {
                "report": In(UnitReport()).array(len(UnitId)),
                "fifo_fault": In(UnitFault),
                "fifo_fault_valid": In(1),
                "overflow": In(1),
                "overflow_unit": In(3),
                "overflow_number": In(5),
                "stop": In(FaultSource),
                "stop_valid": In(1),
                "moved": In(1),
                "held_up": In(1),
                "limit": In(32),
                "drained": In(1),
                "freeze": Out(1),
                "clear": Out(1),
                "event": Out(stream.Signature(TileEvent)),
                "last": Out(FaultSource),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        reports = self.report
        m.submodules.watchdog = watchdog = Watchdog()
        stuck: Any = Signal(FaultSource)
        self._find_stuck(m, stuck)
        overflow: Any = Signal(FaultSource)
        m.d.comb += [
            overflow.unit.as_value().eq(self.overflow_unit),
            overflow.pc.eq(Array(report.signal_pc for report in reports)[self.overflow_unit]),
            overflow.fault.code.eq(ErrorCode.SEMAPHORE),
            overflow.fault.detail.eq(self.overflow_number),
            self.pending.eq(Cat(reports[unit.value].pending for unit in list(UnitId)[1:]).any()),
            watchdog.active.eq(
                (reports[UnitId.SEQ.value].pending | self.pending) & ~self.held_up & ~self.freeze
            ),
            watchdog.moved.eq(self.moved | Cat(report.moved for report in reports).any()),
            watchdog.limit.eq(self.limit),
        ]
        sources = [
            (self._source(m, unit, reports[unit.value].fault), reports[unit.value].fault_valid)
            for unit in UnitId
        ]
        sources += [
            (self._source(m, UnitId.MAC, self.fifo_fault, "fifo"), self.fifo_fault_valid),
            (overflow, self.overflow),
            (stuck, watchdog.bite),
            (self.stop, self.stop_valid),
        ]
        m.submodules.stopper = stopper = Stopper(sources=len(sources))
        for number, (source, valid) in enumerate(sources):
            m.d.comb += [
                stopper.source[number].eq(source),
                stopper.source_valid[number].eq(valid),
            ]
        m.d.comb += [
            stopper.drained.eq(self.drained),
            self.freeze.eq(stopper.freeze),
            self.clear.eq(stopper.clear),
            self.last.eq(stopper.last),
            self.event.payload.eq(stopper.event.payload),
            self.event.valid.eq(stopper.event.valid),
            stopper.event.ready.eq(self.event.ready),
        ]
        return m

    def _source(self, m: Module, unit: UnitId, fault: Any, name: str = "") -> Any:
        """Return a fault with its unit and that unit's program counter."""
        source: Any = Signal(FaultSource, name=f"{name or unit.name.lower()}_source")
        m.d.comb += [
            source.unit.eq(unit),
            source.pc.eq(self.report[unit.value].pc),
            source.fault.eq(fault),
        ]
        return source

    def _find_stuck(self, m: Module, stuck: Any) -> None:
        """Choose the unit that a watchdog's error names; later statements win."""
        reports = self.report
        # Signals of their own: of a structure whose other fields are assigned conditionally, the
        # constant code became zero in the generated Verilog.
        unit_now = Signal(UnitId, name="stuck_unit")
        pc, detail = Signal(PC_BITS, name="stuck_pc"), Signal(32, name="stuck_detail")
        m.d.comb += [
            unit_now.eq(UnitId.SEQ),
            pc.eq(reports[UnitId.SEQ.value].pc),
            detail.eq(NO_SEMAPHORE),
            stuck.unit.eq(unit_now),
            stuck.pc.eq(pc),
            stuck.fault.code.eq(ErrorCode.WATCHDOG),
            stuck.fault.detail.eq(detail),
        ]
        units = list(UnitId)
        for unit in reversed(units[1:]):
            report = reports[unit.value]
            with m.If(report.pending):
                m.d.comb += [unit_now.eq(unit), pc.eq(report.pc)]
        for unit in reversed([*units[1:], UnitId.SEQ]):
            report = reports[unit.value]
            with m.If(report.waiting):
                m.d.comb += [
                    unit_now.eq(unit),
                    pc.eq(report.pc),
                    detail.eq(report.waiting_for),
                ]
