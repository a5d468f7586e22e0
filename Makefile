# Nothing but Python >= 3.11, git and make is needed: `make setup` makes .venv, the others call it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.setup-done

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test check format lint types fast

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: $(STAMP) ## make .venv with everything in it (does nothing when nothing changed)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "intentctl needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP)

demo: setup ## say an SLO, watch a live service switch its topology
	$(BIN)/intentctl demo

serve: setup ## the service on the local example
	$(BIN)/intentctl serve --deployment examples/local-cpu.yaml

test: setup ## all tests
	$(BIN)/python -m pytest

check: format lint types fast ## format, lint, types and the fast tests (under a minute)

format: setup
	$(BIN)/ruff format --check .

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

fast: setup
	$(BIN)/python -m pytest -m "not slow and not gpu" -q
