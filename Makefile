PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup build benchmark test lint docs linkcheck clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info[:2] == (3, 11), "the pinned versions are for Python 3.11; set PYTHON to one"'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

build: setup
	$(BIN)/python -m hatchling build --directory dist

benchmark: setup
	$(BIN)/python -m experiments benchmark

test: lint
	$(BIN)/pytest --numprocesses auto

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

SPHINX = $(BIN)/python -m sphinx -nW --keep-going docs

docs: setup
	$(SPHINX) site
	@echo "Open site/index.html"

linkcheck: setup  # needs the network
	$(SPHINX) site/.linkcheck -b linkcheck

clean:
	rm -rf .venv dist site jupyter_execute docs/api/generated .pytest_cache .mypy_cache .ruff_cache
