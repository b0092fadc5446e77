"""Deadlines: the bound against dynamic programming, and the policies against both."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from agents import evaluate, make
from agents.theory.deadline import deadline_bound
from agents.theory.relaxation import relaxation
from agents.theory.task_bound import task_bound
from crawl_env import Deadline, Sources, Task

CAP = 12  # steps after which ages are not told apart


def optimum(fleet, steps, budget, full):
    """Return the best reward per step, by value iteration over joint ages of at most `CAP`, at
    which a source is at its ceiling if it is `full`, and grows no more otherwise."""
    n = len(fleet)
    content = fleet.content_at(np.arange(1.0, CAP + 1)[:, None])
    content[-1] = fleet.ceiling if full else content[-1]
    older = np.minimum(np.arange(1, CAP + 1), CAP - 1)

    def of_source(i):
        return content[:, i].reshape([-1 if j == i else 1 for j in range(n)])

    value = np.zeros((CAP,) * n)
    while True:
        before = value
        for left in range(steps):
            kept, best = np.exp(-fleet.decay_per_step * left), np.full(value.shape, -np.inf)
            for picks in itertools.combinations(range(n), budget):
                after = value
                for i in range(n):
                    after = after.take([0] * CAP if i in picks else older, axis=i)
                np.maximum(best, after + sum(kept[i] * of_source(i) for i in picks), out=best)
            value = best
        change = (value - before) / steps
        if np.ptp(change) < 1e-7 * change.max():
            return float(change.max() if full else change.min())
        value = 0.5 * (before + value)
        value -= value.flat[0]


@settings(max_examples=4)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 2))
def test_the_bound_holds_and_assignment_comes_close(seed, steps, budget):
    rng = np.random.default_rng(seed)
    fleet = Sources(rng.uniform(0.5, 5, 4), rng.lognormal(0, 0.8, 4), rng.uniform(0.4, 0.9, 4))
    low, high = (optimum(fleet, steps, budget, full) for full in (False, True))
    bound = deadline_bound(fleet, budget, steps).bound
    assert low * (1 - 1e-6) <= bound <= 1.01 * high  # fractions of crawls matter in small fleets
    asked = {"sources": fleet, "budget": budget, "payoff": Deadline(steps)}
    found = evaluate("deadline-assignment", asked, steps=420 * steps, warmup=20 * steps, seeds=1)
    assert 0.95 * low <= found.reward[0] <= high * (1 + 1e-3)  # cycles that 420 does not divide


@pytest.mark.parametrize("rule", ["step", "average"])
@pytest.mark.parametrize("random", [False, True])
def test_assignment_attains_the_bound_of_a_newsletter(random, rule):
    fleet = Sources.random(60, seed=3)
    asked = {
        "budget_rule": rule,
        "sources": fleet,
        "budget": 2,
        "payoff": {"name": "deadline", "steps": 24},
    }
    if random:
        asked |= {"arrivals": "poisson", "observed": False}
    bound, _, name = task_bound(Task(**asked))
    assert name == ("not observed" if random else "deterministic")
    found = {
        agent: evaluate(agent, asked, steps=240, warmup=144, seeds=8 if random else 1).reward.mean()
        for agent in ("whittle", "deadline-assignment")
    }
    assert found["whittle"] < 0.95 * bound
    assert 0.985 * bound < found["deadline-assignment"] < (1.01 if random else 1 + 1e-9) * bound


@settings(max_examples=8)
@given(st.integers(0, 10**6))
def test_limits_of_the_bound(seed):
    """One step per batch is no deadline; longer batches are worth less; a budget for everything
    leaves one crawl of each source in the last step; saved budget is spent there."""
    fleet = Sources.random(5, seed=seed)
    now = relaxation(fleet, 1.5).bound
    assert deadline_bound(fleet, 1.5, 1).bound == pytest.approx(now)
    bounds = [deadline_bound(fleet, 1.5, steps).bound for steps in (1, 2, 3, 6)]
    assert bounds == sorted(bounds, reverse=True)
    worth = fleet.content_at(3.0).sum() / 3
    assert deadline_bound(fleet, 5, 3).bound == pytest.approx(worth)
    average = deadline_bound(fleet, 1.5, 3, "average").bound
    assert bounds[2] <= average * (1 + 1e-9) <= now * (1 + 1e-8)


def test_other_information_sets():
    asked = {"sources": "fleet-f", "budget": 2, "arrivals": "poisson"}
    with_deadline = Task(**asked, payoff=Deadline(4))
    assert task_bound(with_deadline) == task_bound(Task(**asked))  # observed: loose
    unknown = Task(**{**asked, "arrivals": "poisson-drift"}, payoff=Deadline(4))
    assert np.isnan(task_bound(unknown).bound)


def test_refusals():
    payoff = Deadline(4)
    with pytest.raises(ValueError, match="needs the feature steps_left"):
        make("whittle-deadline", Task(payoff=payoff))
    features = ("value", "steps_left")
    task = Task(Sources(1, 1, 0.1, cost=[1, 2]), 2.0, features=features, payoff=payoff)
    with pytest.raises(ValueError, match="Use 'whittle-deadline'"):
        make("deadline-assignment", task)


def test_it_is_the_linear_program_of_all_intervals():
    """Of which many crawls would be at a loss: here all columns are given at once."""
    fleet, steps, budget = Sources.random(12, seed=3, regime="sparse"), 4, 1.0
    batches = np.arange(1.0, 121.0)
    left, i, j = (x.ravel() for x in np.meshgrid(range(steps), range(12), batches))
    kept = np.exp(-fleet.decay_per_step[i] * left)
    worth = kept * fleet.ceiling[i] * -np.expm1(-fleet.decay_per_step[i] * steps * j)
    limits = np.concatenate([(i == np.arange(12)[:, None]) * j, left == np.arange(steps)[:, None]])
    most = np.append(np.ones(12), np.full(steps, budget))
    exact = -linprog(-worth, A_ub=limits, b_ub=most).fun / steps
    assert deadline_bound(fleet, budget, steps).bound == pytest.approx(exact, rel=1e-6)


def test_what_needs_scipy_says_so_before_the_first_step(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    features = ("age", "crawled", "harvest", "mean_utility", "decay_rate", "steps_left", "value")
    task = Task("table1", 2, observed=False, payoff=Deadline(4), features=features)
    for agent in ("deadline-assignment", "in-context"):
        with pytest.raises(ImportError, match="'deadline-assignment' needs the package 'scipy'"):
            make(agent, task)
