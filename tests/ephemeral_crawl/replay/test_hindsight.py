"""The hindsight bound against every schedule of tiny logs."""

from itertools import product

import numpy as np
import pytest

from agents.evaluation.rollout import Rollout
from crawl_env import CrawlVectorEnv, DecayCurves, ItemLog, Sources, Trace
from ephemeral_crawl.replay.hindsight import Hindsight
from ephemeral_crawl.replay.play import play

EPOCHS = 5


def tiny(seed, period=1.0, silent=False):
    """Two sources, a few items, every other with a curve of its own."""
    rng = np.random.default_rng(seed)
    n = 7
    points = [([0.0, 0.6, 2.0], [1.0, rng.uniform(0.3, 0.9), 0.1 * (j % 4 == 0)]) for j in range(n)]
    told = [points[j] if j % 2 else ([], []) for j in range(n)]
    curves = DecayCurves(
        np.cumsum([0, *(len(age) for age, _ in told)]),
        np.concatenate([age for age, _ in told]),
        np.concatenate([left for _, left in told]),
    )
    source = np.zeros(n, dtype=int) if silent else rng.integers(0, 2, n)
    published = np.sort(rng.uniform(0, EPOCHS * period, n))
    log = ItemLog(
        ["a", "b"], source, published, rng.lognormal(size=n), 0.0, EPOCHS * period, curves=curves
    )
    cost = [1.0, rng.choice([1.0, 2.0])]
    return log, Sources([0.5, 0.5], 1.0, [0.3, 0.9], cost, period=period, names=["a", "b"])


def left(log, j, age, rate):
    """What is left of an item, from the definition."""
    mine = slice(log.curves.first[j], log.curves.first[j + 1])
    if mine.start == mine.stop:
        return float(np.exp(-rate * age))
    return float(np.interp(age, log.curves.age[mine], log.curves.remaining[mine]))


def collected(log, fleet, schedule):
    """What a schedule (EPOCHS, N) of crawls at 0, T, … brings, item by item."""
    total = 0.0
    for j, (i, when) in enumerate(zip(log.source, log.published, strict=True)):
        crawls = np.flatnonzero(schedule[:, i]) * fleet.period
        later = crawls[crawls > when]
        if later.size:
            total += log.utility[j] * left(log, j, later[0] - when, fleet.decay_rate[i])
    return total


def every_schedule(log, fleet):
    """Reward, cost, and the most that one step costs, of all 2^(2·EPOCHS) schedules."""
    found = []
    for bits in product((0, 1), repeat=2 * EPOCHS):
        schedule = np.array(bits).reshape(EPOCHS, 2)
        costs = schedule @ fleet.cost
        found.append((collected(log, fleet, schedule), costs.sum(), costs.max()))
    reward, cost, dearest = np.array(found).T
    return reward, cost, dearest


@pytest.mark.parametrize(
    ("seed", "period", "silent"), [(0, 1.0, False), (1, 0.5, False), (2, 2.0, True)]
)
def test_the_bound_is_the_concave_hull_of_all_schedules(seed, period, silent):
    log, fleet = tiny(seed, period, silent)
    reward, cost, dearest = every_schedule(log, fleet)
    hindsight = Hindsight(Trace(log, random_start=False), fleet, EPOCHS)
    for budget in (0.2, 0.5, 1.0, 1.5, 3.0):
        whole = budget * EPOCHS
        within = cost <= whole + 1e-12
        hull = reward[within].max()
        for c in np.unique(cost[~within]):  # mixtures of a schedule within and one beyond
            beyond = reward[cost == c].max()
            part = (whole - cost[within]) / (c - cost[within])
            hull = max(hull, float((reward[within] * (1 - part) + beyond * part).max()))
        bound = hindsight.bound(budget)
        assert bound == pytest.approx(hull, rel=1e-10)
        hard = reward[dearest <= budget + 1e-12].max()
        assert bound >= hard - 1e-12


def test_the_unit_of_costs_does_not_matter():
    log, fleet = tiny(0)
    trace, cheap = Trace(log, random_start=False), fleet.replaced(cost=fleet.cost * 0.01)
    for budget in (0.2, 0.5, 1.5):
        bound = Hindsight(trace, fleet, EPOCHS).bound(budget)
        assert Hindsight(trace, cheap, EPOCHS).bound(0.01 * budget) == pytest.approx(bound)


def test_with_budget_for_everything_it_is_what_crawling_everything_brings():
    log, fleet = tiny(3)
    most = collected(log, fleet, np.ones((EPOCHS, 2)))
    trace = Trace(log, random_start=False)
    assert Hindsight(trace, fleet, EPOCHS).bound(3.0) == pytest.approx(most)
    arguments = {"sources": fleet, "budget": 3.0, "start": "empty", "arrivals": trace}
    with pytest.warns(UserWarning, match="nothing to decide"):
        played = play(Rollout("whittle", arguments), trace, EPOCHS)
    assert played.reward.sum() == pytest.approx(most)


@pytest.mark.parametrize("seed", range(3))
def test_a_window_of_a_log_that_is_repeated_and_a_warm_up_without_crawls(seed):
    log, fleet = tiny(seed)
    trace = Trace(log)
    env = CrawlVectorEnv(1, sources=fleet, budget=3, arrivals=trace, horizon=9, start="empty")
    env.reset(seed=seed)
    start = int(env.get_state()["world"]["feed"][0])
    reward = [env.step(np.ones((1, 2)))[1][0] for _ in range(9)]  # crawls all in each step
    assert Hindsight(trace, fleet, 9, start=start).bound(3.0) == pytest.approx(sum(reward))
    late = np.repeat([[0.0], [1.0]], [2, EPOCHS - 2], axis=0) * [1.0, 1.0]
    window = Hindsight(trace, fleet, EPOCHS - 2, before=2)
    assert window.bound(3.0) == pytest.approx(collected(log, fleet, late))


def test_no_policy_exceeds_it_and_more_budget_never_lowers_it():
    rng = np.random.default_rng(5)
    fleet = Sources.random(8, seed=5, regime="sparse")
    source = rng.choice(8, 200, p=fleet.arrival_rate / fleet.arrival_rate.sum())
    times, worth = rng.uniform(0, 300, 200), fleet.mean_utility[source] * rng.exponential(size=200)
    log = ItemLog(fleet.names, source, times, worth, 0, 300)
    trace = Trace(log, random_start=False)
    bounds = [Hindsight(trace, fleet, 300).bound(m) for m in (0.1, 0.5, 1, 2, 8)]
    assert (np.diff(bounds) >= 0).all()
    arguments = {"sources": fleet, "budget": 1, "start": "empty", "arrivals": trace}
    rewards = {
        name: play(Rollout(name, {**arguments, "observed": seen}), trace, 300).reward.sum()
        for name, seen in (("random", False), ("whittle", False), ("clairvoyant", False))
    }
    assert rewards["random"] < rewards["whittle"] < rewards["clairvoyant"] <= bounds[2]


def test_a_log_without_items_brings_nothing():
    fleet = Sources([1.0], 1.0, 0.1, names=["a"])
    log = ItemLog(["a"], [], [], [], start=0, end=10)
    assert Hindsight(Trace(log, random_start=False), fleet, 10).bound(1.0) == 0.0
