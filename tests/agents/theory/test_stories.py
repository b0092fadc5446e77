"""The bound of shared stories: against dynamic programming, and against what policies collect."""

import itertools

import numpy as np
import pytest

from agents import compare, evaluate, relaxed_bound, task_bound
from agents.policies.stories import unpaid_content
from agents.theory.stories import stories_bound
from crawl_env import Sources, Stories, Task

CAP = 14  # steps after which a source finds no more


def optimum(fleet, stories):
    """Return the best reward per step at one crawl a step, by value iteration over joint ages.

    Sources that were not crawled for `CAP` steps find no more, so that it is not above the optimum.
    """
    n, shape = len(fleet), (CAP,) * len(fleet)
    states = np.array(list(itertools.product(range(CAP), repeat=n)))
    overlap, lag = np.array([stories.overlap]), np.array([stories.lag])
    brings = unpaid_content(fleet, overlap, lag, states + 1.0)[:, 0]
    older = np.minimum(states + 1, CAP - 1)
    after = [np.where(np.arange(n) == i, 0, older) for i in range(n)]
    places = [np.ravel_multi_index(tuple(following.T), shape) for following in after]
    value = np.zeros(len(states))
    while True:
        best = np.max([brings[:, i] + value[places[i]] for i in range(n)], axis=0)
        change = best - value
        if np.ptp(change) < 1e-6 * change.max():
            return float(change.min())
        value = 0.5 * (best + value)  # half steps, so that cycles do not go on for ever
        value -= value[0]


def three_sources(seed):
    rng = np.random.default_rng(seed)
    columns = rng.uniform(0.5, 5, 3), rng.lognormal(0, 0.5, 3), rng.uniform(0.4, 0.8, 3)
    stories = Stories(overlap=[0.5, 0.8, 1.0][seed % 3])
    return Sources(*columns, topics=["a", "a", "ab"[seed % 2]]), stories


@pytest.mark.parametrize("seed", range(6))
def test_it_is_above_the_optimum_and_below_what_ignores_duplicates(seed):
    fleet, stories = three_sources(seed)
    bound, best = stories_bound(fleet, 1, stories).bound, optimum(fleet, stories)
    assert best * (1 - 1e-9) <= bound < 1.15 * best
    assert bound <= relaxed_bound(fleet, 1) * (1 + 1e-9)


def test_the_policy_is_near_the_optimum():
    fleet, stories = three_sources(5)
    asked = {"sources": fleet, "budget": 1, "arrivals": stories, "observed": False}
    runs = {"steps": 500, "warmup": 20, "seeds": 10}
    rewards = (evaluate(a, asked, **runs).reward for a in ("whittle", "whittle-stories"))
    ignoring, found = (reward / optimum(fleet, stories) for reward in rewards)
    assert ignoring.mean() < 0.85
    assert abs(found.mean() - 1.0) < 3.0 * found.std(ddof=1) / np.sqrt(10)


def test_where_nothing_is_shared_it_is_the_relaxed_bound():
    fleet = Sources.random(7, seed=2, regime="sparse")
    apart = Sources(**{**fleet.describe(), "topics": list("abcdefg")})
    expected = relaxed_bound(fleet, 1.5)
    found = stories_bound(apart, 1.5, Stories(overlap=1.0))
    assert found.bound == pytest.approx(expected, rel=2e-6)
    hardly = Sources(**{**fleet.describe(), "topics": ["a"] * 7})
    assert stories_bound(hardly, 1.5, Stories(overlap=1e-6)).bound == pytest.approx(expected, 1e-4)


def test_sources_with_the_same_stories_are_one():
    """Two of equal rates report all stories: either crawl empties both. Ten are two such parts."""
    stories, columns = Stories(overlap=1.0), ([1.0] * 2, [1.0] * 2, 0.1)
    posed = 0.25, stories, "average"
    same = stories_bound(Sources(*columns, topics=["a", "a"]), *posed).bound
    assert same == pytest.approx(relaxed_bound(Sources([1.0], 1.0, 0.1), 0.25), rel=2e-6)
    many = Sources([1.0] * 10, 1.0, 0.1, topics=["a"] * 10)
    two = relaxed_bound(Sources([1.0] * 2, 1.0, 0.1), 0.25)
    assert stories_bound(many, *posed).bound == pytest.approx(two, rel=2e-6)


@pytest.mark.filterwarnings("ignore:.*can never be crawled")
@pytest.mark.parametrize("lag", [0.0, 3.0])
def test_no_policy_exceeds_it(lag):
    """In simulation, with failures, and a source that costs more than there is."""
    fleet = Sources([3.0, 2.0, 1.0, 3.0, 9.0], [1, 2, 2, 1, 1], [0.1, 0.2, 0.1, 0.3, 0.1])
    more = {"topics": ["a", "a", "a", "b", "b"], "cost": [1, 1, 1, 1, 5.0]}
    fleet = Sources(**{**fleet.describe(), **more, "failure_rate": [0, 0.3, 0, 0, 0]})
    arrivals = Stories(overlap=0.9, lag=lag)
    task = {"sources": fleet, "budget": 1, "arrivals": arrivals, "observed": False}
    bound, _, name = task_bound(Task(**task))
    loose = task_bound(Task(**task, payoff={"name": "deadline", "steps": 1})).bound
    posed = {**task, "features": ("age",)}
    runs = compare(["whittle", "whittle-stories"], posed, steps=250, seeds=4)
    assert name == "not observed"
    for run in runs.values():
        assert run.reward.mean() < bound < loose
