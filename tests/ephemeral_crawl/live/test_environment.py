"""With known parameters, the live scheduler is Whittle's index policy in the environment."""

import math

import numpy as np
import pytest

from agents.evaluation import evaluate
from crawl_env import Sources, Task
from ephemeral_crawl.live import Scheduler

START, STEP = 1_700_000_000.0, 100.0  # seconds: the beginning, and a step
_CERTAIN = 1e12  # seconds of observation, and items, from which estimates are known


class LiveAgent:
    """The live scheduler as an agent, for a budget on average; a step takes `STEP` seconds.

    It is asked once per step, in the middle of it, and fetches count as of the step's beginning,
    when the environment crawls: Whittle's index compares a crawl in this step with one in the next,
    so that the index of continuous time that agrees with it to second order is that of half a step
    later.
    """

    def __init__(self, task, *, later=0.5):
        sources = task.sources
        self._later, self._begin = later, START
        self._live = live = Scheduler(
            ":memory:",
            budget=f"{task.budget:.0f}/{STEP:.0f}s",
            burst=task.budget,
            explore=0.0,
            clock=lambda: self._begin + self._later * STEP,
        )
        second = sources.period / STEP  # in the fleet's unit of time
        live.add_many(
            {
                "source": str(i),
                "cost": float(sources.cost[i]),
                "min_interval": 0.0,
                "half_life": math.log(2.0) / (float(sources.decay_rate[i]) * second),
            }
            for i in range(len(sources))
        )
        state = live._ledger.state
        known = state.sources
        for i in range(len(sources)):
            known.items[i] = _CERTAIN * float(sources.arrival_rate[i]) * second
            known.exposure[i] = known.worth_items[i] = _CERTAIN
            known.worth[i] = _CERTAIN * float(sources.mean_utility[i])
        state._fit()

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        self._begin += STEP
        leases = self._live.lease(limit=1000)
        self._live.record({"lease": lease.id, "at": self._begin} for lease in leases)
        priority = np.full(observation.shape[:2], -1.0, np.float32)
        priority[:, [int(lease.source) for lease in leases]] = 1.0
        return priority, None


def reward(task, agent):
    return evaluate(agent, task, steps=280, warmup=140, seeds=1).reward[0]


def ratio(sources, budget, **settings):
    """Return the scheduler's reward ÷ that of Whittle's index policy.

    The arrivals are deterministic: since content is not observed, the rewards are the expected
    ones under random arrivals.
    """
    given = {"observed": False, "arrivals": "deterministic"}
    task = Task(sources, budget=budget, budget_rule="average", **given)
    live = reward(task, lambda env: LiveAgent(task, **settings))
    return live / reward(Task(sources, budget=budget, **given), "whittle")


FLEETS = {
    "table1": Sources.preset("table1"),
    "dense": Sources.random(60, seed=1, regime="dense"),
    "sparse": Sources.random(60, seed=2, regime="sparse"),
}


@pytest.mark.parametrize(
    ("fleet", "budgets"), [("table1", (1, 3)), ("dense", (20,)), ("sparse", (6,))]
)
def test_it_is_whittles_policy_where_the_parameters_are_known(fleet, budgets):
    ratios = [ratio(FLEETS[fleet], budget) for budget in budgets]
    assert ratios == pytest.approx([1.0] * len(budgets), abs=0.005)


def test_what_the_length_of_a_step_costs():
    """Asked at the beginning of the steps, it loses what the index of continuous time loses."""
    sources = FLEETS["table1"]
    decay, ceiling = sources.decay_rate, sources.ceiling
    age, collected = np.ones(len(sources)), 0.0
    for step in range(420):
        z = decay * age
        best = int((ceiling * (1.0 - np.exp(-z) * (1.0 + z))).argmax())
        if step >= 140:
            collected += ceiling[best] * -np.expm1(-z[best]) / 280
        age += 1.0
        age[best] = 1.0
    task = Task(sources, budget=1, observed=False, arrivals="deterministic")
    expected = collected / reward(task, "whittle")
    assert expected < 0.995
    assert ratio(sources, 1, later=0.0) == pytest.approx(expected, abs=0.002)
