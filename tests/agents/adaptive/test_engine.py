"""`adaptive-engine`: against `whittle-engine`, which knows the sources, and `SelfTuning`."""

import numpy as np
import pytest

from agents import compare, make
from agents.adaptive import AdaptiveEngine, InContext, SelfTuning
from agents.adaptive.base import Memory
from agents.adaptive.engine import QueueMemory, QueuePlan
from agents.adaptive.in_context import ContextMemory
from crawl_env import CrawlVectorEnv, Engine, Sources
from crawl_env.simulation.observation import SUMMED
from tests.refusals import refused

FLEET = Sources([3.0, 2.0, 1.0, 0.5, 2.0, 1.0, 0.3, 4.0], [1.0, 0.7, 2.0, 5.0, 0.2, 3.0, 4.0, 0.1],
                [0.3, 0.15, 0.2, 0.1, 0.4, 0.3, 0.2, 0.2])  # fmt: skip
PARAMETERS = ("arrival_rate", "mean_utility", "decay_rate", "cost")
SEEN = ("age", "crawled", "harvest", "items", "backlog")
TASK = {
    "sources": FLEET,
    "budget": 2,
    "arrivals": "poisson-items",
    "observed": False,
    "engine": Engine(rate=2, capacity=4),
    "features": (*SEEN, *PARAMETERS),
}


def test_it_earns_most_of_what_the_policy_does_that_knows_the_sources():
    ours = ["adaptive-engine", "in-context"]
    others = ["whittle-engine", "adaptive-self-tuning"]
    runs = compare([*ours, *others], TASK, steps=75, warmup=45, seeds=1)
    known, without = (runs[name].reward.mean() for name in others)
    for name in ours:
        assert runs[name].reward.mean() > 0.6 * known  # four seeds: .75 to 1.04, and .98 to 1.02
        assert runs[name].reward.mean() > 1.5 * without  # 1.88 to 2.45, and 2.25 to 2.82


def test_what_in_context_infers_of_the_sources():
    env = CrawlVectorEnv(4, **{**TASK, "features": (*SEEN, *SUMMED), "budget": 8})
    agent, state, observation = InContext(env), None, env.reset(seed=0)[0]
    agent.queue = None  # it would take time, and all sources are crawled
    for _ in range(80):
        action, state = agent.predict(observation, state)
        observation, *_ = env.step(action)
    found = agent._estimates(ContextMemory(*state), np.ones(8)).mean(axis=0)
    rate, each, decay, cost = found.T
    np.testing.assert_allclose(rate, FLEET.arrival_rate, rtol=0.15)
    np.testing.assert_allclose(rate * each, FLEET.arrival_rate * FLEET.mean_utility, rtol=0.2)
    # Within the one step between two crawls, decay hardly shows.
    assert (abs(np.log(decay / FLEET.decay_rate)) < 1.0).all()
    assert (cost == 1.0).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"features": SEEN[:4]},
        {"features": (*SEEN[:3], "backlog")},
        {"features": (*SEEN, "value"), "observed": True},
        {"sources": Sources(np.ones(8), 1.0, 0.2, failure_rate=0.1)},
    ],
)
def test_in_context_ignores_an_engine_where_its_index_does_not_hold(changed):
    env = CrawlVectorEnv(1, **TASK)
    assert {"items", "backlog"} <= set(InContext.features_in(env.task))
    assert InContext(env).queue is not None
    assert InContext(CrawlVectorEnv(1, **{**TASK, **changed})).queue is None


def test_told_the_truth_it_is_whittle_engine(monkeypatch):
    env = CrawlVectorEnv(2, **TASK)
    truth = [np.broadcast_to(getattr(FLEET, name), (2, len(FLEET))) for name in PARAMETERS]
    monkeypatch.setattr(AdaptiveEngine, "_estimates", lambda *_: np.stack(truth, axis=-1))
    agent, known = AdaptiveEngine(env, seed=0), make("whittle-engine", env)
    first = 10 * agent.known.round
    observation, state, other = env.reset(seed=0)[0], None, None
    for step in range(first + 5):
        action, state = agent.predict(observation, state)
        expected, other = known.predict(observation, other)
        if step >= first - 1:
            np.testing.assert_array_equal(np.argsort(action), np.argsort(expected))
        observation, *_ = env.step(action)
    assert QueuePlan(*QueueMemory(*Memory(*state).plan).queue).due[0, 0] == 3 * first
    assert agent.posterior(state).mean.shape == (2, len(FLEET))


def test_without_an_engine_it_is_self_tuning():
    env = CrawlVectorEnv(2, **{**TASK, "engine": None, "features": SEEN[:4]})
    agents = AdaptiveEngine(env, seed=0), SelfTuning(env, seed=0)
    observation, states = env.reset(seed=0)[0], [None, None]
    for _ in range(30):
        found = [a.predict(observation, s) for a, s in zip(agents, states, strict=True)]
        states = [state for _, state in found]
        np.testing.assert_array_equal(found[0][0], found[1][0])
        observation, *_ = env.step(found[0][0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"observed": True}, "content is observed"),
        ({"sources": Sources(np.ones(8), 1.0, 0.2, failure_rate=0.1)}, "crawls can fail"),
        ({"features": SEEN[:4]}, "backlog"),
        ({"features": (*SEEN[:3], "backlog")}, "items"),
    ],
)
def test_what_is_refused(changed, words):
    with refused("adaptive-engine", words):
        make("adaptive-engine", CrawlVectorEnv(1, **{**TASK, **changed}))
