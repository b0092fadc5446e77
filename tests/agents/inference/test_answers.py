"""The probability that a source answers, and agents in fleets in which many do not."""

import numpy as np
import pytest

from agents import evaluate, make
from agents.inference.answers import Answers
from crawl_env import Sources, Task


@pytest.mark.parametrize(("mean", "strength"), [(0.5, 0.05), (0.8, 1.0), (0.6, 20.0)])
def test_the_posterior_is_nearly_as_good_as_with_the_true_prior(mean, strength):
    """Of 300 sources whose probabilities are drawn from a known Beta distribution."""
    rng = np.random.default_rng(0)
    q = rng.beta(mean * strength, (1 - mean) * strength, 300)
    tried = rng.integers(0, 9, 300)
    answered = rng.binomial(tried, q)
    best = (answered + strength * mean) / (tried + strength)
    found = Answers(answered[None] * 1.0, (tried - answered)[None] * 1.0).probability()[0]
    assert np.mean((found - q) ** 2) < 1.25 * np.mean((best - q) ** 2) + 1e-3
    assert np.abs(found - best).mean() < 0.06
    assert ((found > 0) & (found < 1)).all()


def test_fleets_do_not_mix_and_nothing_tried_is_likely_to_answer():
    none = Answers.none((2, 3))
    assert (none.probability() > 0.9).all()
    state = none.counting(np.array([[True, True, True], [False] * 3]), np.eye(3)[[0, 0]] * 0)
    for _ in range(5):
        state = state.counting(np.zeros((2, 3), bool), np.array([[0.0] * 3, [1.0, 0.0, 0.0]]))
    found = state.probability()
    assert (found[0] > 0.9).all()
    assert found[1, 0] < 0.2
    assert state.failed.tolist() == [[0, 0, 0], [5, 0, 0]]


def test_sources_that_fail_are_left_alone():
    """Half of the sources fail 99 of 100 crawls. Agents that do not observe it do worse than the
    random policy; those that do come most of the way to the one that knows all parameters."""
    failing = np.where(np.arange(60) % 2 == 0, 0.99, 0.0)
    task = {
        "sources": Sources.random(60, 0, "sparse").replaced(failure_rate=failing), "budget": 6,
        "arrivals": "poisson-items", "observed": False, "features": ("age", "crawled", "harvest"),
    }  # fmt: skip

    def reward(agent, steps=400):
        return evaluate(agent, task, steps=steps, warmup=200, seeds=1).reward.mean()

    random, whittle = reward("random"), reward("whittle")
    for name in ("in-context", "adaptive-self-tuning", "adaptive-certainty"):
        assert reward(name) - random > 0.5 * (whittle - random)
        assert reward(make(name, Task(**task)), 100) < random  # it does not observe what fails
