"""The adaptive scheduler against the dense adaptive agents."""

import numpy as np
import pytest
from scipy import stats

from agents import Certainty, Thompson
from agents.inference.rates import Posterior
from agents.scheduling import AdaptiveFleetScheduler
from crawl_env import CrawlEnv
from crawl_env.fleet.columns import FleetColumns
from tests.agents.scheduling.test_scheduler import TABLE1


def test_certainty_decides_as_the_dense_agent():
    columns = FleetColumns.random(60, seed=4)
    env = CrawlEnv(
        columns.to_sources(),
        budget=7,
        features=("age", "crawled", "items"),
        arrivals="poisson-items",
        horizon=None,
    )
    agent, state = Certainty(env), None
    scheduler = AdaptiveFleetScheduler(columns, 7, "adaptive-certainty")
    observation, _ = env.reset(seed=1)
    for _ in range(400):
        action, state = agent.predict(observation, state)
        observation, _, _, _, info = env.step(action)
        picked = scheduler.step()
        np.testing.assert_array_equal(picked, np.flatnonzero(info["crawled"]))
        scheduler.report(counts=observation[picked, 2])
    mean = agent.posterior(state).mean[0]
    gone = np.setdiff1d(np.arange(60), picked)  # the agent learns of the last crawls a step later
    np.testing.assert_allclose(scheduler.posterior(gone).mean, mean[gone], rtol=1e-6)


def crawls_of_thompson(seed, steps):
    """Crawls per source by the dense agent and by the scheduler, (N,) each."""
    columns = FleetColumns.random(12, seed=2)
    sources = columns.to_sources()
    rng = np.random.default_rng(seed)
    env = CrawlEnv(
        sources,
        budget=2,
        features=("age", "crawled", "items"),
        arrivals="poisson-items",
        horizon=None,
    )
    agent, state = Thompson(env, seed=seed), None
    observation, _ = env.reset(seed=seed)
    dense, sparse = np.zeros(12), np.zeros(12)
    scheduler = AdaptiveFleetScheduler(columns, 2, "adaptive-thompson", seed=seed)
    for _ in range(steps):
        action, state = agent.predict(observation, state)
        observation, _, _, _, info = env.step(action)
        dense += info["crawled"]
        picked = scheduler.step()
        sparse[picked] += 1
        mean = sources.arrival_rate[picked] * scheduler.ages * sources.period
        scheduler.report(counts=rng.poisson(mean))
    return dense, sparse


def test_thompson_crawls_in_law_as_the_dense_agent():
    runs = [crawls_of_thompson(seed, 40) for seed in range(20)]
    dense, sparse = (np.array(side) for side in zip(*runs, strict=True))
    error = np.sqrt((dense.var(axis=0) + sparse.var(axis=0)) / len(runs)) + 0.05
    assert np.all(np.abs(dense.mean(axis=0) - sparse.mean(axis=0)) < 4.5 * error)


@pytest.mark.parametrize("shape", [0.2, 0.5, 1.0, 7.5])
def test_draws_have_the_law_of_the_posterior(shape):
    prior = Posterior(np.array(shape), np.array(2.0))
    columns = FleetColumns.random(4000, seed=2)
    scheduler = AdaptiveFleetScheduler(columns, 7, "adaptive-thompson", prior=prior)
    draws = 2.0 * scheduler.get_state()["drawn"]
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-4


def test_forgetting_discounts_at_crawls():
    prior = Posterior(np.array(2.0), np.array(1.0))
    scheduler = AdaptiveFleetScheduler(
        FleetColumns([1.0], 1.0, 0.5), 1, "adaptive-certainty", prior=prior, retention=0.5
    )
    scheduler.step()
    scheduler.report(counts=[8])
    scheduler.step()
    scheduler.report(counts=[3])
    posterior = scheduler.posterior([0])
    assert posterior.shape[0] == 2.0 + 0.5 * 8 + 3
    assert posterior.rate[0] == 1.0 + 0.5 * 1 + 1


@pytest.mark.parametrize("policy", ["adaptive-certainty", "adaptive-thompson"])
def test_a_saved_scheduler_goes_on_with_the_same_selections(tmp_path, policy):
    sources = FleetColumns.random(100, seed=1)
    scheduler = AdaptiveFleetScheduler(sources, 5, policy, seed=3, retention=0.99)
    for step in range(40):
        picked = scheduler.step()
        scheduler.report(counts=picked % 3 + step % 2)
    scheduler.save(tmp_path / "a.npz")
    other = AdaptiveFleetScheduler.load(tmp_path / "a.npz", sources)
    for _ in range(60):
        picked = scheduler.step()
        np.testing.assert_array_equal(picked, other.step())
        for each in (scheduler, other):
            each.report(counts=picked % 4)


def test_bad_reports_are_explained():
    scheduler = AdaptiveFleetScheduler(TABLE1, 2)
    scheduler.step()
    with pytest.raises(ValueError, match="counts has shape"):
        scheduler.report(counts=[1])
    with pytest.raises(ValueError, match="crawl 1: counts is -1"):
        scheduler.report(counts=[1, -1])
    with pytest.raises(ValueError, match="no multiplier is given"):
        AdaptiveFleetScheduler(TABLE1, 2, budget_rule="average")
