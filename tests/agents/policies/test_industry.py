"""The rules of crawlers in use, against their statements in plain Python."""

import numpy as np
import pytest

import agents
from agents.evaluation.rollout import compare, evaluate, with_features
from agents.evaluation.statistics import difference
from agents.policies.industry import Miniflux, Nutch
from crawl_env import CrawlVectorEnv, Sources

FLEET = Sources([0.02, 0.3, 1.0, 0.0, 5.0], 1.0, 0.2)


def plain_nutch(crawled, brought, interval):
    if not crawled:
        return interval
    return min(max(interval * (0.8 if brought > 0 else 1.4), 1.0), 720.0)


class PlainMiniflux:
    def __init__(self):
        self.week = 168 / 24

    def interval(self, since, brought, entries):
        if entries is None:
            n = self.week / 168 * since
            entries = n / (1 - np.exp(-n)) if brought else 0.0
        self.week = self.week * 167 / 168 + entries
        return min(max(168 / self.week, 1.0), 24.0)


@pytest.mark.parametrize(
    ("name", "rule", "shown"),
    [
        ("nutch", "step", "harvest"), ("nutch", "average", "items"),
        ("miniflux", "step", "items"), ("miniflux", "average", "harvest"),
    ],
)  # fmt: skip
def test_follows_the_rule_step_by_step(name, rule, shown):
    env = CrawlVectorEnv(
        1, sources=FLEET, arrivals="poisson-items", budget=1, budget_rule=rule, observed=False,
        features=("crawled", shown), horizon=None,
    )  # fmt: skip
    agent = agents.make(name, env)
    seen, _ = env.reset(seed=3)
    n = len(FLEET)
    interval, age = [24.0] * n, [24.0] * n
    feeds = [PlainMiniflux() for _ in range(n)]
    state = None
    for t in range(400):
        action, state = agent.predict(seen, state)
        for i in range(n):
            crawled, brought = seen[0, i, 0] > 0, float(seen[0, i, 1])
            if name == "nutch":
                interval[i] = plain_nutch(crawled, brought, interval[i])
            else:
                entries = brought if shown == "items" else None
                interval[i] = feeds[i].interval(age[i] if t else 23.0, brought > 0, entries)
            if t:
                age[i] = 1.0 if crawled else age[i] + 1
        overdue = np.array(age) - np.array(interval)
        assert ((action[0] >= 0) == (overdue >= 0)).all() or np.abs(overdue).min() < 1e-9
        early = -1 / (1 + np.array(age))
        expected = np.where(overdue >= 0, overdue / (1 + np.abs(overdue)), early)
        np.testing.assert_allclose(action[0], expected, atol=1e-6)
        seen, *_ = env.step(action)
    if name == "nutch":
        assert interval[3] > 100
        assert interval[4] < 2


@pytest.mark.parametrize("rate", [5.0, 0.05])
def test_rules_are_round_robin_where_every_crawl_finds_something(rate):
    """As in most tasks of the benchmark: all intervals are the shortest, whatever that is."""
    fleet = Sources(rate * np.arange(1.0, 21), 1.0, 0.2)
    arguments = {"sources": fleet, "arrivals": "poisson", "observed": False, "budget": 2}

    class FiveMinutes(Miniflux):
        shortest = 1 / 12

    runs = compare(
        {k: k for k in ("nutch", "miniflux", "oldest-first")} | {"five minutes": FiveMinutes},
        arguments, steps=400, warmup=500, seeds=8,
    )  # fmt: skip
    for name in ("nutch", "miniflux", "five minutes"):
        in_turn = np.allclose(runs[name].frequency, 0.1)
        assert in_turn == (rate == 5.0), name
    if rate < 1:
        assert difference(runs["nutch"].reward, runs["oldest-first"].reward).low > 0


def test_is_shown_what_it_needs_and_others_meet_the_same_content():
    fleet = Sources([0.2, 3.0, 40.0, 60.0], 1.0, 0.2)  # dense and sparse
    arguments = {"sources": fleet, "arrivals": "poisson", "observed": False, "budget": 4}
    runs = compare(["nutch", "miniflux", "oldest-first"], arguments, steps=100, seeds=4)
    # All sources are crawled in every step: what differs is only what was met.
    for run in runs.values():
        np.testing.assert_array_equal(run.reward, runs["oldest-first"].reward)
    assert with_features("nutch", {"features": ("age", "harvest")})[1]["features"] == (
        "age", "harvest", "crawled",
    )  # fmt: skip
    assert with_features("whittle", {})[1]["features"] == ("value",)
    assert with_features(Nutch, {})[1]["features"] == ("value", "crawled", "harvest")


def test_clamps_can_be_set():
    class Patient(Nutch):
        shortest, longest, first = 5.0, 6.0, 5.0

    class Weekly(Miniflux):
        longest = 168.0

    arguments = {"sources": FLEET, "arrivals": "poisson", "budget": 5, "budget_rule": "average"}
    got = evaluate(Patient, arguments, steps=600, seeds=1)
    assert ((got.frequency > 1 / 7) & (got.frequency <= 1 / 5)).all()
    assert evaluate(Weekly, arguments, steps=1700, seeds=1).frequency[3] < 1 / 100
