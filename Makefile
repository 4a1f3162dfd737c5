# Everything runs in .venv, which is made on first use and renewed when pyproject.toml changes.

VENV ?= .venv
# The first Python of a supported version; `make PYTHON=/path/to/python3.12 test` overrides it.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; (3, 11) <= sys.version_info[:2] <= (3, 13) and print("$(name)")' \
	2>/dev/null)))
# The decoder of `make run` (layers, hidden, heads, KV heads, head size, MLP, vocabulary), the tokens
# it decodes, and the preset it simulates.
MODEL ?= 2x512x8x2x64x1536x1000
POSITIONS ?= 8
PRESET ?= ref
# Processes of pytest; 0 runs the tests in one.
WORKERS ?= 0
# More words for pytest, for example PYTEST_ARGS='-k matmul -x'.
PYTEST_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := rtl sim tb tests scripts

.DEFAULT_GOAL := help
.PHONY: help run test soak lint format venv clean

help:
	@echo 'make run     decode with random weights on the simulated tile ($(MODEL), $(PRESET))'
	@echo 'make test    the test suite without the long campaigns'
	@echo 'make soak    the long random campaigns'
	@echo 'make lint    ruff, mypy, and Verilator on the generated Verilog'
	@echo 'make format  let ruff format and mend the sources'
	@echo 'make venv    only make the environment $(VENV)'
	@echo 'make clean   remove $(VENV) and what tools left (not the build cache of simulations)'

run: $(STAMP)
	$(BIN)/pequin compare --model $(MODEL) --positions $(POSITIONS) --preset $(PRESET)

test: $(STAMP)
	$(BIN)/python -m pytest -m "not soak" -n $(WORKERS) --durations=15 $(PYTEST_ARGS)

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak -n $(WORKERS) $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python scripts/lint_verilog.py

format: $(STAMP)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

venv: $(STAMP)

$(STAMP): pyproject.toml
	@test -n '$(PYTHON)' || { echo 'No Python 3.11 to 3.13 found: install one (Debian 12: \
	apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3.12' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo 'Making $(VENV) failed; on Debian: \
	apt-get install python3-venv' >&2; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
