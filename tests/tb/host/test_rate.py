"""The link's rate and the throughput of bursts against closed forms."""

import math
from fractions import Fraction

import pytest

from pequin_sim.protocol import Ack, Data, Hello, LinkScript, MemoryId, Read, Write, decode
from pequin_sim.protocol.packets import MAX_BEATS

BURST = 20 + 32 * MAX_BEATS
"""Bytes of a WRITE or DATA packet of the longest burst."""

WORDS = math.ceil(BURST / 8)

RATES = {8.0: Fraction(8), 1.25: Fraction(5, 4), 3.3: Fraction(33, 10), 0.7: Fraction(7, 10)}


def script_of(packets):
    script = LinkScript()
    script.add(Hello(credit=0x7FFFFFFF))
    script.wait()
    for packet in packets:
        script.add(packet)
    return script


def play(run, rate, packets, kind):
    records = run(script=script_of(packets), rate=rate).records
    return [r for r in records if isinstance(decode(r.frame), kind)][-len(packets) :]


def passed_after(rate, size):
    """Return the clocks from the first word to the one that completes `size` bytes.

    The bucket is full before the first word: it holds a word and what a clock adds.
    """
    return max(0, math.ceil((size - 8 - rate) / rate))


@pytest.mark.parametrize("rate", RATES)
def test_one_burst_takes_what_the_rate_says(run, rate):
    (data,) = play(run, rate, [Read(memory=MemoryId.HBM, address=0, beats=64)], Data)
    exact = RATES[rate]
    wanted = WORDS - 1 if exact == 8 else passed_after(exact, BURST)
    assert data.end - data.begin == wanted


@pytest.mark.parametrize("rate", RATES)
def test_reads_keep_the_link_busy(run, rate):
    count = 12
    data = play(run, rate, [Read(memory=MemoryId.HBM, address=0, beats=64)] * count, Data)
    exact, clocks = RATES[rate], data[-1].end - data[0].begin
    if exact == 8:  # a clock between two packets
        assert clocks == count * WORDS - 1 + (count - 1)
    else:
        assert clocks == passed_after(exact, count * BURST)


@pytest.mark.parametrize("rate", RATES)
def test_writes_keep_the_link_busy(run, rate):
    count = 12
    write = Write(memory=MemoryId.HBM, address=0, data=bytes(32 * MAX_BEATS))
    acks = play(run, rate, [write] * count, Ack)
    clocks = acks[-1].begin - acks[0].begin
    period = Fraction(WORDS) if RATES[rate] == 8 else BURST / RATES[rate]
    assert abs(clocks - (count - 1) * period) <= 1
