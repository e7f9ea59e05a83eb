# One door to everything, on a machine with python3 and make: `make demo`, `make test`, `make check`, `make bench`.
# All of it runs in the virtual environment VENV, which is made at first use.

PYTHON ?= python3
VENV ?= .venv
WORD ?= heron
ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.installed
BENCH_READY := $(VENV)/.installed-bench
# Peers that pin an older redis-py than ours; what else they need is in the group `bench`.
BENCH_ALONE := agent-framework-redis redisvl

export WORD

.PHONY: demo test check format bench clean

demo: $(READY)  ## An agent remembers WORD across a killed process: make demo WORD=whale
	@$(BIN)/agentstore demo --remember "$$WORD"

test: $(READY)  ## Every test; more arguments for pytest in ARGS
	@$(BIN)/python -m pytest -n 3 -ra $(ARGS)

check: $(READY)  ## Lint, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: $(READY)  ## Repair what `check` says about lint and format, where that is safe
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(READY) $(BENCH_READY)  ## Side by side with the raw drivers and the peers
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## Remove what make made
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt .ci/venv
	@echo "installing into $(VENV) (once) ..."
	@.ci/venv $(PYTHON) $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt "pip>=25.1"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --group dev -e .
	@touch $@

# The peers: where one cannot be installed, the benchmarks say so in its row.
$(BENCH_READY): $(READY)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --group bench \
		&& $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps $(BENCH_ALONE) \
		|| echo "not all peers are installed"
	@touch $@
