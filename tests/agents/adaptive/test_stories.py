"""`adaptive-stories` and `in-context`: what they infer of the overlap, and what that earns."""

import warnings

import numpy as np
import pytest

from agents import compare, evaluate, make
from agents.adaptive import AdaptiveStories, InContext
from agents.adaptive.stories import StoriesMemory
from agents.evaluation import statistics
from agents.policies.base import ObservationView
from crawl_env import CrawlVectorEnv, Sources, Stories, Task
from crawl_env.benchmark import named
from crawl_env.fleet.parameters import PARAMETERS
from tests.refusals import refused

FLEET = Sources([0.5, 0.4, 0.3, 0.2] * 2, 1.0, [0.05, 0.1] * 4, topics=["a"] * 4 + ["b"] * 4)
SEEN = AdaptiveStories.features


def task(overlap, lag=0.0, features=SEEN):
    return {"sources": FLEET, "budget": 1, "arrivals": Stories(overlap=overlap, lag=lag),
            "observed": False, "features": features}  # fmt: skip


def played(env, agent, steps):
    """Return the observations and the states of an agent in its environment."""
    observation, state = env.reset(seed=0)[0], None
    seen, states = [], []
    for _ in range(steps):
        seen.append(observation)
        action, state = agent.predict(observation, state)
        states.append(StoriesMemory(*state))
        observation, *_ = env.step(action)
    return seen, states


@pytest.mark.parametrize(("overlap", "lag"), [(0.2, 0.0), (0.9, 3.0)])
def test_the_overlap_is_found_from_what_is_known(overlap, lag):
    env = CrawlVectorEnv(8, horizon=None, **task(overlap, lag))
    agent = AdaptiveStories(env)
    _, states = played(env, agent, 200)
    found = [each.mean() for each in agent.estimate(states[-1])]
    assert found[0] == pytest.approx(overlap, abs=0.1)
    assert found[1] == pytest.approx(lag, abs=1.0)


def test_it_earns_nearly_what_the_policy_does_that_is_told_the_overlap():
    agents = ["adaptive-stories", "whittle-stories", "whittle"]
    runs = compare(agents, task(0.9), steps=200, warmup=100, seeds=32)
    ours, told, ignoring = (runs[name].reward for name in agents)
    assert statistics.ratio(ours, told).mean > 0.95
    assert statistics.ratio(ours, ignoring).low > 1.0


def test_a_run_does_not_depend_on_the_others_of_its_batch():
    env = CrawlVectorEnv(3, horizon=None, **task(0.7))
    agent, state = AdaptiveStories(env), None
    seen, states = played(env, agent, 20)
    for observation, together in zip(seen, states, strict=True):
        action, state = agent.predict(observation[1:2], state)
        np.testing.assert_allclose(StoriesMemory(*state).evidence[0], together.evidence[1])
    last, _ = agent.predict(seen[-1], tuple(states[-2]))
    np.testing.assert_array_equal(action[0], last[1])


def test_each_run_of_a_batch_has_its_own_overlap_and_lag():
    agent = AdaptiveStories(Task(**{**task(0.5), "budget": 4}))
    seen = np.ones((3, 8, len(SEEN)), dtype=np.float32)
    seen[..., SEEN.index("age")] = np.random.default_rng(0).integers(1, 20, (3, 8))
    overlap, lag = np.array([0.0, 0.5, 1.0]), np.array([0.0, 3.0, 0.0])
    together = agent.selected(ObservationView(seen, agent.task), overlap, lag)
    for b in range(3):
        one = ObservationView(seen[b : b + 1], agent.task)
        np.testing.assert_array_equal(agent.selected(one, overlap[b], lag[b])[0], together[b])
        assert (agent.selected(one, overlap[b - 1], lag[b - 1])[0] != together[b]).any()


@pytest.mark.parametrize("changed", [{"arrivals": "poisson-items"}, {"budget_rule": "average"}])
def test_without_stories_and_with_average_budgets_it_is_whittle(changed):
    alone = {**task(0.5, features=("age",)), **changed}
    runs = compare(["adaptive-stories", "whittle"], alone, steps=50, seeds=2)
    ours, whittle = (run.reward for run in runs.values())
    np.testing.assert_array_equal(ours, whittle)


def test_missing_features_are_named():
    with refused("adaptive-stories", "known"):
        make("adaptive-stories", CrawlVectorEnv(1, **task(0.5, features=SEEN[:-1])))


def test_in_context_infers_the_overlap_too():
    features = InContext.features_in(Task(**task(0.9, features=("value",))))
    assert {"items", "known"} <= set(features)
    env = CrawlVectorEnv(4, horizon=None, **task(0.9, 3.0, (*features, *PARAMETERS)))
    agent = InContext(env)
    observation, state = env.reset(seed=0)[0], None
    for _ in range(200):
        action, state = agent.predict(observation, state)
        observation, *_ = env.step(action)
    overlap, lag = agent.stories.estimate(StoriesMemory(*state[-1]))
    assert overlap.mean() == pytest.approx(0.9, abs=0.1)
    assert lag.mean() == pytest.approx(3.0, abs=1.0)


def test_in_context_earns_more_where_it_sees_what_is_known():
    """Rewards with the feature `known` relative to those without, in the same three runs."""
    stories = named("Stories20").arguments_of("validation", 0)
    seen = ("age", "crawled", "harvest", "items", *PARAMETERS)
    heeding, heedless = (
        evaluate(
            lambda env: InContext(env), {**stories, "features": features},
            steps=80, warmup=40, seeds=3,
        ).reward
        for features in ((*seen, "known"), seen)
    )  # fmt: skip
    assert (heeding > heedless).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"arrivals": "poisson-items", "features": ("harvest", "crawled", "items", *PARAMETERS)},
        {"budget_rule": "average"},
        {"features": ("harvest", *SEEN)},
        {"observed": True},
        {"look_cost": 0.1},
    ],
)
def test_in_context_heeds_stories_only_where_it_can(changed):
    whole = task(0.9, features=("harvest", *SEEN, *PARAMETERS))
    assert InContext(Task(**whole)).stories is not None
    assert InContext(Task(**{**whole, **changed})).stories is None


def test_in_context_does_not_warn_of_a_budget_that_the_costs_can_spend():
    seen = ("harvest", *SEEN, *PARAMETERS)
    halves = FLEET.replaced(cost=np.full(8, 0.5))
    env = Task(**{**task(0.9, features=seen), "sources": halves, "budget": 1.5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert InContext(env).stories is not None
