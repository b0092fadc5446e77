PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup build benchmark test pytest lint docs linkcheck clean

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

test: setup
	$(MAKE) --jobs 2 lint pytest  # types are checked by one process: beside the tests

pytest: setup
	$(BIN)/pytest --numprocesses auto --dist worksteal

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

SPHINX = $(BIN)/python -m sphinx -nW --keep-going docs

docs: setup
	rm -rf docs/api/generated  # pages of names that are gone
	$(SPHINX) site
	@echo "Open site/index.html"

linkcheck: setup  # needs the network
	$(SPHINX) site/.linkcheck -b linkcheck

clean:
	rm -rf .venv dist site jupyter_execute docs/api/generated docs/researchers/task .pytest_cache .ruff_cache
