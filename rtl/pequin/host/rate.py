"""The rate of a link in bytes per clock."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from pequin.errors import ConfigError
from pequin.host.types import WORD_BYTES, LinkWord

MAX_DENOMINATOR = 4096
"""The rate is the nearest fraction with a denominator up to this."""


def link_rate(bytes_per_clock: float) -> Fraction:
    """Return the exact rate (bytes per clock) that stands for a number."""
    return Fraction(bytes_per_clock).limit_denominator(MAX_DENOMINATOR)


class RateLimiter(wiring.Component):
    """Let words pass at a given number of bytes per clock.

    A bucket gains `rate` bytes in every clock and holds `capacity` bytes at most; a word passes
    when the bucket has its bytes. Between any two clocks T apart at most capacity + rate * T bytes
    pass; a source that always has a word gets exactly `rate`.

    *Timing*: no latency; `output.valid` does not depend on `output.ready`.

    Parameters
    ----------
    rate
        Bytes per clock, above 0 and at most 8.

    Members
    -------
    input : In(stream of LinkWord), output : Out(stream of LinkWord)

    Raises
    ------
    ConfigError
        The rate is out of range.
    """

    input: Any
    output: Any

    def __init__(self, *, rate: float) -> None:
        self._rate = link_rate(rate)
        if not 0 < self._rate <= WORD_BYTES:
            raise ConfigError(
                f"a link's rate must be above 0 and at most {WORD_BYTES} bytes per clock "
                f"(host_bytes_per_clock), not {rate}"
            )
        super().__init__(
            {"input": In(stream.Signature(LinkWord)), "output": Out(stream.Signature(LinkWord))}
        )

    @property
    def rate(self) -> Fraction:
        """Bytes per clock."""
        return self._rate

    @property
    def capacity(self) -> Fraction:
        """Bytes that the bucket holds: a word and what a clock adds."""
        return WORD_BYTES + self._rate

    def elaborate(self, platform: object) -> Module:
        """Describe the hardware."""
        m = Module()
        # The bucket counts in units of 1 / `unit` byte, so that nothing is rounded.
        gain, unit = self._rate.numerator, self._rate.denominator
        full = WORD_BYTES * unit + gain
        bucket, left = Signal(range(full + 1), init=full), Signal(range(full + 1))
        cost, enough = Signal(range(WORD_BYTES * unit + 1)), Signal()
        with m.Switch(self.input.payload.count):
            for count in range(1, WORD_BYTES + 1):
                with m.Case(count):
                    m.d.comb += cost.eq(count * unit)
            with m.Default():
                m.d.comb += cost.eq(WORD_BYTES * unit)
        m.d.comb += [
            enough.eq(bucket >= cost),
            self.output.payload.eq(self.input.payload),
            self.output.valid.eq(self.input.valid & enough),
            self.input.ready.eq(self.output.ready & enough),
            left.eq(Mux(self.input.valid & self.input.ready, bucket - cost, bucket)),
            # `left` plus `gain` may exceed the bucket.
        ]
        m.d.sync += bucket.eq(Mux(left > full - gain, full, left + gain))
        return m
