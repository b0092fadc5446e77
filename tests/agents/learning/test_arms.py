"""Sources as arms: simulated alone, and seen through flat and scaled observations."""

import numpy as np
import pytest

from agents.learning import LEARNERS
from agents.learning.arms import CrawlSimulator
from crawl_env import CrawlVectorEnv, Sources, Task

TABLE1 = Sources.preset("table1")


@pytest.mark.parametrize("cost", [1.0, [0.5, 2.0, 1.0, 1.5]])
@pytest.mark.parametrize("budget_rule", ["step", "average"])
def test_every_source_is_crawled_as_one_likes(cost, budget_rule):
    sources = Sources(TABLE1.arrival_rate, TABLE1.mean_utility, TABLE1.decay_rate, cost=cost)
    task = Task(sources, budget=2.0, budget_rule=budget_rule)
    simulator, rng = CrawlSimulator(task, 5, 32), np.random.default_rng(0)
    age = simulator.draw(5, rng)
    simulator.start(age, rng)
    for _ in range(50):
        active = rng.random((5, 4)) < rng.choice([0.0, 0.3, 1.0])
        step = simulator.step(active, rng)
        np.testing.assert_array_equal(step.active, active)
        content = TABLE1.ceiling * (1 - TABLE1.retention ** age[..., 0])
        np.testing.assert_allclose(step.reward, np.where(active, content, 0.0), rtol=1e-6)
        age = np.where(active[..., None], 1.0, age + 1)
        np.testing.assert_array_equal(step.state, age)


def test_random_content_has_the_mean_of_the_age_it_starts_with():
    task = Task("table1", arrivals="poisson", observed=False)
    simulator, rng = CrawlSimulator(task, 2000, 32), np.random.default_rng(0)
    simulator.start(np.full((2000, 4, 1), 3.0), rng)
    reward = simulator.step(np.ones((2000, 4), dtype=bool), rng).reward
    error = np.abs(reward.mean(axis=0) - TABLE1.content_at(np.full(4, 3.0)))
    assert np.all(error < 4 * reward.std(axis=0) / np.sqrt(2000))  # 4 sources, 4 σ: 3e-4


def test_ages_are_drawn_from_1_to_the_oldest():
    simulator = CrawlSimulator(Task(), 1, 8)
    ages = simulator.draw(2000, np.random.default_rng(0))
    assert ages.shape == (2000, 4, 1)
    assert set(np.unique(ages)) == set(range(1, 9))


@pytest.mark.parametrize("name", ["wiql", "deeptop", "equivariant-index", "ppo", "dqn"])
def test_learners_learn_the_same_from_flat_and_scaled_observations(name):
    """But for rounding, of the harvests alone: ages are exact."""
    learners = []
    for form in ({}, {"flat": True, "scaled": True}):
        env = CrawlVectorEnv(2, budget=2, features=("age", "crawled", "harvest"), **form)
        learners.append(LEARNERS[name](env, seed=1).learn(40))
        seen, _ = env.reset(seed=2)
        assert learners[-1].predict(seen)[0].shape == (2, 4)
    rows = np.array([[3.0, 0, 0], [1, 1, 250], [2, 0, 0], [1, 1, 60]], dtype=np.float32)[None]
    state = rows[..., : len(learners[0].state_features)]
    score = [
        one.policy(one.task, one.rng).score(rows) if hasattr(one, "policy") else one.score(state)
        for one in learners
    ]
    np.testing.assert_allclose(score[0], score[1], rtol=1e-3, atol=1e-5)
