"""cocotb test: play a script into the vector unit and record what comes out.

Job keys: `script` (see `pequin_tb.vector.bench`), `results` and `blocks` (words in hexadecimal),
`pause` (probability that a stream rests in a clock), `seed`, `timeout_clocks`.
"""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from pequin_tb import job

_SOURCES = ("commands", "drain_commands", "results", "blocks", "access")
_SINKS = ("responses", "activations", "kv", "access_data")


class _Stream:
    def __init__(self, dut: Any, name: str, drives: bool) -> None:
        self.valid = getattr(dut, f"{name}__valid")
        self.ready = getattr(dut, f"{name}__ready")
        self.payload = getattr(dut, f"{name}__payload")
        (self.valid if drives else self.ready).value = 0
        self.items: list[Any] = []
        self.offered = False
        self.open = False


class _Player:
    """One loop for all streams: what is seen at an edge is the state before it."""

    def __init__(self, dut: Any, order: dict[str, Any]) -> None:
        self.dut = dut
        self.pause = float(order["pause"])
        self.random = random.Random(order["seed"])
        self.sources = {name: _Stream(dut, name, True) for name in _SOURCES}
        self.sinks = {name: _Stream(dut, name, False) for name in _SINKS}
        for name in ("results", "blocks"):
            self.sources[name].items = [int(word, 16) for word in order[name]]
        self.script = list(order["script"])
        self.clock = 0
        self.issued = self.ended = self.asked = 0
        self.issue_clocks: list[int] = []
        self.end_clocks: list[int] = []
        self.causes = [0] * 8

    def _rests(self) -> bool:
        return self.pause > 0 and self.random.random() < self.pause

    def sample(self) -> None:
        """Look at the handshakes of the edge that has just come."""
        for name, stream in self.sources.items():
            if stream.offered and int(stream.ready.value):
                stream.items.pop(0)
                stream.offered = False
                if name in ("commands", "drain_commands"):
                    self.issue_clocks.append(self.clock)
        for name, stream in self.sinks.items():
            if stream.open and int(stream.valid.value):
                word = int(stream.payload.value)
                stream.items.append(hex(word))
                if name == "responses" and not word & 1:
                    self.ended += 1
                    self.end_clocks.append(self.clock)
        self.causes[int(self.dut.cause.value)] += 1

    def drive(self) -> None:
        """Offer and accept for the next edge."""
        self._follow_script()
        for stream in self.sources.values():
            if not stream.offered:
                offer = bool(stream.items) and not self._rests()
                stream.valid.value = int(offer)
                if offer:
                    stream.payload.value = stream.items[0]
                    stream.offered = True
        for stream in self.sinks.values():
            is_open = not self._rests()
            if is_open != stream.open:
                stream.open = is_open
                stream.ready.value = int(is_open)

    def _follow_script(self) -> None:
        while self.script:
            step = self.script[0]
            if step[0] == "wait":
                answers = len(self.sinks["access_data"].items)
                if self.ended < self.issued or answers < self.asked:
                    return
                if self.sources["access"].items:
                    return
            elif step[0] == "access":
                word = int(step[1], 16)
                self.asked += not word & 1
                self.sources["access"].items.append(word)
            else:
                name = _SOURCES[int(step[1])]
                self.sources[name].items.append(int(step[2], 16))
                self.issued += 1
            self.script.pop(0)

    @property
    def done(self) -> bool:
        return not self.script and self.ended == self.issued


@cocotb.test()
async def play(dut: Any) -> None:
    """Run the script to its end."""
    order = job.load()
    job.start_clock(dut)
    player = _Player(dut, order)
    await job.reset(dut)
    await RisingEdge(dut.clk)
    edge = RisingEdge(dut.clk)
    linger = 4
    while linger:
        player.drive()
        await edge
        player.clock += 1
        player.sample()
        linger -= player.done
        if player.clock > order["timeout_clocks"]:
            raise AssertionError(
                f"not done after {player.clock} clocks: {player.ended} of {player.issued} commands "
                f"have ended, {len(player.script)} steps to come, "
                f"{len(player.sources['results'].items)} result groups not taken"
            )
    job.finish(
        {
            "clocks": player.clock,
            "issue_clocks": player.issue_clocks,
            "end_clocks": player.end_clocks,
            "causes": player.causes,
            **{name: stream.items for name, stream in player.sinks.items()},
        }
    )
