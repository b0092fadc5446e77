PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup benchmark test lint docs clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info[:2] == (3, 11), "the pinned versions are for Python 3.11; set PYTHON to one"'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

benchmark: setup
	$(BIN)/python -m experiments benchmark

test: lint
	$(BIN)/pytest --numprocesses auto

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: setup
	$(BIN)/pdoc --docformat google --output-directory site crawl_env crawl_env.sources crawl_env.arrivals crawl_env.bounds crawl_env.cycle crawl_env.hosts crawl_env.items crawl_env.curves crawl_env.trace crawl_env.laws crawl_env.decays crawl_env.varying crawl_env.bursts crawl_env.world crawl_env.wrappers crawl_env.sb3 agents agents.arm agents.bounds agents.exact agents.index agents.lagrangian agents.policies agents.production agents.seen agents.static agents.evaluation agents.statistics agents.learning agents.learning.learner agents.learning.arms agents.learning.equivariant agents.learning.equivariant_index agents.learning.fleet_learner agents.learning.sb3_policies agents.learning.stable_baselines agents.adaptive agents.adaptive.learner agents.aggregate
	@echo "Open site/index.html"

clean:
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache
