import json
from pathlib import Path

import pytest

from pequin.hbm.timing import HbmTiming
from pequin_sim.hbm import closed_forms, patterns
from pequin_sim.hbm.address import StreamMap

ORACLE = Path(__file__).parents[4] / "shared" / "oracle" / "hbm4_ramulator2.json"
T10 = HbmTiming.preset("hbm4-10g")


def test_closed_forms_of_the_stated_design():
    assert closed_forms.all_bank_refresh(T10).value == pytest.approx(0.8734, abs=1e-4)
    assert closed_forms.all_bank_refresh(T10, 4).value == pytest.approx(0.8817, abs=1e-4)
    shares = [closed_forms.bursts_per_row(T10, n).value for n in (1, 2, 3, 4, 8)]
    assert shares == pytest.approx([0.2105, 0.4211, 0.6316, 0.8421, 1.0], abs=1e-4)
    values = [closed_forms.latency(T10, state).value for state in ("hit", "closed", "conflict")]
    assert values == [14, 39, 60]
    assert "= 617) / 4875" in closed_forms.all_bank_refresh(T10).arithmetic


def test_names_are_unique_and_every_pattern_states_its_source():
    every = [*patterns.reference_patterns(), *patterns.oracle_patterns()]
    names = [p.name for p in every]
    assert len(set(names)) == len(names)
    assert all(p.source and p.arithmetic for p in every)
    for pattern in every:
        if pattern.expected is not None:
            assert 0 < pattern.low <= pattern.high <= 1


@pytest.mark.skipif(not ORACLE.exists(), reason="the reference simulators' results are not here")
def test_reference_values_are_the_oracles():
    oracle = json.loads(ORACLE.read_text())
    eight = oracle["8Gbps_one_pseudo_channel_64_deep"]
    table = {
        "stream-interleaved": ("stream_bank_group_interleaved", 0.07),
        "random-32b": ("random_32B", 0.03),
        "random-64b": ("random_64B_one_row", 0.03),
        "reads-writes-2-1": ("reads_writes_2_to_1_in_1KB_blocks", 0.15),
        "stream-all-bank-8g": ("stream_all_bank_refresh", 0.07),
    }
    found = {p.name: p for p in patterns.oracle_patterns()}
    for name, (key, band) in table.items():
        low = min(eight[key]) / 100
        assert found[name].expected == pytest.approx(low)
        assert found[name].low == pytest.approx(low * (1 - band))
    rows = {p.name: p for p in patterns.reference_patterns()}
    for count, share in oracle["10Gbps"]["bursts_per_activated_row"].items():
        assert rows[f"bursts-{count}"].expected == pytest.approx(share / 100)


def test_streams_visit_what_they_say():
    row_first = [patterns.row_first(i) for i in range(128)]
    assert sorted(row_first) == list(range(128))
    places = [StreamMap().place(beat) for beat in row_first]
    assert all(place.group == places[0].group for place in places[:32])
    starts = patterns.same_bank_starts()
    assert len({StreamMap().bank_of(start) for start in starts}) == 1
    assert len(set(starts)) == 3
    pairs = list(patterns.random_beats(40, run=2))
    for (_, a, _, _), (_, b, _, _) in zip(pairs[::2], pairs[1::2], strict=True):
        assert StreamMap().bank_of(a) == StreamMap().bank_of(b)


def test_mix_keeps_its_ratio():
    requests = list(patterns.mixed_streams(64 * 400, 75))
    writes = sum(write for write, *_ in requests)
    assert writes / len(requests) == pytest.approx(0.25, abs=0.01)


def test_controller_clocks_are_in_the_bound():
    form = closed_forms.outstanding(HbmTiming.preset("hbm4-8g"), 8, patterns.CONTROLLER_CLOCKS)
    assert form.value == pytest.approx(8 / 16)
