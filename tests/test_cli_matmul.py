"""`pequin matmul`: what a user gives, sees and finds on disk."""

import dataclasses
import json
import os
import sys

import numpy as np
import pytest

import pequin_sim.cli as cli
import pequin_sim.cli.matmul as matmul_cli
from pequin_sim import matmul, toolchain
from pequin_sim.matrices import generate

JSON_KEYS = {
    "clocks", "stall_clocks", "stalls", "golden_match", "difference", "max_abs_error",
    "rms_error", "relative_error", "payload_beats", "payload_beats_closed_form", "runs", "paired",
    "beat_rate_share", "flags", "rounded_to_zero", "mac_scale_factor", "macs_per_clock",
}  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Work in an empty directory with W.npy (9 x 96) and X.npy (2 x 96)."""
    monkeypatch.chdir(tmp_path)
    weights, acts = generate(9, 96, 2, seed=1)
    np.save("W.npy", weights)
    np.save("X.npy", acts)
    return tmp_path


@pytest.fixture
def pequin(place, monkeypatch, capsys):
    """Run `pequin matmul WORDS` on preset tiny; return exit code, stdout and stderr."""

    def run(*words, preset="tiny"):
        monkeypatch.setattr(sys, "argv", ["pequin", "matmul", "--preset", preset, *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def refused(pequin, place, monkeypatch):
    """Run a command that must fail with one line, before any simulation, and leave no file."""

    def unreachable(*args, **kwargs):
        raise AssertionError("the work began before the input was checked")

    def run(*words, **options):
        before = sorted(p.name for p in place.rglob("*"))
        for name in ("mac_bench", "multiply"):
            monkeypatch.setattr(matmul_cli, name, unreachable)
        code, out, err = pequin(*words, **options)
        assert code == 1
        assert out == ""
        assert err.startswith("pequin: error: ")
        assert err.count("\n") == 1
        assert sorted(p.name for p in place.rglob("*")) == before
        return err

    return run


def test_json_on_stdout_and_nothing_else(pequin):
    code, out, _ = pequin("W.npy", "X.npy", "--json", "-o", "Y.npy")
    facts = json.loads(out)
    assert code == 0
    assert facts.keys() >= JSON_KEYS
    assert facts["golden_match"] is True
    assert facts["difference"] is None
    assert facts["stalls"]["scale"] == 1
    assert facts["stall_clocks"] == sum(facts["stalls"].values())
    assert facts["payload_beats"] == facts["payload_beats_closed_form"] == 5 * 3
    assert facts["clocks"] == facts["busy_clocks"] + facts["stall_clocks"] + facts["idle_clocks"]
    assert (facts["rows"], facts["k"], facts["vectors"]) == (9, 96, 2)
    assert facts["output"] == "Y.npy"
    y = np.load("Y.npy")
    exact = np.load("W.npy").astype(float) @ np.load("X.npy").astype(float).T
    assert y.dtype == np.float32
    assert np.abs(y - exact).max() == facts["max_abs_error"] > 0


def test_the_report_for_people(pequin, place):
    code, out, _ = pequin("W.npy", "X.npy", "--format", "mxint8", "--unpaired", "-o", "Y.npy")
    assert code == 0
    for text in (
        "W 9 x 96 mxint8", "preset tiny, unpaired, 1 run", "payload beats", "closed form",
        "waiting for the drain", "equal bit for bit", "error against float64", "1/384",
        "a factor 109.0 below", "us at 1.25 GHz", "wrote Y.npy",
    ):  # fmt: skip
        assert text in " ".join(out.replace("│", " ").split())
    assert sorted(p.name for p in place.iterdir()) == ["W.npy", "X.npy", "Y.npy"]


def test_generated_matrices(pequin):
    first, again, other = (
        json.loads(pequin("--generate", "4x64x3", "--seed", seed, "--json")[1])["max_abs_error"]
        for seed in (5, 5, 6)
    )
    assert first == again != other


def test_the_golden_backend_writes_the_same_file_without_tools(pequin, monkeypatch):
    assert pequin("W.npy", "X.npy", "-o", "rtl.npy")[0] == 0
    monkeypatch.setenv("PATH", "/nonexistent")
    code, out, _ = pequin("W.npy", "X.npy", "-o", "golden.npy", "--backend", "golden", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["clocks"] is facts["golden_match"] is None
    assert np.load("rtl.npy").tobytes() == np.load("golden.npy").tobytes()


def test_a_difference_fails_and_writes_no_result(pequin, place, monkeypatch):
    honest = matmul.run_mac

    def flipped(*args, **kwargs):
        run = honest(*args, **kwargs)
        values = run.results[0].values_u32 ^ np.uint32(1)
        return dataclasses.replace(
            run, results=[dataclasses.replace(run.results[0], values_u32=values)]
        )

    monkeypatch.setattr(matmul, "run_mac", flipped)
    code, out, err = pequin("W.npy", "X.npy", "--json", "-o", "Y.npy")
    facts = json.loads(out)
    assert code == 1
    assert facts["golden_match"] is False
    assert facts["output"] is None
    assert "values differ at row 0, vector 0" in facts["difference"]
    assert "RTL and golden model differ: values differ at row 0, vector 0" in err
    assert "DIFFERENT" in pequin("W.npy", "X.npy")[1]
    assert not (place / "Y.npy").exists()


def test_clamped_results_are_warned_of(pequin):
    np.save("W.npy", np.full((2, 32), 1e20, np.float32))
    np.save("X.npy", np.full((1, 32), 1e10, np.float32))
    code, out, _ = pequin("W.npy", "X.npy")
    assert code == 0
    assert "Warning: results were clamped" in out


def test_a_simulation_that_breaks_leaves_no_files(pequin, place, monkeypatch):
    def broken(*args, **kwargs):
        raise toolchain.ToolError("the simulation broke")

    monkeypatch.setattr(matmul, "run_mac", broken)
    code, out, err = pequin("W.npy", "X.npy", "-o", "Y.npy", "--waves", "vcd")
    assert (code, out) == (1, "")
    assert err.endswith("pequin: error: the simulation broke\n")
    assert sorted(p.name for p in place.iterdir()) == ["W.npy", "X.npy"]


def test_waves_of_a_window(pequin, place):
    code, out, _ = pequin("W.npy", "X.npy", "--waves", "vcd", "--wave-window", "10:30")
    assert code == 0
    assert "wrote matmul.vcd" in out
    times = [int(x[1:]) for x in (place / "matmul.vcd").read_text().splitlines() if x[:1] == "#"]
    assert 20 <= times[0] < times[-1] <= 60  # a clock is 2 ns


def test_a_window_after_the_end_is_an_error(pequin, place):
    code, _, err = pequin("W.npy", "X.npy", "--waves", "vcd", "--wave-window", "100000:")
    assert code == 1
    assert "matmul.vcd was not written: the first run has fewer than 100000 clocks" in err
    assert not (place / "matmul.vcd").exists()


def test_unknown_presets_are_refused(refused):
    message = refused("W.npy", "X.npy", preset="huge")
    assert "preset 'huge' is unknown; choose one of ref, wide, fpga, tiny" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give two files"),
        (("W.npy",), "give two files"),
        (("W.npy", "X.npy", "--generate", "1x32x1"), "not both"),
        (("--generate", "1x32"), "a shape is NxKxC"),
        (("--generate", "1x33x1"), "not a multiple of the block size 32: pad both with 31"),
        (("--generate", "1x288x1"), "above preset tiny's max_k = 256"),
        (("--generate", "1x32x1", "--seed", "-1"), "--seed must be 0 or more"),
        (("W.npy", "absent.npy"), "cannot read absent.npy: No such file"),
        (("W.npy", "X.npy", "--format", "mxint8", "--planes", "2"), "takes planes = 1, not 2"),
        (("W.npy", "X.npy", "-o", "no/such/Y.npy"), "there is no directory no/such"),
        (("W.npy", "X.npy", "-o", "."), "it is a directory"),
        (("W.npy", "X.npy", "-o", "W.npy"), "cannot write W.npy: it is the input"),
        (("W.npy", "X.npy", "-o", "../{}/X.npy"), "it is the input X.npy"),
        (("W.npy", "X.npy", "--wave-window", "1:2"), "need --waves vcd or --waves fst"),
        (("W.npy", "X.npy", "--waves", "vcd", "--backend", "golden"), "needs --backend rtl"),
        (("W.npy", "X.npy", "--waves", "vcd", "--wave-file", "a.fst"), "ends in .vcd, not a.fst"),
        (("W.npy", "X.npy", "--waves", "vcd", "--wave-file", "no/a.vcd"), "no directory no"),
        (("W.npy", "X.npy", "--waves", "vcd", "--wave-window", "5"), "is A:B in clocks"),
        (("W.npy", "X.npy", "--waves", "vcd", "--wave-window", "a:b"), "is A:B in clocks"),
        (("W.npy", "X.npy", "--waves", "vcd", "--wave-window", "9:9"), "must end after it starts"),
    ],
)
def test_bad_arguments_are_refused(refused, place, words, message):
    assert message in refused(*(word.format(place.name) for word in words))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("W.npy", np.zeros((4, 50), np.float32), "W.npy is 4 x 50 and X.npy is 2 x 96"),
        ("W.npy", np.zeros((4, 96), np.int64), "W.npy holds int64; it must be float32"),
        ("X.npy", np.zeros(96, np.float32), "X.npy has 1 dimensions"),
        ("X.npy", np.zeros((0, 96), np.float32), "X.npy is empty"),
        ("W.npy", np.full((4, 96), np.nan, np.float32), "W.npy: row 0, column 0 is nan"),
        ("X.npy", np.full((1, 96), -np.inf, np.float32), "X.npy: row 0, column 0 is -inf"),
        ("X.npy", np.array([[{}]], dtype=object), "X.npy holds pickled Python objects"),
    ],
)
def test_bad_matrices_are_refused(refused, name, array, message):
    np.save(name, array, allow_pickle=True)
    assert message in refused("W.npy", "X.npy", "-o", "Y.npy")


def test_a_file_that_is_no_npy_is_refused(refused, place):
    (place / "X.npy").write_text("1 2 3\n")
    assert "X.npy is not an .npy file" in refused("W.npy", "X.npy")


def test_a_read_only_directory_is_found_before_any_work(refused, place, monkeypatch):
    (place / "sealed").mkdir(mode=0o500)
    if os.access(place / "sealed", os.W_OK):  # root may write anywhere: let the check refuse
        monkeypatch.setattr(
            "pequin_sim.outputs.tempfile.mkstemp",
            lambda **_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")),
        )
    assert "cannot write sealed/Y.npy: Permission denied" in refused(
        "W.npy", "X.npy", "-o", "sealed/Y.npy"
    )


def test_a_missing_compiler_is_found_before_any_work(refused, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "g++ is not installed: apt-get install g++ make perl" in refused("W.npy", "X.npy")


def test_missing_headers_for_fst_are_found_before_any_work(refused, monkeypatch):
    def absent():
        raise toolchain.ToolError("FST waveforms need the headers of zlib and lz4")

    monkeypatch.setattr(toolchain, "require_fst_headers", absent)
    assert "FST waveforms need" in refused("W.npy", "X.npy", "--waves", "fst")
