"""Simulations from a copied state: reproducible, and blind to the true future."""

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

from crawl_env import CrawlEnv, CrawlVectorEnv, ItemLog, Sources, Trace
from crawl_env.envs.wrappers import SequentialSelection

FLEET = Sources([3.0, 1.0, 0.4], [1.0, 2.0, 5.0], [0.3, 0.5, 0.1], failure_rate=[0.5, 0, 0])
ACTION = np.array([1, -1, -1], dtype=np.float32)


def future(env, steps=3):
    return sum(env.step(ACTION)[1] for _ in range(steps))


@pytest.mark.parametrize("arrivals", ["poisson", "poisson-items", "poisson-lognormal"])
def test_a_simulated_future_is_independent_of_the_true_one_and_equal_in_law(arrivals):
    """Every episode begins in the same state (nothing published yet), where the generators of
    `reset(seed=k)` and `set_state(…, seed=k)` are new: the same seed must not reveal the future."""
    env = CrawlEnv(sources=FLEET, arrivals=arrivals, start="empty")
    simulator = CrawlEnv(sources=FLEET, arrivals=arrivals, start="empty")
    true, known, simulated = [], [], []
    for seed in range(400):
        env.reset(seed=seed)
        state = env.get_state()
        simulator.set_state(state)
        known.append(future(simulator))
        simulator.set_state(state, seed=seed)
        simulated.append(future(simulator))
        true.append(future(env))
    assert known == true  # without a seed, the copy continues as the original does
    assert abs(stats.spearmanr(true, simulated).statistic) < 4 / np.sqrt(len(true))
    assert stats.ks_2samp(true, simulated).pvalue > 1e-3
    assert len(set(simulated)) > 100


def test_wrappers_can_be_reseeded():
    env = SequentialSelection(gym.make("EphemeralCrawl-v0", arrivals="poisson"))
    env.reset(seed=0)
    state = env.get_state()
    rewards = []
    for seed in (None, 5, 5):
        env.set_state(state, seed=seed)
        env.step(0)
        rewards.append(env.step(0)[1])
    assert rewards[1] == rewards[2] != rewards[0]


def test_a_log_has_one_future():
    log = ItemLog(["1", "2", "3"], [0, 1, 2], [0.5, 1.5, 2.5], [1, 1, 1], start=0, end=3)
    env = CrawlEnv(sources=FLEET, arrivals=Trace(log))
    env.reset(seed=0)
    state = env.get_state()
    env.step(ACTION)
    value = env.world.value.copy()
    with pytest.raises(ValueError, match="a log cannot be reseeded"):
        env.set_state(state, seed=1)
    assert np.array_equal(env.world.value, value)  # nothing was changed
    with pytest.raises(ValueError, match="seed"):
        CrawlEnv().set_state(state, seed=-1)


def test_what_is_no_state_of_these_sources_is_refused():
    env = CrawlEnv()
    env.reset(seed=0)
    for state in (None, {}):
        with pytest.raises(ValueError, match="give what get_state returned"):
            env.set_state(state)
    rows = CrawlVectorEnv(1)
    rows.reset(seed=0)
    with pytest.raises(ValueError, match="of a single environment, and this is a vector of 1"):
        rows.set_state(env.get_state())
    with pytest.raises(ValueError, match="of a vector of 1 environment, and this is a single"):
        env.set_state(rows.get_state())
    with pytest.raises(ValueError, match="and this is a vector of 3 environments; restore"):
        CrawlVectorEnv(3).set_state(rows.get_state())
    with pytest.raises(ValueError, match="of an environment with other sources"):
        CrawlEnv("recovering-4").set_state(env.get_state())
    assert CrawlEnv(budget=2).set_state(env.get_state()).shape == (4, 1)


@pytest.mark.parametrize(
    "task",
    [
        {"arrivals": "poisson-drift"},
        {"arrivals": "poisson-items", "features": ("items",)},  # these were NaN
        {"arrivals": "poisson-items", "features": ("crawled", "harvest_number")},
    ],
)
def test_a_state_that_lacks_what_a_task_needs_is_refused(task):
    log = ItemLog(["1", "2", "3"], [0, 1, 2], [0.5, 1.5, 2.5], [1, 1, 1], start=0, end=3)
    for arrivals in ("poisson", Trace(log)):
        env, other = CrawlEnv(FLEET, arrivals=arrivals), CrawlEnv(FLEET, **task)
        env.reset(seed=0)
        other.reset(seed=1)
        value = other.world.value.copy()
        with pytest.raises(ValueError, match="of an environment with other arrivals, features"):
            other.set_state(env.get_state(), seed=1)
        assert np.array_equal(other.world.value, value)  # nothing was changed


def test_a_simulator_may_know_less_than_the_state_tells():
    env = CrawlEnv(FLEET, arrivals="poisson-drift-items", features=("value", "items"))
    env.reset(seed=0)
    simulator = CrawlEnv(FLEET, arrivals="poisson-items")
    simulator.set_state(env.get_state(), seed=1)
    assert np.array_equal(simulator.world.value, env.world.value)
