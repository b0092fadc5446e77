"""The exact optimum: against simulation in the environment, and its limits."""

import numpy as np
import pytest

from agents import optimal_reward, task_bound
from agents.theory.engine.optimum import EngineProcess
from crawl_env import CrawlVectorEnv, Engine, Sources, Task
from tests.refusals import refused

FLEET = Sources([2.0, 1.0, 0.5], [1.0, 0.7, 2.0], [0.3, 0.15, 0.2])
PAIR = FLEET.select([0, 2])


def simulated(process, choice, steps=300, runs=256, seed=1):
    """The mean reward of a policy in the environment, and its error."""
    env = CrawlVectorEnv(
        runs,
        sources=process.sources,
        budget=process.budget,
        engine=process.engine,
        features=("age", "backlog"),
        observed=False,
        horizon=None,
    )
    observation, _ = env.reset(seed=seed)
    total, left = np.zeros(runs), np.zeros(runs, dtype=int)
    subsets = np.array([np.isin(np.arange(env.task.n), a) for a in process.actions], np.float32)
    for step in range(steps + 100):
        ages = np.minimum(observation[..., 0].astype(int), process.ages) - 1
        at = choice[(left, *ages.T, observation[:, 0, 1].astype(int))]
        before = env.world.queue.backlog
        observation, reward, *_ = env.step(subsets[at])
        ledger = env.world.queue.ledger
        service = process.service
        if len(service.fractions) > 1:
            there = before + ledger.collected[:, 0] - ledger.refused[:, 0]
            more = there > service.places[left, 0]
            left = np.where(more, service.onward[left, 0], 0)
        total += reward * (step >= 100)
    return total.mean() / steps, total.std() / steps / np.sqrt(runs)


@pytest.mark.parametrize(
    ("budget", "engine"),
    [
        (1, Engine(rate=1.5, capacity=0)),
        (2, Engine(rate=3, capacity=4, threshold=0.3)),
        (1, Engine(rate=1.3, capacity=6, service="poisson")),
    ],
)
def test_its_policy_earns_it_in_the_environment(budget, engine):
    """Each fails by chance once in 10⁴ seeds."""
    process = EngineProcess(FLEET, budget, engine, ages=10)
    optimum, choice = process.optimum(1e-6)
    assert process.reward(choice) == pytest.approx(optimum, rel=1e-5)
    mean, error = simulated(process, choice)
    assert abs(mean - optimum) < 3.9 * error
    assert error < 0.015 * optimum
    assert optimum < task_bound(Task(FLEET, budget, engine=engine, observed=False)).bound


def test_a_fast_engine_is_none():
    process = EngineProcess(FLEET, 1, Engine(rate=60, capacity=2), ages=12)
    assert process.optimum()[0] == pytest.approx(optimal_reward(FLEET, 1), rel=1e-8)


def test_refusing_helps_and_more_choice_helps():
    found = []
    for thresholds in ((0.0,), (0.4,), (0.0, 0.2, 0.4, 0.8)):
        process = EngineProcess(PAIR, 1, Engine(rate=0.5, capacity=3), 15, thresholds)
        found.append(process.optimum(1e-7)[0])
    assert found[0] < found[1] < found[2]
    refusing = Engine(rate=0.5, threshold=0.2)
    assert found[2] < task_bound(Task(PAIR, 1, engine=refusing, observed=False)).bound


def test_nothing_older_matters():
    few, many = (
        EngineProcess(PAIR, 1, Engine(rate=1, capacity=4), ages).optimum(1e-7)[0]
        for ages in (25, 40)
    )
    assert few == pytest.approx(many, rel=1e-4)


def test_what_is_refused():
    with refused("fifo", "finite"):
        EngineProcess(PAIR, 1, Engine(rate=1, capacity=4, discipline="value"))
    with refused("fifo", "finite"):
        EngineProcess(PAIR, 1, Engine(rate=1))
    with refused("fractions"):
        EngineProcess(PAIR, 1, Engine(rate=np.sqrt(2), capacity=3))
