"""Any streaming component between players and recorders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amaranth import Const, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.harness.pauses import PauseControl
from pequin.harness.player import StreamPlayer
from pequin.harness.recorder import StreamRecorder
from pequin.streams import connect_streams

SETTLE_CLOCKS = 8
"""Clocks between the end of the preloaded streams and the start of the others."""


class StreamBench(wiring.Component):
    """Drive all input streams of a component from RAM images and record all output streams.

    Python sets counts and pauses, raises `start` for a clock, and sleeps until `done`: the
    simulation runs at the speed of the compiled model. Images are named after the streams:
    `+weights.load=FILE`, `+results.dump=FILE`.

    Parameters
    ----------
    dut
        The component under test. Members that are no streams stay unconnected (inputs) or
        become ports of the bench (outputs).
    depths
        Words of the image of each stream, by name.
    preload
        Input streams that are played to their end before the others start.
    controls
        Inputs of the component that become ports of the bench.

    Members
    -------
    start : In(1)
    NAME_count : In(32)
        For each input stream: items to play. For each output stream: items to expect.
    NAME_pauses : In(PauseControl)
    NAME_taken : Out(32)
        For each output stream: items recorded.
    done : Out(1)
        Everything was played and recorded.
    clocks : Out(48)
        Clocks from the start of the streams that are not preloaded to `done`.
    running : Out(1)

    Raises
    ------
    ConfigError
        `depths` or `preload` do not match the component's streams.
    """

    def __init__(
        self,
        dut: wiring.Component,
        *,
        depths: Mapping[str, int],
        preload: tuple[str, ...] = (),
        controls: tuple[str, ...] = (),
    ) -> None:
        self._dut, self._depths, self._preload = dut, dict(depths), preload
        self._controls = controls
        members = dut.signature.members
        streams = {
            name: member
            for name, member in members.items()
            if member.is_signature and isinstance(member.signature, stream.Signature)
        }
        if set(streams) != set(depths) or not set(preload) <= set(streams):
            raise ConfigError(
                f"depths must name the component's streams {sorted(streams)}, not {sorted(depths)}"
            )
        self._inputs = [n for n, member in streams.items() if member.flow == wiring.In]
        self._outputs = [n for n in streams if n not in self._inputs]
        self._monitors = [
            n for n, member in members.items() if member.is_port and member.flow == wiring.Out
        ]
        ports: dict[str, wiring.Member] = {"start": In(1), "done": Out(1), "running": Out(1)}
        ports["clocks"] = Out(48)
        for name in streams:
            ports[f"{name}_count"] = In(32)
            ports[f"{name}_pauses"] = In(PauseControl)
        for name in self._outputs:
            ports[f"{name}_taken"] = Out(32)
        for name in self._monitors:
            ports[name] = Out(members[name].shape)
        for name in controls:
            ports[name] = In(members[name].shape)
        super().__init__(ports)

    @property
    def dut(self) -> wiring.Component:
        """The component under test."""
        return self._dut

    @property
    def inputs(self) -> list[str]:
        """Names of the played streams."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[str]:
        """Names of the recorded streams."""
        return list(self._outputs)

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        m.submodules.dut = self._dut
        begin, preloaded = Signal(), Signal()
        finished = self._elaborate_players(m, begin)
        complete = self._elaborate_recorders(m)
        for name in self._monitors:
            m.d.comb += getattr(self, name).eq(getattr(self._dut, name))
        for name in self._controls:
            m.d.comb += getattr(self._dut, name).eq(getattr(self, name))
        waiting, wait = Signal(), Signal(range(SETTLE_CLOCKS + 1))
        ready = [finished[n] for n in self._preload]
        m.d.comb += preloaded.eq(waiting & _all(ready))
        m.d.comb += begin.eq(preloaded & (wait == SETTLE_CLOCKS))
        with m.If(self.start):
            m.d.sync += [waiting.eq(1), wait.eq(0), self.running.eq(0), self.clocks.eq(0)]
        with m.Elif(begin):
            m.d.sync += [waiting.eq(0), self.running.eq(1)]
        with m.Elif(preloaded):
            m.d.sync += wait.eq(wait + 1)
        m.d.comb += self.done.eq(self.running & ~begin & _all([*finished.values(), *complete]))
        with m.If(self.running & ~self.done):
            m.d.sync += self.clocks.eq(self.clocks + 1)
        return m

    def _elaborate_players(self, m: Module, begin: Signal) -> dict[str, Signal]:
        finished = {}
        for name in self._inputs:
            port = getattr(self._dut, name)
            player = StreamPlayer(port.payload.shape(), depth=self._depths[name], name=name)
            m.submodules[f"{name}_player"] = player
            connect_streams(m, player.output, port)
            m.d.comb += [
                player.start.eq(self.start if name in self._preload else begin),
                player.count.eq(getattr(self, f"{name}_count")),
                player.pauses.eq(getattr(self, f"{name}_pauses")),
            ]
            finished[name] = player.done
        return finished

    def _elaborate_recorders(self, m: Module) -> list[Signal]:
        complete = []
        for name in self._outputs:
            port = getattr(self._dut, name)
            recorder = StreamRecorder(port.payload.shape(), depth=self._depths[name], name=name)
            m.submodules[f"{name}_recorder"] = recorder
            connect_streams(m, port, recorder.input)
            taken = getattr(self, f"{name}_taken")
            m.d.comb += [
                recorder.start.eq(self.start),
                recorder.pauses.eq(getattr(self, f"{name}_pauses")),
                taken.eq(recorder.count),
            ]
            complete.append(taken == getattr(self, f"{name}_count"))
        return complete


def _all(conditions: Sequence[Value]) -> Value:
    result: Value = Const(1, 1)
    for condition in conditions:
        result = result & condition
    return result
