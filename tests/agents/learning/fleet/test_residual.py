"""A residual of a base policy: it starts from the base, and learns what the base leaves."""

import numpy as np
import pytest

from agents import evaluate, make
from agents.learning import ResidualEvolution
from agents.learning.fleet.residual import ResidualEvolutionSettings
from crawl_env import CrawlVectorEnv, Deadline, DiminishingReturns

FEATURES = ("age", "arrival_rate", "mean_utility", "decay_rate", "cost")
BATCHES = {
    "sources": "drawn-sparse-12",
    "budget": 1,
    "payoff": Deadline(8),
    "features": (*FEATURES, "steps_left"),
}


def learner(rows, base, task, **settings):
    env = CrawlVectorEnv(rows, **task, horizon=None)
    return ResidualEvolution(env, ResidualEvolutionSettings(base=base, **settings), seed=2)


@pytest.mark.parametrize(
    ("base", "more"),
    [
        ("whittle-deadline", {}),
        (
            "greedy-topics",
            {
                "sources": "drawn-dense-12-topics-4",
                "payoff": DiminishingReturns(20.0),
                "features": (*FEATURES, "topic"),
                "budget": 3,
            },
        ),
    ],
)
def test_before_training_it_is_the_base(base, more):
    task = {**BATCHES, **more}
    agent = learner(2, base, task)
    env = CrawlVectorEnv(2, **task, horizon=None)
    known, (observation, _) = make(base, env), env.reset(seed=5)
    for _ in range(5):
        action = known.predict(observation)[0]
        np.testing.assert_array_equal(agent.predict(observation)[0], action)
        observation, *_ = env.step(action)


def test_it_learns_what_the_base_ignores():
    """`myopic` ignores what a source will hold later."""
    task = {"sources": "drawn-dense-8", "budget": 1, "features": FEATURES}
    agent = learner(32, "myopic", task, n_steps=32, learning_rate=0.3).learn(32 * 40)
    size = {"steps": 80, "warmup": 20, "seeds": 12, "seed": 99}
    mine, base = (evaluate(x, task, **size).reward for x in (agent.policy_for, "myopic"))
    gain = mine / base - 1
    assert gain.mean() > 2 * gain.std(ddof=1) / len(gain) ** 0.5


def test_both_signs_meet_the_same_arrivals():
    """Without noise in the weights, the two halves of an update earn the same."""
    agent = learner(4, "whittle-deadline", {**BATCHES, "arrivals": "poisson"}, n_steps=16).learn(16)
    env, policy = agent.training_envs[0].env, agent._policies[0]
    rewards = []
    state = env.get_state()
    for _ in range(2):
        env.set_state(state)
        total = 0.0
        for _ in range(8):
            observation = env.set_state(env.get_state())
            total += env.step(policy.predict(observation)[0])[1]
        rewards.append(total)
    np.testing.assert_array_equal(*rewards)


def test_an_unknown_base_is_refused():
    with pytest.raises(ValueError, match="whittle-deadline"):
        learner(2, "deadline-assignment", BATCHES)
