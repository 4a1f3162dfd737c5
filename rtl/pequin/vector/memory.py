"""Vector memory: two banks of rows, two operand reads and a write per clock."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.ram import Ram
from pequin.vector.types import ACCESS_ELEMENTS, access_request, address_bits

BANKS = 2


class VectorMemory(wiring.Component):
    """Rows of `lanes` elements; row r lies in bank r % 2.

    When operands a and b of a row lie in one bank, b is read a clock later, together with the a
    of the next row, so that two long vectors are read at one row each per clock whatever their
    addresses.

    *Timing*: `row_a` and `row_b` follow the clock of `read` and `ready` by two clocks. A write is
    visible to reads of later clocks.

    *Files*: the memory of lane l in bank k is the `Ram` called `vector.K.L`.

    Parameters
    ----------
    params
        The tile's parameters.

    Members
    -------
    read : In(1)
        Read the operands of a row: `a` if `read_a`, `b` if `read_b` (element addresses).
    ready : Out(1)
        0 delays the row by a clock.
    row_a, row_b : Out(32 * lanes)
    write, write_address, write_mask, write_data
        Write the lanes of `write_mask`.
    access : In(stream of access_request)
        Reads and writes from outside, in the clocks that the lanes leave free.
    access_data : Out(stream of 256 bits)
        Answers of reads.
    """

    read: Any
    read_a: Any
    read_b: Any
    a: Any
    b: Any
    ready: Any
    row_a: Any
    row_b: Any
    write: Any
    write_address: Any
    write_mask: Any
    write_data: Any
    access: Any
    access_data: Any

    def __init__(self, params: TileParams) -> None:
        self._params = params
        self._lanes = params.config.lanes
        address = address_bits(params)
        super().__init__(
            {
                "read": In(1),
                "read_a": In(1),
                "read_b": In(1),
                "a": In(address),
                "b": In(address),
                "ready": Out(1),
                "row_a": Out(32 * self._lanes),
                "row_b": Out(32 * self._lanes),
                "write": In(1),
                "write_address": In(address),
                "write_mask": In(self._lanes),
                "write_data": In(32 * self._lanes),
                "access": In(stream.Signature(access_request(params))),
                "access_data": Out(stream.Signature(32 * ACCESS_ELEMENTS)),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        access = self._access(m)
        outputs, used = self._reads(m, access)
        self._writes(m, access)
        free = Mux(access.row_bank, ~used[1], ~used[0])
        m.d.sync += access.was_read.eq(free & access.wants_read)
        m.d.comb += access.row.eq(Mux(access.row_bank, outputs[1], outputs[0]))
        return m

    def _split(self, address: Value) -> tuple[Value, Value]:
        """Return bank and row in the bank of an element address."""
        shift = self._lanes.bit_length() - 1
        return address[shift], address[shift + 1 :]

    def _reads(self, m: Module, access: Any) -> tuple[list[Value], list[Signal]]:
        """Read a, and b in the same clock or in the next; return the banks' outputs and use."""
        bank_a, row_a = self._split(self.a)
        bank_b, row_b = self._split(self.b)
        late, late_bank, late_row = Signal(), Signal(), Signal.like(row_b, name="late_row")
        m.d.comb += self.ready.eq(~(late & self.read_a & (bank_a == late_bank)))
        go = self.read & self.ready
        go_a, go_b = go & self.read_a, go & self.read_b
        postpone = go_b & (late | (go_a & (bank_a == bank_b)))
        m.d.sync += [late.eq(postpone), late_bank.eq(bank_b), late_row.eq(row_b)]
        used, outputs = [], []
        for bank in range(BANKS):
            for_a = go_a & (bank_a == bank)
            for_late = late & (late_bank == bank)
            for_b = go_b & ~postpone & (bank_b == bank)
            busy = Signal(name=f"busy_{bank}")
            row = Signal.like(row_a, name=f"row_{bank}")
            m.d.comb += [
                busy.eq(for_a | for_late | for_b),
                row.eq(Mux(for_a, row_a, Mux(for_late, late_row, Mux(for_b, row_b, access.at)))),
            ]
            used.append(busy)
            outputs.append(self._bank(m, bank, busy | access.wants_read, row))
        self._outputs(m, outputs, bank_a, bank_b, postpone, late_bank)
        return outputs, used

    def _bank(self, m: Module, bank: int, enable: Value, row: Value) -> Value:
        depth = self._params.config.vector_elements // (BANKS * self._lanes)
        self._rams = getattr(self, "_rams", {})
        words = []
        for lane in range(self._lanes):
            ram = Ram(width=32, depth=depth, name=f"vector.{bank}.{lane}")
            m.submodules[f"bank{bank}_lane{lane}"] = ram
            m.d.comb += [ram.read_en.eq(enable), ram.read_addr.eq(row)]
            self._rams[bank, lane] = ram
            words.append(ram.read_data)
        return Cat(*words)

    def _outputs(
        self,
        m: Module,
        outputs: list[Value],
        bank_a: Value,
        bank_b: Value,
        postpone: Value,
        late_bank: Value,
    ) -> None:
        """Bring both operands to the second clock after the read."""
        bank_a1, bank_b1, late_1 = Signal(), Signal(), Signal()
        late_2, late_bank_2 = Signal(), Signal()
        early_b = Signal(32 * self._lanes, reset_less=True)
        m.d.sync += [
            bank_a1.eq(bank_a),
            bank_b1.eq(bank_b),
            late_1.eq(postpone),
            late_2.eq(late_1),
            late_bank_2.eq(late_bank),
            self.row_a.eq(Mux(bank_a1, outputs[1], outputs[0])),
            early_b.eq(Mux(bank_b1, outputs[1], outputs[0])),
        ]
        m.d.comb += self.row_b.eq(Mux(late_2, Mux(late_bank_2, outputs[1], outputs[0]), early_b))

    def _writes(self, m: Module, access: Any) -> None:
        bank, row = self._split(self.write_address)
        m.d.comb += access.write_granted.eq(~self.write & access.wants_write)
        for (number, lane), ram in self._rams.items():
            outside = access.write_granted & (access.row_bank == number) & access.mask[lane]
            m.d.comb += [
                ram.write_en.eq(
                    Mux(
                        self.write,
                        self.write_mask[lane] & (bank == number),
                        outside,
                    )
                ),
                ram.write_addr.eq(Mux(self.write, row, access.at)),
                ram.write_data.eq(
                    Mux(
                        self.write,
                        self.write_data[32 * lane : 32 * lane + 32],
                        access.data[32 * lane : 32 * lane + 32],
                    )
                ),
            ]

    def _access(self, m: Module) -> Any:
        """Serve one request at a time, row by row."""
        access = _Access(self._params)
        per_row = min(self._lanes, ACCESS_ELEMENTS)
        steps = ACCESS_ELEMENTS // per_row
        request = Signal(access_request(self._params))
        step = Signal(range(max(2, steps)))
        answer = Signal(32 * ACCESS_ELEMENTS)
        row_address = Signal(address_bits(self._params))
        m.d.comb += [
            row_address.eq(request.address + step * per_row),
            self.access_data.payload.eq(answer),
        ]
        bank, at = self._split(row_address)
        m.d.comb += [access.row_bank.eq(bank), access.at.eq(at)]
        width = 32 * per_row
        group = None
        if self._lanes > ACCESS_ELEMENTS:
            group = request.address[3 : self._lanes.bit_length() - 1]
        self._access_data(m, access, request, step, group, width)
        last = step == steps - 1
        with m.FSM(name="access"):
            with m.State("IDLE"):
                m.d.comb += self.access.ready.eq(1)
                m.d.sync += [request.eq(self.access.payload), step.eq(0)]
                with m.If(self.access.valid):
                    m.next = "RUN"
            with m.State("RUN"):
                row = access.row if group is None else access.row.word_select(group, width)
                # A read is tried in each clock until one of a clock ago has met a free bank.
                m.d.comb += [
                    access.wants_read.eq(~request.write & ~access.was_read),
                    access.wants_write.eq(request.write),
                ]
                with m.If(access.was_read):
                    m.d.sync += answer.eq(Cat(answer, row[:width])[width:])
                with m.If(access.was_read | access.write_granted):
                    m.d.sync += step.eq(step + 1)
                    with m.If(last):
                        m.next = "IDLE"
                        with m.If(~request.write):
                            m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.access_data.valid.eq(1)
                with m.If(self.access_data.ready):
                    m.next = "IDLE"
        return access

    def _access_data(
        self, m: Module, access: Any, request: Any, step: Signal, group: Any, width: int
    ) -> None:
        """Spread a beat's elements over the lanes of its rows."""
        if width < 32 * ACCESS_ELEMENTS:
            part = request.data.word_select(step, width)
            m.d.comb += [access.data.eq(part), access.mask.eq(-1)]
            return
        m.d.comb += access.data.eq(request.data.replicate(self._lanes // ACCESS_ELEMENTS))
        if group is None:
            m.d.comb += access.mask.eq(-1)
        else:
            for index in range(self._lanes // ACCESS_ELEMENTS):
                with m.If(group == index):
                    m.d.comb += access.mask.word_select(index, ACCESS_ELEMENTS).eq(-1)


class _Access:
    """Signals between the access port and the banks."""

    def __init__(self, params: TileParams) -> None:
        lanes = params.config.lanes
        self.wants_read = Signal(name="access_wants_read")
        self.wants_write = Signal(name="access_wants_write")
        self.was_read = Signal(name="access_was_read")
        self.write_granted = Signal(name="access_write_granted")
        self.row_bank = Signal(name="access_bank")
        self.at = Signal(max(1, address_bits(params) - lanes.bit_length()), name="access_row")
        self.mask = Signal(lanes, name="access_mask")
        self.data = Signal(32 * lanes, name="access_row_data")
        self.row = Signal(32 * lanes, name="access_read_row")
