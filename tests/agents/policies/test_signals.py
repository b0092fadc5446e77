"""Policies that act on the belief of sources with signals."""

import numpy as np
import pytest

from agents.evaluation import statistics
from agents.evaluation.rollout import compare, evaluate
from agents.policies.base import ObservationView
from agents.theory.arm import arm_of
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.task_bound import task_bound
from crawl_env import CrawlVectorEnv, Signals, Sources, Task

RUNS = {"steps": 250, "warmup": 50, "seeds": 10}
QUALITY = {"recall": 0.5, "precision": 0.8}
FLEET = Sources([0.5, 1.0, 0.2, 2.0], [1.0, 0.7, 2.0, 0.3], [0.35, 0.1, 0.2, 0.05])


def drawn(rng):
    return Sources.random(4, seed=int(rng.integers(100)), regime="dense")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"signals": Signals(0.5, 0.8, delay=3.0)},
        {"signals": Signals([0.0, 0.5, 0.9, 1.0], [1.0, 0.1, 0.8, 1.0], [0.0, 2.0, 0.0, 1.0])},
        {"sources": Sources([0.5, 3.0], [1.0, 0.7], 0.2, capacity=[np.inf, 2], failure_rate=0.2)},
        {"sources": drawn, "features": ("arrival_rate", "mean_utility", "decay_rate", "cost")},
    ],
    ids=["plain", "delayed", "mixed", "limits", "drawn"],
)
def test_the_belief_follows_from_age_and_pings(arguments):
    more = arguments.get("features", ())
    task = {"sources": FLEET, "signals": QUALITY, "observed": False, **arguments}
    task["features"] = ("value", "age", "pings_aged", *more)
    env = CrawlVectorEnv(3, **task)
    without = Task(**{**task, "features": ("age", "pings_aged", *more)})
    observation, _ = env.reset(seed=0)
    for _ in range(12):
        found = ObservationView(observation[..., 1:], without).value
        np.testing.assert_allclose(found, observation[..., 0], rtol=1e-5, atol=1e-6)
        observation, *_ = env.step(env.action_space.sample())


@pytest.mark.parametrize("name", ["whittle", "whittle-exact", "myopic", "lagrangian"])
def test_pings_are_worth_something_to_every_index(name):
    told = evaluate(name, {"sources": "fleet-f", "budget": 2, "signals": QUALITY}, **RUNS)
    blind = {"sources": "fleet-f", "budget": 2, "arrivals": "poisson-items", "observed": False}
    gain = statistics.difference(told.reward, evaluate(name, blind, **RUNS).reward)
    assert gain.low > 0.2
    shown = {
        "sources": "fleet-f",
        "budget": 2,
        "signals": QUALITY,
        "features": ("age", "pings_aged"),
    }
    same = evaluate(name, shown, **RUNS)
    np.testing.assert_allclose(same.reward, told.reward, rtol=1e-3)


def test_who_sees_no_pings_acts_as_without_signals():
    common = {"sources": "fleet-f", "budget": 2, "arrivals": "poisson-items", "features": ("age",)}
    found = evaluate("whittle", {**common, "signals": QUALITY}, **RUNS)
    np.testing.assert_array_equal(
        found.reward, evaluate("whittle", {**common, "observed": False}, **RUNS).reward
    )


@pytest.mark.parametrize(("budget", "precision", "delay"), [(2, 0.8, 0), (10, 0.2, 0), (2, 0.8, 8)])
def test_the_exact_index_loses_nothing_and_none_exceeds_the_bound(budget, precision, delay):
    task = {
        "sources": "fleet-f",
        "budget": budget,
        "signals": {"recall": 0.5, "precision": precision, "delay": delay},
    }
    runs = compare(["whittle", "whittle-exact", "clairvoyant"], task, **{**RUNS, "seeds": 20})
    rewards = {name: run.reward for name, run in runs.items()}
    gain = statistics.difference(rewards["whittle-exact"], rewards["whittle"])
    assert gain.high > 0
    bound = task_bound(Task(**task))
    assert bound.name == "signals"
    for name in ("whittle", "whittle-exact"):
        mean, error = rewards[name].mean(), rewards[name].std(ddof=1) / np.sqrt(20)
        assert mean < bound.bound + 4 * error
    assert rewards["clairvoyant"].mean() > rewards["whittle-exact"].mean()


@pytest.mark.parametrize("name", ["whittle", "whittle-exact", "lagrangian"])
def test_an_average_budget_is_spent(name):
    task = {"sources": "fleet-f", "budget": 2, "signals": QUALITY, "budget_rule": "average"}
    run = evaluate(name, task, **RUNS)
    assert run.cost.mean() == pytest.approx(2, rel=0.05)


def test_the_simulated_multiplier_is_that_of_the_relaxation():
    task = Task("fleet-f", 2, signals=QUALITY, budget_rule="average")
    arm = arm_of(task)
    simulated = BudgetMultiplier(task, lambda value, _: arm.index(value))(task.sources)
    assert float(simulated[0, 0]) == pytest.approx(float(task_bound(task).multiplier), rel=0.05)
