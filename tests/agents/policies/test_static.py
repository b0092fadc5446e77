"""Static frequencies against the literature, scipy and brute force; and how they are kept."""

import numpy as np
import pytest

import agents
from agents import relaxed_bound
from agents.evaluation.rollout import evaluate, with_features
from agents.policies.static import in_order
from agents.theory.frequencies import static_frequencies, static_reward
from crawl_env import CrawlVectorEnv, Sources

TABLE1 = Sources.preset("table1")


def history(epochs, **arguments):
    """Return what the agent crawls, (T, N) bool."""
    env = CrawlVectorEnv(1, **{**with_features("static", arguments)[1], "horizon": None})
    agent = agents.make("static", env)
    seen, _ = env.reset(seed=0)
    crawled, state = np.zeros((epochs, env.task.n), dtype=bool), None
    for t in range(epochs):
        action, state = agent.predict(seen, state)
        seen, *_ = env.step(action)
        crawled[t, env.harvest.picked] = True
    return crawled


SHOWN = [("value",), ("age",), ("value", "crawled"), ("age", "balance")]


@pytest.mark.parametrize(
    ("rule", "start"),
    [("step", "fresh"), ("average", "empty"), ("step", "random"), ("average", "full")],
)
def test_keeps_its_frequencies_whatever_is_shown(rule, start):
    fleet = Sources.random(12, seed=5)
    arguments = {"sources": fleet, "budget": 3, "budget_rule": rule, "start": start}
    crawled = history(1000, features=SHOWN[0], **arguments)
    f = static_frequencies(fleet, 3)
    np.testing.assert_allclose(crawled.mean(axis=0), f, atol=2.5e-3)
    if rule == "step":
        assert (crawled.sum(axis=1) == 3).all()
    # No source is ever far from its share: the count of crawls is right to two.
    due = np.outer(np.arange(1, 1001), f)
    assert np.abs(np.cumsum(crawled, axis=0) - due).max() < 2
    for shown in SHOWN[1:]:
        np.testing.assert_array_equal(history(200, features=shown, **arguments), crawled[:200])


@pytest.mark.parametrize("rule", ["step", "average"])
def test_gaps_are_the_two_whole_numbers_about_the_interval(rule):
    """Nearly always: budgets in every epoch do not let all sources keep their rhythm at once."""
    fleet = Sources.random(30, seed=2)
    crawled = history(1500, sources=fleet, budget=3, budget_rule=rule)
    f = static_frequencies(fleet, 3)
    wide, outside, total = 0, 0, 0
    for i in np.flatnonzero(f > 2e-3):
        gaps = np.diff(np.flatnonzero(crawled[:, i]))[1:]
        low, high = np.floor(1 / f[i]), np.ceil(1 / f[i])
        outside += np.count_nonzero((gaps < low) | (gaps > high))
        wide += np.count_nonzero((gaps < low - 0.3 / f[i] - 1) | (gaps > high + 0.3 / f[i] + 1))
        total += gaps.size
    assert outside < 0.35 * total
    assert wide < 0.02 * total


def test_one_source_in_two_epochs_is_crawled_every_other_one():
    crawled = history(100, sources=Sources([3.0, 3, 3, 3], 1.0, 0.3), budget=2)
    for column in crawled.T:
        assert set(np.diff(np.flatnonzero(column))) == {2}


def test_costs_are_kept_within_the_budget_and_share_what_is_left_unspent():
    fleet = Sources([5.0, 4, 3, 2, 6], 1.0, [0.3, 0.1, 0.5, 0.2, 0.4], [1, 1.7, 0.6, 2.4, 0.9])
    crawled = history(1500, sources=fleet, budget=3)
    spent = crawled @ fleet.cost
    assert (spent <= 3 * (1 + 1e-12)).all()
    f = static_frequencies(fleet, 3)
    ratio = crawled.mean(axis=0) / f
    np.testing.assert_allclose(ratio, spent.mean() / 3, rtol=0.02)
    on_average = history(1500, sources=fleet, budget=3, budget_rule="average")
    np.testing.assert_allclose(on_average.mean(axis=0), f, atol=2e-3)


def test_a_source_that_is_too_dear_takes_no_share():
    fleet = Sources([5.0, 4, 90], 1.0, 0.3, [1, 1, 5])
    with pytest.warns(UserWarning, match="can never be crawled"):
        crawled = history(200, sources=fleet, budget=1)
    np.testing.assert_allclose(
        crawled.mean(axis=0)[:2], static_frequencies(fleet.select([0, 1]), 1), atol=0.02
    )


def test_a_hundred_thousand_sources():
    fleet = Sources.random(100_000, seed=3)
    got = evaluate("static", {"sources": fleet, "budget": 10_000}, steps=12, warmup=0, seeds=1)
    assert got.cost[0] == 10_000


@pytest.mark.parametrize(("seed", "rule"), [(0, "step"), (1, "average")])
def test_earns_less_than_the_bound_and_little_less_than_the_formula(seed, rule):
    fleet = Sources.random(30, seed=seed)
    arguments = {"sources": fleet, "budget": 4, "budget_rule": rule}
    got = evaluate("static", arguments, steps=1200, warmup=300, seeds=1).reward[0]
    formula = static_reward(fleet, static_frequencies(fleet, 4))
    assert 0.99 * formula < got < relaxed_bound(fleet, 4) * (1 + 1e-4)


@pytest.mark.parametrize("rule", ["step", "average"])
@pytest.mark.parametrize("hosts", ["one", "ten"])
def test_spends_within_host_limits_what_is_worth_it(hosts, rule):
    """Frequencies that ignored hosts left two thirds of the budget to sources by their number."""
    rng = np.random.default_rng(0)
    n, rich = 60, np.arange(60) >= 30
    rate = np.where(rich, rng.uniform(2, 6, n), rng.uniform(0.05, 1, n))
    names = [
        "rich" if hosts == "one" and rich[i] else f"host {i // 6 if hosts == 'ten' else i}"
        for i in range(n)
    ]
    fleet = Sources(rate, 1.0, rng.uniform(0.05, 0.5, n), hosts=names)
    arguments = {"sources": fleet, "budget": 6, "budget_rule": rule}
    got = evaluate("static", arguments, steps=400, seeds=1)
    best = evaluate("whittle", {**arguments, "budget_rule": "step"}, steps=400, seeds=1)
    assert got.reward[0] > 0.99 * best.reward[0]
    assert got.cost[0] == pytest.approx(6, rel=0.01)
    per_host = np.bincount(fleet.host_of, got.frequency)
    assert (per_host <= 1 + 1e-9).all()


def test_host_limits_hold_in_every_fleet_of_a_batch():
    hosts = ["a", "a", "a", "b", "c", "d"]

    def drawn(rng):
        columns = Sources.random(6, rng)
        return Sources(columns.arrival_rate, columns.mean_utility, columns.decay_rate, hosts=hosts)

    known = ("arrival_rate", "mean_utility", "decay_rate", "cost")
    env = CrawlVectorEnv(3, sources=drawn, budget=2, features=("value", *known))
    batch, _ = env.reset(seed=1)
    action, state = agents.make("static", env).predict(batch)
    for b, one in enumerate(batch):
        fleet = Sources(*one[:, 1:4].astype(float).T, hosts=hosts)
        alone = agents.make("static", CrawlVectorEnv(1, sources=fleet, budget=2))
        expected = alone.predict(one[:, :1])
        np.testing.assert_array_equal(action[b], expected[0])
        np.testing.assert_allclose(state[0][b], expected[1][0][0])
        assert state[0][b][:3].sum() <= 1 + 1e-9


def test_only_those_that_may_be_crawled_are_put_in_order():
    values = np.random.default_rng(0).integers(0, 20, (4, 50)).astype(float)  # many are equal
    stable = np.argsort(values, axis=-1, kind="stable")
    for most in (1, 7, 12, 13, 50):
        order = in_order(values, most)
        np.testing.assert_array_equal(order[:, :most], stable[:, :most])
        np.testing.assert_array_equal(np.sort(order, axis=-1), np.arange(50) * np.ones((4, 1)))
