"""Agents that remember: the state travels through `predict`, row by row."""

import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy

import agents
from agents import Agent
from agents.evaluation.rollout import evaluate
from agents.policies.base import State, arrays_of
from crawl_env import CrawlVectorEnv, Sources, Task
from crawl_env.envs.sb3 import CrawlVecEnv

REMEMBER = ("static", "lagrangian", "nutch", "miniflux")


class Counter(Agent):
    """Remembers how often it was asked, and crawls the source of that number."""

    name = "counter"
    seen_states: list[State]

    def begin(self, seen):
        return np.zeros(seen.batch), np.zeros((seen.batch, 2, 3))

    def decide(self, seen, state):
        asked, other = state
        turn = np.arange(self.task.n) == asked[:, None] % self.task.n
        return turn * 1.0, (asked + 1, other + 1)


def sources_of(action):
    return action.argmax(axis=-1).tolist()


def test_no_state_starts_all_rows_and_a_start_some():
    agent = Counter(Task())
    seen = np.ones((3, 4, 1), dtype=np.float32)
    action, state = agent.predict(seen)
    action, state = agent.predict(seen, state)
    assert sources_of(action) == [1, 1, 1]
    action, after = agent.predict(seen, state, np.array([False, True, False]))
    assert sources_of(action) == [2, 0, 2]
    assert after[0].tolist() == [3, 1, 3]
    assert after[1][:, 1, 2].tolist() == [3, 1, 3]
    assert state[0].tolist() == [2, 2, 2], "the caller's state is left alone"
    assert sources_of(agent.predict(seen, after, np.zeros(3, dtype=bool))[0]) == [3, 1, 3]
    assert sources_of(agent.predict(seen, None, np.zeros(3, dtype=bool))[0]) == [0, 0, 0]


def test_refuses_the_state_of_another_batch():
    agent = Counter(Task())
    _, state = agent.predict(np.ones((3, 4, 1), dtype=np.float32))
    with pytest.raises(ValueError, match=r"array of shape \(3,\) .* a batch of 2; pass"):
        agent.predict(np.ones((2, 4, 1), dtype=np.float32), state)


def test_evaluations_pass_the_state_on():
    got = evaluate(Counter, {}, steps=8, warmup=0, seeds=2)
    assert got.frequency == pytest.approx([0.25] * 4)


def test_evaluate_policy_of_stable_baselines3_passes_state_and_starts():
    env = CrawlVecEnv(2, horizon=6)
    asked = []

    class Spy(Counter):
        def decide(self, seen, state):
            asked.append(state[0].tolist())
            return super().decide(seen, state)

    evaluate_policy(Spy(Task()), env, 4)
    assert asked[:7] == [[i, i] for i in range(6)] + [[0, 0]], "an episode's start forgets"


@pytest.mark.parametrize("name", REMEMBER)
@pytest.mark.parametrize("drawn", [False, True])
def test_states_are_never_changed_and_rows_do_not_mix(name, drawn):
    arguments = {"budget": 2, "arrivals": "poisson", "observed": False}
    channels = ("arrival_rate", "mean_utility", "decay_rate", "cost")
    if drawn:
        arguments["sources"] = lambda rng: Sources.random(5, rng)
    features = ("value", "crawled", "harvest", *(channels if drawn else ()))
    env = CrawlVectorEnv(3, horizon=None, features=features, **arguments)
    agent = agents.make(name, env)
    seen, _ = env.reset(seed=5)
    state, alone = None, None
    for t in range(30):
        start = np.array([t == 0, t in (0, 11), t == 0])
        before = [array.copy() for array in arrays_of(state or ())]
        action, after = agent.predict(seen, state, start)
        for array, copy in zip(arrays_of(state or ()), before, strict=True):
            np.testing.assert_array_equal(array, copy)
        single, alone = agent.predict(seen[1], alone if t != 11 else None)
        np.testing.assert_array_equal(single, action[1])
        state = after
        seen, *_ = env.step(action)
