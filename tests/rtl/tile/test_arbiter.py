"""AccessArbiter: every access once, in each user's order, fair and stable."""

import pytest

from pequin.tile.arbiter import AccessArbiter


def accesses(user, count):
    return [{"write": user, "address": 8 * (i % 100), "data": 1 << 200 | i} for i in range(count)]


@pytest.mark.parametrize("rates", [(1, 1, 1), (0.3, 0.9, 0.5), (0.9, 0.3, 0.5), (1, 1, 0.2)])
def test_every_access_once_and_in_order(sim, params_of, rates):
    dut = AccessArbiter(params_of("tiny"))
    given = [accesses(user, 60) for user in range(2)]
    dma, host = (
        sim.Source(port, items, rate=rate)
        for port, items, rate in zip((dut.dma, dut.host), given, rates, strict=False)
    )
    # The sink checks that what is offered neither changes nor vanishes.
    output = sim.Sink(dut.output, rate=rates[2])
    sim.run(dut, [dma, host, output], seed=3, clocks=2000, until=lambda: len(output.got) == 120)
    for user in range(2):
        assert [item for item in output.got if item["write"] == user] == given[user]


@pytest.mark.parametrize("rate", [1, 0.4])
def test_users_that_always_want_take_turns(sim, params_of, rate):
    dut = AccessArbiter(params_of("tiny"))
    parts = [
        sim.Source(port, accesses(user, 30), rate=1)
        for user, port in enumerate((dut.dma, dut.host))
    ]
    output = sim.Sink(dut.output, rate=rate)
    sim.run(dut, [*parts, output], seed=4, clocks=500, until=lambda: len(output.got) == 60)
    users = [item["write"] for item in output.got]
    assert users in ([0, 1] * 30, [1, 0] * 30)


def test_an_offered_access_is_not_overtaken(sim, params_of):
    dut = AccessArbiter(params_of("tiny"))
    dma = sim.Source(dut.dma, accesses(0, 1), rate=1)
    host = sim.Source(dut.host, [], rate=1)
    output = sim.Sink(dut.output, rate=0)

    def each(ctx, clock):
        if clock == 3:
            host.items.extend(accesses(1, 1))
        output.rate = clock >= 8

    sim.run(dut, [dma, host, output], each=each, clocks=15)
    assert [item["write"] for item in output.got] == [0, 1]
    assert output.clocks == [9, 10]


def test_is_combinational_when_free(sim, params_of):
    dut = AccessArbiter(params_of("tiny"))
    host = sim.Source(dut.host, accesses(1, 5), rate=1)
    output = sim.Sink(dut.output, rate=1)
    sim.run(dut, [host, output], clocks=8)
    assert output.clocks == host.clocks == [0, 1, 2, 3, 4]
