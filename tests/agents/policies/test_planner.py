"""The planner: what it simulates is what happens, and it improves its base."""

import numpy as np
import pytest

from agents import evaluate
from agents.policies.deadline import WhittleDeadline
from agents.policies.planner import Planner
from crawl_env import CrawlVectorEnv, Deadline, DiminishingReturns, Sources

FEATURES = ("age", "arrival_rate", "mean_utility", "decay_rate", "cost", "steps_left")
DRAWN = {"sources": "drawn-sparse-8", "budget": 2, "payoff": Deadline(6), "features": FEATURES}


def test_the_simulation_is_the_environment():
    """With deterministic arrivals, the simulated rewards of the base are those that follow."""
    env = CrawlVectorEnv(3, **DRAWN, arrivals="deterministic", horizon=None)
    observation, _ = env.reset(seed=0)
    base = WhittleDeadline(env)
    planner = Planner(env, horizon=5, others=1, discount=0.9)
    for _ in range(8):  # to the middle of a batch
        observation, *_ = env.step(base.predict(observation)[0])
    view = planner._view(observation)
    simulated = planner._started(view, 3, 2)
    for _ in range(5):
        action = base.predict(observation)[0]
        observation, reward, *_ = env.step(action)
        other = simulated.step(np.repeat(action, 2, axis=0))[1]
        np.testing.assert_allclose(other, np.repeat(reward, 2), rtol=1e-6)


@pytest.mark.parametrize("payoff", [Deadline(6), DiminishingReturns(0.5)])
def test_it_improves_its_base(payoff):
    fleet = Sources.random(10, 1, "sparse")
    fleet = Sources(**{**fleet.describe(), "topics": ["a", "b"] * 5})
    task = {"sources": fleet, "budget": 2, "payoff": payoff, "arrivals": "deterministic"}
    base = "whittle-deadline" if isinstance(payoff, Deadline) else "greedy-topics"
    planned, simple = (
        evaluate(name, task, steps=48, warmup=24, seeds=1).reward[0] for name in ("planner", base)
    )
    assert planned > 1.005 * simple


def test_what_it_cannot_simulate_is_refused():
    for task in (
        {"budget": 2, "budget_rule": "average"},
        {"budget": 2, "arrivals": "poisson-drift"},
        {"sources": "mixed-costs", "budget": 4},
    ):
        with pytest.raises(ValueError, match="planner"):
            evaluate("planner", task, steps=1, seeds=1)
