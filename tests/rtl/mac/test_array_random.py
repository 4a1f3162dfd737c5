"""Random campaigns on the whole array: a short one for every run, the long one as a soak."""

import pytest
from rich.progress import Progress

from pequin_sim.campaigns.mac import run_campaign
from pequin_sim.campaigns.operands import FORMATS, PAUSES

CONDITIONS = ("nan", "term_clamped", "result_clamped", "rounded to zero", "zero blocks")


def check_reached(reached, products):
    for fmt in ("mxfp4", "mxint8"):
        assert reached.products[fmt] >= products
        for condition in CONDITIONS:
            assert reached.events[f"{fmt} {condition}"] > 0, (fmt, condition)


@pytest.mark.parametrize(("preset", "products"), [("ref", 100_000), ("fpga", 3_000)])
def test_short_campaign(params_of, bench_of, total_clocks, preset, products):
    reached = run_campaign(
        params_of(preset),
        products=products,
        seed=1,
        beats=3000 if preset == "ref" else 1500,
        cross=False,
        design=bench_of(preset),
    )
    total_clocks.append(reached.clocks)
    check_reached(reached, products)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("preset", "products"), [("ref", 20_000_000), ("fpga", 1_000_000), ("tiny", 200_000)]
)
def test_long_campaign(params_of, bench_of, capsys, preset, products):
    with capsys.disabled(), Progress() as bar:
        task = bar.add_task(f"{preset}: {products} block products per format", total=1.0)
        reached = run_campaign(
            params_of(preset),
            products=products,
            seed=2026,
            beats=50_000 if preset != "tiny" else 10_000,
            design=bench_of(preset),
            progress=lambda _, share: bar.update(task, completed=share),
        )
        bar.print(f"{preset}: {dict(reached.products)} block products, {reached.clocks} clocks")
    check_reached(reached, products)
    cells = {(str(f), paired, p) for f in FORMATS for paired in (False, True) for p in PAUSES}
    assert set(reached.cross) == cells
