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
    fleets = [Sources.random(60, seed, "sparse") for seed in range(2)]
    failing = np.where(np.arange(60) % 2 == 0, 0.99, 0.0)
    learning = ("in-context", "adaptive-self-tuning", "adaptive-certainty")
    blind = {f"{name}, blind": name for name in learning}  # does not observe what fails
    reward = dict.fromkeys(("random", "whittle", *learning, *blind), 0.0)
    for seed, fleet in enumerate(fleets):
        parameters = fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate
        sources = Sources(*parameters, failure_rate=failing)
        task = {
            "sources": sources, "budget": 6, "arrivals": "poisson-items", "observed": False,
            "features": ("age", "crawled", "harvest"),
        }  # fmt: skip
        for name in reward:
            made = make(blind[name], Task(**task)) if name in blind else name
            found = evaluate(made, task, steps=400, warmup=200, seeds=1, seed=seed)
            reward[name] += float(found.reward.mean())
    gap = reward["whittle"] - reward["random"]
    for agent in learning:
        assert reward[agent] - reward["random"] > 0.5 * gap
        assert reward[f"{agent}, blind"] < reward["random"]
