"""Agents that have crawled their sources before an episode begins."""

import numpy as np
import pytest

from agents.evaluation.experience import Experienced
from agents.policies.base import arrays_of
from crawl_env import CrawlVectorEnv, Regimes, Signals, Sources
from tests.refusals import refused

TASK = {
    "sources": "table1",
    "budget": 2,
    "arrivals": "poisson-items",
    "observed": False,
    "features": ("age", "crawled", "harvest", "items", "pings"),
    "signals": Signals(recall=0.5, precision=0.8),
}


@pytest.mark.parametrize("name", ["in-context", "adaptive-thompson", "nutch"])
def test_episodes_begin_with_all_that_was_learnt_but_not_in_the_old_situation(name):
    agent = Experienced(name, TASK, seed=3).learn(40)
    env = CrawlVectorEnv(2, **TASK)
    view = agent._view(env.reset(seed=1)[0])
    known, memory, fresh = agent.begin(view), agent.rollout.state, agent._agent.begin(view)
    for part in known._fields:
        expected = fresh if part in ("age", "pings", "left") else memory
        for array, wanted in zip(
            arrays_of((getattr(known, part),)), arrays_of((getattr(expected, part),)), strict=True
        ):
            np.testing.assert_array_equal(array, np.broadcast_to(wanted, array.shape))
            assert len(array) == 2
    assert not np.array_equal(memory.age, fresh.age[:1])
    again = Experienced(name, TASK, seed=3).learn(15).learn(25)
    for one, two in zip(arrays_of(memory), arrays_of(again.rollout.state), strict=True):
        np.testing.assert_array_equal(one, two)


def test_regimes_of_topics_begin_anew_under_the_laws_that_were_learnt():
    fleet = Sources.random(6, 0).replaced(topics=["a", "b"] * 3)
    task = {**TASK, "sources": fleet, "signals": None, "features": (*TASK["features"][:4], "topic")}
    task["arrivals"] = {"name": "poisson", "sampler": "items", "rate": Regimes(9.0, 0.05)}
    agent = Experienced("in-context", task).learn(30)
    view = agent._view(CrawlVectorEnv(2, **task).reset(seed=1)[0])
    known, fresh = agent.begin(view).topics, agent._agent.begin(view).topics
    for part in ("hot", "exposure", "content"):
        np.testing.assert_array_equal(getattr(known, part), getattr(fresh, part))
    learnt = agent.rollout.state.topics.evidence
    np.testing.assert_array_equal(known.evidence, np.repeat(learnt, 2, axis=0))
    assert not np.array_equal(learnt, fresh.evidence[:1])


def test_without_steps_it_is_the_agent():
    agent = Experienced("adaptive-certainty", TASK)
    view = agent._view(CrawlVectorEnv(2, **TASK).reset(seed=1)[0])
    for one, two in zip(
        arrays_of(agent.begin(view)), arrays_of(agent._agent.begin(view)), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_agents_without_estimates_and_sources_that_are_drawn_anew_are_refused():
    for agent in ("whittle", lambda seen: seen):
        with refused("the agent keeps no estimates of its sources"):
            Experienced(agent, TASK)
    with refused("the agent learns of the sources that it crawls", "one fleet"):
        Experienced("in-context", {**TASK, "sources": "drawn-sparse-10", "signals": None})
    with refused("total_steps is 2.5"):
        Experienced("in-context", TASK).learn(2.5)
