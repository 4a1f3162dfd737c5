"""The RAM: timing, files at start and end, both simulators, and what synthesis makes of it."""

import re
import subprocess

import numpy as np
import pytest

from pequin.errors import ConfigError, ToolError
from pequin.export import elaborate, library_text
from pequin.ram import Ram
from pequin_sim.images import read_image, write_image
from pequin_sim.runner import SimulationFailed, simulate
from pequin_sim.toolchain import find_icarus, find_yosys, lint

DEPTH = 37
TESTBENCH = '''
import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from pequin_tb import job


@cocotb.test()
async def script(dut):
    """Each step drives the ports for one clock; the answer is read_data after that clock."""
    dut.read_en.value = 0
    dut.write_en.value = 0
    job.start_clock(dut)
    await RisingEdge(dut.clk)
    seen = []
    for step in job.load()["steps"]:
        read, write, data = step
        dut.read_en.value = read is not None
        dut.read_addr.value = read or 0
        dut.write_en.value = write is not None
        dut.write_addr.value = write or 0
        dut.write_data.value = data
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        seen.append(str(dut.read_data.value))
    job.finish({"seen": seen})
'''


def has_icarus():
    try:
        return bool(find_icarus())
    except ToolError:
        return False


ENGINES = [
    "verilator",
    pytest.param(
        "icarus",
        marks=pytest.mark.skipif(not has_icarus(), reason="Icarus Verilog is not installed"),
    ),
]


@pytest.fixture(scope="module")
def designs():
    return {
        width: elaborate(Ram(width=width, depth=DEPTH, name="store.a"), f"ram{width}")
        for width in (13, 64)
    }


@pytest.fixture
def testbench(tmp_path, monkeypatch):
    (tmp_path / "ram_script.py").write_text(TESTBENCH)
    monkeypatch.syspath_prepend(tmp_path)
    return "ram_script"


def words(width, count=DEPTH):
    values = np.random.default_rng(width).integers(0, 1 << width, count, dtype=np.uint64)
    return [int(value) for value in values]


def image(values, width):
    size = -(-width // 8)
    flat = b"".join(value.to_bytes(size, "little") for value in values)
    return np.frombuffer(flat, np.uint8).reshape(-1, size)


@pytest.mark.parametrize("simulator", ENGINES)
def test_reads_take_one_clock_and_hold_and_a_collision_gives_the_old_word(
    designs, testbench, simulator
):
    steps = [
        [None, 5, 100],  # write 5
        [5, None, 0],  # read it back
        [None, 5, 200],  # the data stay while read_en is low, also when the word changes
        [5, 5, 300],  # read and write at once
        [5, None, 0],
        [6, None, 0],  # never written: zero
    ]
    done = simulate(designs[13], test_module=testbench, job={"steps": steps}, simulator=simulator)
    seen = [int(value, 2) for value in done.result["seen"][1:]]
    assert seen == [100, 100, 200, 300, 0]


@pytest.mark.parametrize("simulator", ENGINES)
@pytest.mark.parametrize("width", [13, 64])
def test_files_are_loaded_before_the_first_clock_and_dumped_at_the_end(
    designs, testbench, tmp_path, width, simulator
):
    values = words(width)
    write_image(tmp_path / "in", image(values, width))
    done = simulate(
        designs[width],
        test_module=testbench,
        job={"steps": [[0, None, 0], [DEPTH - 1, 7, 77]]},
        plusargs=[f"+store.a.load={tmp_path / 'in'}", f"+store.a.dump={tmp_path / 'out'}"],
        simulator=simulator,
    )
    assert [int(value, 2) for value in done.result["seen"]] == [values[0], values[-1]]
    values[7] = 77
    assert np.array_equal(read_image(tmp_path / "out", -(-width // 8)), image(values, width))


def test_a_short_file_leaves_zeros(designs, testbench, tmp_path):
    write_image(tmp_path / "in", image([3, 4], 13))
    done = simulate(
        designs[13],
        test_module=testbench,
        job={"steps": [[1, None, 0], [2, None, 0]]},
        plusargs=[f"+store.a.load={tmp_path / 'in'}"],
    )
    assert [int(value, 2) for value in done.result["seen"]] == [4, 0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot open"),
        (bytes(4 * DEPTH + 4), f"is longer than {DEPTH} words or ends inside a word"),
        (bytes(6), f"is longer than {DEPTH} words or ends inside a word"),
    ],
    ids=["missing", "too long", "broken"],
)
def test_a_bad_file_fails_the_simulation(designs, testbench, tmp_path, content, reason):
    path = tmp_path / "in"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SimulationFailed) as failed:
        simulate(
            designs[13],
            test_module=testbench,
            job={"steps": []},
            plusargs=[f"+store.a.load={path}"],
        )
    assert f"pequin_ram store.a: {path} {reason}" in failed.value.log or (
        content is None and f"pequin_ram store.a: cannot open {path}" in failed.value.log
    )


def test_lint_is_clean(designs):
    for design in designs.values():
        lint(design)


def test_synthesis_makes_block_ram(tmp_path):
    source = tmp_path / "pequin_ram.v"
    source.write_text(library_text("pequin_ram"))
    script = (
        f"read_verilog {source.name}; "
        "chparam -set WIDTH 256 -set DEPTH 2048 -set ADDR_WIDTH 11 pequin_ram; "
        "synth_ecp5 -noflatten -top pequin_ram; tee -o stat.txt stat"
    )
    subprocess.run(
        [str(find_yosys().path), "-q", "-p", script], cwd=tmp_path, check=True, capture_output=True
    )
    report = (tmp_path / "stat.txt").read_text()
    blocks = re.search(r"DP16KD +(\d+)|(\d+) +DP16KD", report)
    # 512 Kbit are at least 29 blocks of 18 Kbit; those of 1,024 x 18 bits give 30.
    assert 29 <= int(blocks[1] or blocks[2]) <= 33


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0, "depth": 4, "name": "a"}, "width must be at least 1 bit, not 0"),
        ({"width": 8, "depth": 1, "name": "a"}, "depth must be at least 2 words, not 1"),
        ({"width": 8, "depth": 4, "name": "a b"}, "may hold letters, digits, '_' and '.'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Ram(**arguments)


def test_the_parameters_can_be_read():
    ram = Ram(width=8, depth=5, name="x")
    assert (ram.width, ram.depth, ram.name) == (8, 5, "x")
    assert len(ram.read_addr) == 3
    elaborate(ram, "ram")
