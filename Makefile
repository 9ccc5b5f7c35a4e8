# The commands of this checkout. `make help` lists them.
#
#   make demo ENGINE=vllm ARGS='run.seed=2 trainer.max_steps=10'
#   make test PYTEST_ARGS='tests/grading -x'

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# vllm, transformers or auto; empty: as the recipe says.
ENGINE ?=
# Overrides for the demo's recipe, as key=value.
ARGS ?=
# Arguments for pytest, and how many processes run tests (0: in this one, as a debugger needs).
PYTEST_ARGS ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo study test lowest lint format bench docs wheel clean

help:  ## list the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup:  ## make .venv and install trlmath in it (does nothing if nothing changed)
	@command -v $(PYTHON) >/dev/null || \
	    { echo "setup: no '$(PYTHON)' on the PATH: install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) .ci/setup.py

demo: setup  ## evaluate, train and evaluate again: a tiny model learns, no GPU needed
	@echo "demo: evaluates a tiny model, trains it with GRPO and evaluates it again (recipes/nano/grpo.yaml)"
	@TORCH_ELASTIC_SHUTDOWN_TIMEOUT=$${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-120} \
	    $(BIN)/accelerate launch $$($(PYTHON) .ci/setup.py --launch-flags --engine '$(ENGINE)') recipes/grpo.py \
	    $(if $(ENGINE),sampling.engine=$(ENGINE)) $(ARGS)

study: setup  ## the whole road on the nano task, step by step, and one table: under an hour on two cores
	$(BIN)/trlmath study nano/study --jobs 2 $(ARGS)

lint: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# a worker that dies fails its test; pytest-xdist 3.8 hangs when it replaces one under loadfile
test: lint  ## lint, then every test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile --max-worker-restart=0 $(PYTEST_ARGS)

lowest: setup  ## the unit tests with the lowest versions that pyproject.toml allows
	OMP_NUM_THREADS=1 $(BIN)/python .ci/lowest.py

bench: setup  ## run every benchmark under tests/bench
	@set -e; for file in tests/bench/bench_*.py; do \
	    [ -e "$$file" ] || { echo "bench: no tests/bench/bench_*.py yet"; exit 0; }; \
	    echo "== $$file"; $(BIN)/python "$$file"; done

docs: setup  ## write the pages that come from the code, then build the site into build/docs
	$(BIN)/python .ci/docs.py
	@$(BIN)/python -c 'import material' 2>/dev/null || $(BIN)/pip install --quiet -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

wheel: setup  ## build the wheel and the source archive into dist/
	$(BIN)/python -m build

clean:  ## remove caches and build output; .venv and runs/ stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
