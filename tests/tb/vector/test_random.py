import pytest

from pequin_tb.vector import bench
from pequin_tb.vector.bench import run
from pequin_tb.vector.random_program import random_program


@pytest.mark.parametrize("seed", range(6))
def test_tiny(seed):
    program = random_program("tiny", seed, 40, max_length=100)
    run(program, pause=(0.0, 0.3)[seed % 2], seed=seed)


@pytest.mark.parametrize(("preset", "seed"), [("fpga", 1), ("fpga", 2), ("ref", 3), ("ref", 4)])
def test_larger(preset, seed):
    program = random_program(preset, seed, 40, max_length=300)
    run(program, pause=(0.0, 0.3)[seed % 2], seed=seed)


def test_a_wrong_word_is_found(monkeypatch):
    golden = bench._golden

    def wrong(program, p):
        machine, responses = golden(program, p)
        machine.memory[77] += 1
        return machine, responses

    monkeypatch.setattr(bench, "_golden", wrong)
    with pytest.raises(AssertionError, match="vector memory differ at element 77"):
        run(random_program("tiny", 3, 10, max_length=60))


@pytest.mark.soak
@pytest.mark.parametrize("preset", ["tiny", "fpga", "ref", "wide"])
def test_many(preset):
    for seed in range(100, 150):
        length = 100 if preset == "tiny" else 400
        program = random_program(preset, seed, 60, max_length=length)
        run(program, pause=(0.0, 0.3, 0.7)[seed % 3], seed=seed, timeout=1_000_000)
