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
	$(BIN)/pdoc --docformat google --output-directory site crawl_env crawl_env.fleet.sources crawl_env.content.arrivals agents.theory.relaxation agents.theory.renewal crawl_env.fleet.hosts crawl_env.log.item_log crawl_env.log.decay_curves crawl_env.content.trace crawl_env.content.utility crawl_env.content.decay crawl_env.content.rates crawl_env.content.hawkes crawl_env.content.world crawl_env.envs.wrappers crawl_env.envs.sb3 agents agents.theory.observed agents.theory.task_bound agents.policies.index agents.theory.closed_form agents.policies.lagrangian agents.policies.base agents.policies.industry agents.policies.static agents.evaluation.rollout agents.evaluation.statistics agents.learning agents.learning.base agents.learning.arms agents.learning.fleet.ppo agents.learning.fleet.index agents.learning.fleet.base agents.learning.sb3.policies agents.learning.sb3.learners agents.adaptive agents.adaptive.learner agents.evaluation.aggregate
	@echo "Open site/index.html"

clean:
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache
