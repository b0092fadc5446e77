"""Agents for topics: regimes told or inferred, and diminishing returns, against exact optima."""

import itertools

import numpy as np
import pytest

from agents import (
    GreedyTopics,
    Whittle,
    WhittleRegimes,
    compare,
    make,
    optimal_reward,
    relaxed_bound,
    task_bound,
)
from crawl_env import Arrivals, CrawlVectorEnv, DiminishingReturns, Regimes, Sources, Task
from tests.refusals import refused

KNOWN = ("arrival_rate", "mean_utility", "decay_rate", "cost")


def fleet_of(n, topics, seed=0):
    fleet = Sources.random(n, seed)
    labels = [str(i * topics // n) for i in range(n)]
    return Sources(fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate, topics=labels)


def posed(rate, **changed):
    arrivals = Arrivals(rate=rate, sampler="items")
    return {
        "sources": fleet_of(20, 4),
        "budget": 2,
        "arrivals": arrivals,
        "observed": False,
    } | changed


@pytest.mark.parametrize("name", ["whittle-current", "whittle-regimes"])
@pytest.mark.parametrize("rate", ["constant", Regimes(ratio=1.0)])
def test_without_regimes_they_are_whittle(name, rate):
    runs = compare([name, "whittle"], posed(rate), steps=100, warmup=0, seeds=2)
    assert np.array_equal(runs[name].reward, runs["whittle"].reward)


def test_inferred_regimes_are_worth_much_and_known_ones_more():
    task = posed(Regimes(), sources=lambda rng: fleet_of(40, 5, rng), features=("value", *KNOWN))
    names = ["whittle", "whittle-regimes", "whittle-current"]
    runs = compare(names, task, steps=150, warmup=50, seeds=10)
    plain, inferred, told = (runs[name].reward for name in names)
    for better, worse in ((inferred, plain), (told, inferred)):
        gain = better - worse
        assert gain.mean() > 2 * gain.std() / np.sqrt(gain.size)


def test_what_is_told_is_the_mean_content_given_all_rates():
    vec = CrawlVectorEnv(400, **posed(Regimes(4.0, 0.0), features=("age", "rate")))
    agent = make("whittle-current", vec)
    observation, _ = vec.reset(seed=1)
    state = None
    for _ in range(15):
        action, state = agent.predict(observation, state)
        before, content = vec.world.value.copy(), state[1]
        observation = vec.step(action)[0]
    assert before.mean(axis=0) == pytest.approx(content.mean(axis=0), rel=0.15)
    assert np.corrcoef(before.ravel(), content.ravel())[0, 1] > 0.9


def test_an_episode_that_begins_anew_forgets_the_others_go_on():
    task = Task(**posed(Regimes(), features=WhittleRegimes.features))
    agent, rng = WhittleRegimes(task), np.random.default_rng(0)
    first, then = (rng.integers(0, 2, (3, 20, 3)).astype(np.float32) + 1 for _ in range(2))
    _, state = agent.predict(first)
    starts = np.array([False, True, False])
    action, _ = agent.predict(then, state, starts)
    alone, _ = agent.predict(then[1], None)
    on, _ = agent.predict(then, state)
    assert action[1] == pytest.approx(alone)
    assert action[[0, 2]] == pytest.approx(on[[0, 2]])


def test_what_they_need_is_refused_where_it_is_not_shown():
    for name, missing in (("whittle-current", "rate"), ("whittle-regimes", "items")):
        with refused(name, missing):
            make(name, Task(**posed(Regimes(), features=("age", "crawled"))))


SMALL = Sources([6.0, 4.0, 5.0], [1, 1.5, 1], [0.9, 0.7, 0.5], topics=["a", "a", "b"])


@pytest.mark.parametrize("limit", [2.0, 10.0])
def test_the_optimum_is_that_of_all_periodic_schedules(limit):
    payoff, pairs = DiminishingReturns(limit), [(0, 1), (0, 2), (1, 2)]
    best = 0.0
    for long in range(1, 7):
        for schedule in itertools.product(pairs, repeat=long):
            age, total = np.full(3, 30.0), 0.0
            for t in range(3 * long):
                content = SMALL.content_at(age)
                mine = schedule[t % long]
                if t >= 2 * long:
                    for topic in ("a", "b"):
                        got = sum(content[i] for i in mine if SMALL.topics[i] == topic)
                        total += limit * (1 - np.exp(-got / limit))
                age = np.where(np.isin(np.arange(3), mine), 1.0, age + 1)
            best = max(best, total / long)
    exact = optimal_reward(SMALL, 2, payoff=payoff)
    assert best <= exact * (1 + 1e-9)
    assert best == pytest.approx(exact, rel=2e-3)


def test_the_optimum_of_large_limits_is_that_without_a_payoff():
    found = optimal_reward(SMALL, 2, payoff=DiminishingReturns(1e9))
    assert found == pytest.approx(optimal_reward(SMALL, 2), rel=1e-6)
    with refused("failing crawls or a payoff"):
        optimal_reward(Sources(1.0, 1.0, 0.5, failure_rate=0.1), 1, payoff=DiminishingReturns(1))


@pytest.mark.parametrize("crawls", [0.5, 10.0])
@pytest.mark.parametrize("seed", range(2))
def test_greedy_is_near_the_optimum_and_the_bound_above_it(seed, crawls):
    fleet = fleet_of(3, 2, seed)
    payoff = DiminishingReturns(crawls * relaxed_bound(fleet, 2) / 2)
    task = {"sources": fleet, "budget": 2, "payoff": payoff}
    exact = optimal_reward(fleet, 2, tolerance=1e-4, payoff=payoff)
    runs = compare(["greedy-topics", "whittle"], task, steps=600, seeds=1)
    greedy, plain = (run.reward[0] for run in runs.values())
    assert 0.998 * exact < greedy < exact * (1 + 1e-3)
    assert plain < exact * (1 + 1e-3)
    assert exact <= task_bound(Task(**task)).bound * (1 + 1e-4)


def test_greedy_gains_where_topics_are_shared_and_is_whittle_elsewhere():
    fleet = fleet_of(40, 5, 1)
    limit = float(fleet.content_at(10).mean())
    task = {"sources": fleet, "budget": 4, "payoff": DiminishingReturns(limit)}
    runs = compare(["greedy-topics", "whittle"], task, steps=300, seeds=1)
    assert runs["greedy-topics"].reward[0] > 1.1 * runs["whittle"].reward[0]
    assert task_bound(Task(**task)).bound > runs["greedy-topics"].reward[0]
    plain = compare(["greedy-topics", "whittle"], {"budget": 2}, steps=50, seeds=1)
    assert np.array_equal(plain["greedy-topics"].reward, plain["whittle"].reward)


@pytest.mark.parametrize("seed", range(3))
def test_greedy_ranks_as_whittle_where_the_payoff_is_linear(seed):
    rng = np.random.default_rng(seed)
    fleet = fleet_of(12, 3, seed).replaced(
        failure_rate=rng.uniform(0, 0.9, 12), cost=rng.uniform(0.5, 3, 12)
    )
    content = (fleet.ceiling * rng.uniform(0, 1, 12))[:, None].astype(np.float32)
    budget = 0.999 * fleet.cost.sum()  # all but the last source
    linear = GreedyTopics(Task(fleet, budget, payoff=DiminishingReturns(1e9)))
    agents = linear, Whittle(Task(fleet, budget))
    ranks = [agent.predict(content)[0].argsort() for agent in agents]
    assert np.array_equal(*ranks)


def test_greedy_counts_with_the_chance_that_a_source_is_empty():
    fleet = fleet_of(40, 5).replaced(arrival_rate=0.1, decay_rate=0.05)
    payoff = DiminishingReturns(0.1 * relaxed_bound(fleet, 4) / 4)
    task = {"sources": fleet, "budget": 4, "arrivals": "poisson", "payoff": payoff}
    names = ["greedy-topics", "whittle"]
    runs = compare(names, {**task, "observed": False}, steps=300, warmup=100, seeds=3)
    assert runs["greedy-topics"].reward.mean() > 1.1 * runs["whittle"].reward.mean()


def test_greedy_takes_the_second_source_from_another_topic():
    fleet = Sources(1.0, [3.0, 2.9, 1.0], 0.5, topics=["a", "a", "b"])
    agent = GreedyTopics(Task(fleet, 2, payoff=DiminishingReturns(1.0)))
    assert agent.predict(fleet.inflow[:, None])[0].argsort().tolist() == [1, 2, 0]
    with refused("value of source 0", "finite"):
        agent.predict(np.array([[np.nan], [1.0], [1.0]], dtype=np.float32))
