"""`whittle-knapsack`: the search is exact, its set is crawled, and it is close to the optimum."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agents
from agents import optimal_reward
from agents.evaluation.rollout import evaluate
from agents.policies.knapsack import best_sets
from agents.theory.index import index_at_age
from crawl_env import CrawlVectorEnv, Sources


def fits(sets, cost, budget, hosts, per_host):
    """Return whether sets, (S, N), keep the budget and the limits of the hosts."""
    crawls = sets @ (hosts[:, None] == np.arange(3)).astype(int)
    return (sets @ cost <= budget * (1 + 1e-12)) & (crawls <= per_host).all(axis=-1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.booleans(), st.integers(1, 9))
def test_the_search_is_brute_force(seed, n, whole, per_host):
    rng = np.random.default_rng(seed)
    cost = rng.choice([0.5, 1.0, 2.0, 3.0], n) if whole else rng.uniform(0.2, 3, n)
    worth, may = rng.uniform(0, 1, (2, n)) * (rng.random((2, n)) < 0.9), rng.random((2, n)) < 0.9
    budget, hosts = rng.uniform(0.2, 1.1) * cost.sum(), rng.integers(0, 3, n)
    found = best_sets(worth, cost[None], budget, may, hosts, per_host)
    sets = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    affordable = sets[fits(sets, cost, budget, hosts, per_host)]
    assert fits(found, cost, budget, hosts, per_host).all()
    assert not (found & ~may).any()
    best = (affordable @ (worth * may).T).max(axis=0)
    np.testing.assert_allclose((found * worth).sum(axis=-1), best, rtol=2e-6)


def test_the_environment_crawls_the_set_of_largest_index():
    rng = np.random.default_rng(2)
    columns = rng.uniform(0.5, 5, 9), rng.uniform(0.5, 2, 9), rng.uniform(0.1, 1, 9)
    hosts = [["", "a", "b"][i % 3] for i in range(9)]
    fleet = Sources(*columns, rng.uniform(0.3, 3, 9), crawl_delay=[0.0, 3.0, 2.0] * 3, hosts=hosts)
    env = CrawlVectorEnv(4, fleet, 5.5, features=("age", "available"), start="random")
    agent = agents.make("whittle-knapsack", env)
    sets = (np.arange(2**9)[:, None] >> np.arange(9) & 1).astype(float)
    on_host = np.array([[h == name for h in hosts] for name in "ab"]).T
    sets = sets[(sets @ fleet.cost <= 5.5) & (sets @ on_host <= 1).all(axis=-1)]
    seen, _ = env.reset(seed=0)
    for _ in range(30):
        worth = index_at_age(seen[..., 0], fleet) * fleet.cost * seen[..., 1]
        seen, *_ = env.step(agent.predict(seen)[0])
        crawled = np.zeros(36)
        crawled[env.harvest.picked] = 1.0
        got = (crawled.reshape(4, 9) * worth).sum(axis=-1)
        np.testing.assert_allclose(got, (worth @ sets.T).max(axis=-1), rtol=1e-6)


def test_delays_need_to_be_seen():
    fleet = Sources([1.0, 2.0], 1.0, 0.2, [1.0, 2.0], crawl_delay=3.0)
    with pytest.raises(ValueError, match="needs the feature available"):
        agents.make("whittle-knapsack", CrawlVectorEnv(1, fleet, 2))


def test_it_is_within_a_hundredth_of_the_exact_optimum_where_greed_is_not():
    losses = []
    for seed in (1, 2, 20, 23, 24):
        rng = np.random.default_rng(seed)
        rate, decay = np.exp(rng.uniform(np.log(0.5), np.log(50), 4)), rng.uniform(0.3, 0.8, 4)
        fleet = Sources(rate, np.exp(0.8 * rng.normal(size=4)), decay, rng.choice([1.0, 2, 3], 4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a budget that no set of crawls uses up
            best = optimal_reward(fleet, 3.0, 1e-5)
            rewards = [
                evaluate(name, {"sources": fleet, "budget": 3.0}, steps=420, warmup=210, seeds=1)
                for name in ("whittle", "whittle-knapsack")
            ]
        losses.append([1.0 - run.reward[0] / best for run in rewards])
    greedy, knapsack = np.transpose(losses)
    assert knapsack.max() < 0.01
    assert knapsack.mean() < 0.2 * greedy.mean()
    assert greedy.max() > 0.01
    assert knapsack.min() > -1e-3
