"""The host port between a host in Python and a stub of a tile."""

import pytest

from pequin.host.types import HostCause
from pequin_sim.rtl.bench import Pauses

PAUSES = {
    "rx": Pauses(rate=60, burst_rate=600, burst_clocks=30, seed=1),
    "tx": Pauses(rate=90, burst_rate=600, burst_clocks=30, seed=2),
    "access": Pauses(rate=120, burst_rate=300, burst_clocks=200, seed=3),
    "order": Pauses(rate=100, burst_rate=300, burst_clocks=100, seed=4),
    "event": Pauses(rate=100, burst_rate=300, burst_clocks=100, seed=5),
}


def check_counts(result):
    # The counter is a clock late, and so is the cause.
    assert abs(sum(result["counts"]) - result["clocks"]) <= 1
    return dict(zip([c.name for c in HostCause], result["counts"], strict=True))


@pytest.mark.parametrize("pauses", [None, PAUSES], ids=["plain", "pauses"])
@pytest.mark.parametrize(
    ("scenario", "job"),
    [
        ("memories", {"seed": 1, "count": 40}),
        ("steps", {"seed": 2, "count": 40}),
        ("orders", {}),
        ("a_step_waits", {}),
        ("refused_accesses", {}),
        ("damaged", {"seed": 3, "count": 300}),
        ("mixed", {"seed": 4, "count": 60}),
    ],
)
def test_scenario(run, scenario, job, pauses):
    result = run(scenario, job=job, pauses=pauses).simulation.result
    causes = check_counts(result)
    assert causes["RX"] + causes["BOTH"] > 0
    if scenario == "damaged":
        assert set(result["seen"]) == {
            "good", "SYNC", "VERSION", "LENGTH", "CRC", "TYPE", "FIELD", "MEMORY",
        }  # fmt: skip


def test_nothing_is_lost_when_the_credit_is_exhausted(run):
    causes = check_counts(run("credit").simulation.result)
    assert causes["CREDIT"] > 1500


def test_what_finds_no_place_is_counted(run):
    run("floods", job={"seed": 5, "count": 200})


def test_stop_gets_through_when_all_places_are_taken(run):
    run("overrun")


@pytest.mark.parametrize("rate", [1.25, 0.3])
def test_memories_at_another_rate(run, rate):
    causes = check_counts(run("memories", rate=rate, job={"seed": 6, "count": 6}).simulation.result)
    assert causes["LINK"] > causes["RX"]


def test_steps_of_sixteen_columns(run):
    run("steps", preset="ref", job={"seed": 7, "count": 30}, pauses=PAUSES)
