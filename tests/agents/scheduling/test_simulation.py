"""Simulation on content drawn when crawled: in law that of the dense world."""

import numpy as np
import pytest

from agents import AGENTS
from agents.evaluation.rollout import evaluate
from agents.scheduling.relaxation import columns_relaxation, stationary_ages
from agents.scheduling.simulation import error_of, simulate
from crawl_env import CrawlVectorEnv
from crawl_env.fleet.columns import FleetColumns
from tests.references import Z_LIMIT, z_of_mean
from tests.refusals import refused

FLEET = FleetColumns.random(60, seed=4, regime="sparse")


@pytest.mark.parametrize("policy", ["whittle", "oldest-first"])
def test_reward_is_that_of_the_dense_world(policy):
    """The policies choose alike, so only content differs. Level 1e-5."""
    steps, warmup, budget = 120, 30, 4
    env = CrawlVectorEnv(
        16,
        sources=FLEET.to_sources(),
        budget=budget,
        arrivals="poisson-items",
        observed=False,
        start="fresh",
    )
    dense = evaluate(AGENTS[policy](env), env, steps=steps, warmup=warmup, seeds=16, seed=0)
    runs = [simulate(FLEET, budget, policy, steps=steps, warmup=warmup, seed=s) for s in range(16)]
    rewards = np.array([run.reward.mean() for run in runs])
    gap = rewards.mean() - dense.reward.mean()
    error = np.hypot(rewards.std(ddof=1), dense.reward.std(ddof=1)) / 4
    assert abs(gap) < Z_LIMIT * error
    ratio = rewards.var(ddof=1) / dense.reward.var(ddof=1)
    assert 0.1 < ratio < 10  # the 1e-5 quantiles of F with 15, 15 degrees are 0.08 and 12
    assert len({run.mean for run in runs}) == 1  # nothing but the content is random
    assert abs(z_of_mean(rewards, runs[0].mean)) < 6


def test_the_whittle_policy_reaches_the_bound():
    fleet = FleetColumns.random(20_000, seed=1)
    bound = columns_relaxation(fleet, 300)
    start = stationary_ages(fleet, bound.multiplier)
    run = simulate(fleet, 300, steps=60, warmup=20, start=start)
    assert run.mean == pytest.approx(bound.bound, rel=2e-3)
    assert run.reward.mean() == pytest.approx(run.mean, abs=6 * error_of(run.reward))
    assert (run.crawls == 300).all()
    assert run.price.mean() == pytest.approx(bound.multiplier, rel=0.02)


def test_failures_collect_nothing_and_leave_content():
    fleet = FleetColumns(np.full(2000, 5.0), 1.0, 0.3, failure_rate=0.4)
    run = simulate(fleet, 200, "oldest-first", steps=100, warmup=100, utility="constant")
    share = run.failures.sum() / run.crawls.sum()
    assert abs(share - 0.4) < Z_LIMIT * np.sqrt(0.24 / run.crawls.sum())
    assert run.reward.mean() == pytest.approx(run.mean, rel=0.02)


def test_adaptive_policies_learn_the_rates():
    """They end near the policy that knows the rates, and begin far from it."""
    fleet, budget = FleetColumns.random(2000, seed=7, regime="sparse"), 40
    known = simulate(fleet, budget, steps=200, warmup=800).mean
    first = simulate(fleet, budget, "adaptive-certainty", steps=50).mean
    for policy in ("adaptive-certainty", "adaptive-thompson"):
        assert simulate(fleet, budget, policy, steps=200, warmup=800).mean > 0.9 * known
    assert first < 0.75 * known


@pytest.mark.parametrize("limited", ["cost", "host"])
def test_costs_and_hosts(limited):
    rng = np.random.default_rng(0)
    n = 500
    columns = {"cost": rng.uniform(0.5, 2, n)} if limited == "cost" else {}
    hosts = {"host": rng.integers(0, 5, n)} if limited == "host" else {}
    fleet = FleetColumns(np.ones(n), 1.0, 0.2, **columns, **hosts)
    run = simulate(fleet, 10, steps=50, warmup=20, per_host=1)
    if limited == "cost":
        assert (run.cost <= 10 * (1 + 1e-9)).all()
        assert run.cost.mean() > 9
    else:
        assert (run.crawls == 5).all()


def test_ticks_and_refusals():
    ticks = []
    simulate(FLEET, 3, steps=5, warmup=2, tick=lambda: ticks.append(1))
    assert len(ticks) == 7
    with refused("steps is 0"):
        simulate(FLEET, 3, steps=0)
    with refused("unknown policy 'whitle'"):
        simulate(FLEET, 3, "whitle", steps=1)
