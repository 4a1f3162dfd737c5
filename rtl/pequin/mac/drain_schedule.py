"""When a row group may end, so that its results always find their place."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from pequin.config import TileParams
from pequin.mac.types import GROUPS, Sink, row_tag

STATUS_DEPTH = 32
"""Commands whose status may be on its way or wait."""

_ROUND_TRIP = 40
"""Clocks, rounded up, from a row group's end to the return of its first place."""

_UNCOUNTED = 2
"""Row groups of one result group that may end before an end shows in `room`."""


def drain_clocks(params: TileParams, tag: Any) -> Any:
    """Return the clocks that a row group's results take to drain, minus one."""
    groups = tag.last_vector // params.config.drain_lanes
    return (groups << tag.second_row) + tag.second_row


def longest_drain(params: TileParams) -> int:
    """Return the clocks that two rows of all vectors take to drain."""
    return GROUPS * params.config.columns // params.config.drain_lanes


def result_depth(params: TileParams) -> int:
    """Return the result groups that may be on their way or wait: enough for one per clock."""
    return 1 << (_ROUND_TRIP + longest_drain(params)).bit_length()


class DrainSchedule(wiring.Component):
    """Let a row group end only when its drain, its results and its status have a place.

    The pipeline behind the feeder never waits: places are promised where a row group ends. A
    group that drains for D clocks keeps the next from ending for D clocks, so the read-out is
    ready when it arrives; results and statuses have places in their buffers from the end on; and
    after the last row of a selection no further group may end in the top-k registers until the
    selection was given out.

    Timing: `may_end` depends on registers only, those of `tag` among them.

    Parameters
    ----------
    params
        Sizes: `columns`, `drain_lanes`.

    Members
    -------
    ended : In(1)
        A row group has ended in the clock before.
    tag : In(row_tag(params))
        That group's.
    result_taken, status_taken, selection_taken : In(1)
        A result group, a status, the last entry of a selection was given out.
    may_end : Out(1).array(2)
        By `Sink`: a row group may end in this clock.
    """

    def __init__(self, params: TileParams) -> None:
        self._params = params
        super().__init__(
            {
                "ended": In(1),
                "tag": In(row_tag(params)),
                "result_taken": In(1),
                "status_taken": In(1),
                "selection_taken": In(1),
                "may_end": Out(1).array(len(Sink)),
            }
        )

    @property
    def params(self) -> TileParams:
        """The tile's parameters."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        longest, depth = longest_drain(self._params), result_depth(self._params)
        more = Signal(range(longest))
        m.d.comb += more.eq(drain_clocks(self._params, self.tag))
        drain_free = self._drain_free(m, more, longest)
        to_top_k = self.tag.sink == Sink.TOP_K
        promised = Signal(range(longest + 1))
        with m.If(self.ended & ~to_top_k):
            m.d.comb += promised.eq(more + 1)
        places = depth - longest - _UNCOUNTED
        result_room = self._room(m, "result", promised, self.result_taken, places)
        finishes = self.ended & self.tag.final
        places = STATUS_DEPTH - 1 - _UNCOUNTED
        status_room = self._room(m, "status", finishes, self.status_taken, places)
        selecting = Signal()
        selected = finishes & to_top_k & self.tag.select_last
        with m.If(selected):
            m.d.sync += selecting.eq(1)
        with m.Elif(self.selection_taken):
            m.d.sync += selecting.eq(0)
        m.d.comb += [
            self.may_end[Sink.STREAM.value].eq(drain_free & status_room & result_room),
            self.may_end[Sink.TOP_K.value].eq(drain_free & status_room & ~selecting & ~selected),
        ]
        return m

    def _drain_free(self, m: Module, more: Signal, longest: int) -> Any:
        """Count the clocks in which the read-out will be busy."""
        left = Signal(range(longest))
        free = Signal(init=1)
        left_next = Signal.like(left)
        with m.If(self.ended):
            m.d.comb += left_next.eq(more - (more != 0))
        with m.Else():
            m.d.comb += left_next.eq(left - (left != 0))
        m.d.sync += [left.eq(left_next), free.eq(left_next == 0)]
        return free & ~(self.ended & (more != 0))

    def _room(self, m: Module, name: str, promised: Any, taken: Any, places: int) -> Signal:
        """Count places promised and not yet given back; return whether at most `places` are."""
        count = Signal(range(places + longest_drain(self._params) + _UNCOUNTED + 1), name=name)
        room = Signal(init=1, name=f"{name}_room")
        m.d.sync += [count.eq(count + promised - taken), room.eq(count <= places)]
        return room
