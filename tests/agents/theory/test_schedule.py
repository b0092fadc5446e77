"""The relaxed schedule against brute force, the relaxed bound and simulation."""

from itertools import product

import numpy as np
import pytest

from agents import relaxation, relaxed_bound
from agents.evaluation.rollout import evaluate
from agents.theory.schedule import relaxed_schedule
from crawl_env import Sources

TWO = Sources([2.0, 0.5], [3.0, 8.0], [0.3, 0.1], [1.0, 2.0])


def brute_force(fleet, budget, longest, may_rest):
    """The best mixture of two pairs of whole intervals (0: never) that spends no more."""
    choices = [*range(1, longest + 1), *([0] if may_rest else [])]
    points = []
    for pair in product(choices, repeat=len(fleet)):
        k = np.array(pair, dtype=float)
        crawls = np.divide(1.0, k, out=np.zeros_like(k), where=k > 0)
        points.append(((crawls * fleet.cost).sum(), (crawls * fleet.content_at(k)).sum()))
    cost, reward = np.array(points).T
    under, over = cost <= budget, cost > budget
    best = reward[under].max(initial=-np.inf)
    if not under.any() or not over.any():
        return float(best)
    part = (budget - cost[under][:, None]) / (cost[over] - cost[under][:, None])
    mixed = reward[under][:, None] + part * (reward[over] - reward[under][:, None])
    return float(max(best, mixed.max()))


@pytest.mark.parametrize("budget", [0.6, 2.4])
def test_no_pair_of_intervals_collects_more(budget):
    found = relaxed_schedule(TWO, budget)
    assert found.reward.sum() == pytest.approx(brute_force(TWO, budget, 40, True), rel=1e-9)
    assert (found.crawls * TWO.cost).sum() == pytest.approx(budget)


@pytest.mark.parametrize(("budget", "longest"), [(0.6, 6), (1.3, 4), (2.4, 2)])
def test_no_pair_within_a_maximum_interval_collects_more(budget, longest):
    found = relaxed_schedule(TWO, budget, longest=longest)
    assert found.interval.max() <= longest
    assert found.reward.sum() == pytest.approx(brute_force(TWO, budget, longest, False), rel=1e-9)
    assert found.reward.sum() <= relaxed_bound(TWO, budget) + 1e-12


def test_a_source_that_publishes_nothing_is_crawled_as_rarely_as_may_be():
    fleet = Sources([1.0, 0.0], 1.0, 0.1)
    assert relaxed_schedule(fleet, 0.5).interval.tolist() == [2, np.inf]
    assert relaxed_schedule(fleet, 0.5, longest=10).interval[1] == 10


@pytest.mark.parametrize("capacity", [np.inf, 2.0])
def test_a_source_that_decays_fast_is_crawled_no_more_often_than_the_maximum_interval(capacity):
    """Its content is at the ceiling long before, and what it brings is worth no crawl."""
    fleet = Sources([1.0, 1.0], [1.0, 0.001], [0.1, 30.0], capacity=[np.inf, capacity])
    found = relaxed_schedule(fleet, 0.5, longest=100)
    assert found.interval[1] == 100
    assert found.crawls.sum() == pytest.approx(0.5)
    relaxed_schedule(fleet, 0.021, longest=100)  # covers two crawls in a hundred steps


def test_a_maximum_interval_that_the_budget_does_not_cover_is_refused():
    with pytest.raises(ValueError, match=r"needs a budget of at least 0\.6 per step"):
        relaxed_schedule(TWO, 0.5, longest=5)
    with pytest.raises(ValueError, match="share a host"):
        relaxed_schedule(Sources([1, 1], 1.0, 0.1, hosts=["a", "a"]), 1, longest=5)
    with pytest.raises(ValueError, match="crawl delay of 4, which is longer"):
        relaxed_schedule(Sources([1, 1], 1.0, 0.1, crawl_delay=4), 1, longest=3)
    for longest in (float("nan"), -float("inf"), 0):
        with pytest.raises(ValueError, match=r"longest is .*must be positive"):
            relaxed_schedule(Sources([1, 1], 1.0, 0.1), 1, longest=longest)


@pytest.mark.parametrize("limits", ["hosts", "failures", "delays", "capacities"])
def test_its_reward_is_the_relaxed_bound(limits):
    rng = np.random.default_rng(1)
    n = 9
    more = {
        "hosts": {"hosts": list("abcabcabc"), "cost": rng.choice([1.0, 2.0], n)},
        "failures": {"failure_rate": rng.uniform(0, 0.5, n)},
        "delays": {"crawl_delay": rng.integers(1, 6, n).astype(float)},
        "capacities": {"capacity": rng.integers(1, 6, n).astype(float)},
    }[limits]
    fleet = Sources(
        rng.uniform(0.1, 3, n), rng.uniform(0.5, 3, n), rng.uniform(0.02, 0.5, n), **more
    )
    for budget in (0.7, 1.5):
        found = relaxed_schedule(fleet, budget)
        assert found.reward.sum() == pytest.approx(relaxed_bound(fleet, budget), rel=1e-9)
        assert (found.crawls * fleet.cost).sum() == pytest.approx(budget)


def test_intervals_are_those_at_which_whittle_crawls():
    fleet = Sources.random(60, seed=4, regime="sparse")
    expected = relaxed_schedule(fleet, 6)
    arguments = {"sources": fleet, "budget": 6, "arrivals": "deterministic"}
    run = evaluate("whittle", arguments, steps=3000, warmup=300, seeds=1)
    often = expected.crawls > 0.02
    assert often.sum() > 20
    ratio = run.frequency[often] / expected.crawls[often]
    assert np.median(np.abs(ratio - 1)) < 0.05
    assert run.frequency[expected.crawls == 0].sum() < 0.02 * 6


@pytest.mark.parametrize("budget", [1, 2, 3, 3.7])
def test_its_multiplier_is_that_of_the_bound(budget):
    """Also with M = 1, where any λ between two indices is optimal."""
    for fleet in (Sources.preset("table1"), Sources.random(12, seed=1)):
        found = relaxed_schedule(fleet, budget).multiplier
        assert found == pytest.approx(relaxation(fleet, budget).multiplier, rel=1e-12)
