"""Payoffs: the reward of a deadline against the items themselves, and the arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_env import CrawlVectorEnv, Deadline, DiminishingReturns, Engine, Sources, Task
from crawl_env.content.payoff import Payoff, make_payoff

STEPS = 3


@given(st.integers(0, 10**6), st.booleans())
def test_items_are_worth_what_is_left_at_the_deadline(seed, drawn):
    """Played in a vector environment with different phases, against the basket of each source."""
    fleet = Sources([2.0, 0.5, 1.0], [1.0, 3.0, 2.0], [0.1, 0.3, 0.7], failure_rate=0.2)
    sources = (lambda rng: fleet) if drawn else fleet
    vec = CrawlVectorEnv(
        2,
        sources,
        budget=1,
        arrivals="poisson",
        payoff=Deadline(STEPS),
        features=("value", "steps_left"),
        autoreset_mode="Disabled",
    )
    observation, _ = vec.reset(seed=seed)
    rng = np.random.default_rng(seed)
    basket, begun, paid = np.zeros((2, 3)), np.zeros(2), np.zeros(2)
    for t in range(10):
        if t == 4:  # the second begins anew
            mask = np.array([False, True])
            observation, _ = vec.reset(options={"reset_mask": mask})
            basket[1], begun[1], paid[1] = 0.0, t, 0.0
        left = STEPS - 1 - (t - begun) % STEPS
        assert np.array_equal(observation[..., 1], np.repeat(left[:, None], 3, axis=1))
        observation, reward, *_ = vec.step(rng.random((2, 3)))
        np.add.at(basket.reshape(-1), vec.harvest.picked, vec.harvest.value)
        paid += reward
        for env in np.flatnonzero(left == 0):
            assert paid[env] == pytest.approx(basket[env].sum())
            basket[env], paid[env] = 0.0, 0.0
        basket *= fleet.retention


@given(st.integers(0, 10**6), st.floats(0.01, 100), st.booleans())
def test_a_topic_is_worth_less_the_more_of_it_is_collected(seed, limit, drawn):
    rng, topics = np.random.default_rng(seed), ["b", "", "a", "b", "", "a"]
    fleet = Sources(rng.random(6) * 5, rng.random(6) * 3, 0.3, topics=topics)
    sources = (lambda rng: fleet) if drawn else fleet
    posed = {"sources": sources, "budget": 3, "arrivals": "poisson"}
    vec = CrawlVectorEnv(2, payoff=DiminishingReturns(limit), **posed)
    vec.reset(seed=seed)
    for _ in range(5):
        _, reward, *_ = vec.step(rng.random((2, 6)))
        harvest, expected = vec.harvest, np.zeros(2)
        for env in range(2):
            of_topic = {}
            for cell, value in zip(harvest.picked, harvest.value, strict=True):
                if cell // 6 == env:
                    topic = topics[cell % 6] or cell
                    of_topic[topic] = of_topic.get(topic, 0.0) + value
            expected[env] = sum(limit * (1 - np.exp(-y / limit)) for y in of_topic.values())
        assert reward == pytest.approx(expected)
        assert (reward <= np.bincount(harvest.picked // 6, harvest.value) * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("payoff", "words"),
    [
        ("deadline", "payoff is 'deadline'; give a payoff, such as"),
        ({"steps": 3}, "needs the entry 'name'"),
        ({"name": "deadline"}, "missing a required argument: 'steps'; give it beside the name"),
        ({"name": "dedline"}, "did you mean 'deadline'"),
        ({"name": "deadline", "step": 3}, "did you mean 'steps'"),
        ({"name": "deadline", "steps": 0}, "steps is 0"),
    ],
)
def test_wrong_payoffs_are_named(payoff, words):
    with pytest.raises(ValueError, match=words):
        make_payoff(payoff)


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="Give one of the two"):
        Task(payoff=Deadline(3), engine=Engine(2))
    with pytest.raises(ValueError, match="decays exponentially"):
        Task(payoff=Deadline(3), arrivals="poisson-lomax")

    class Own(Payoff):
        pass

    with pytest.raises(ValueError, match="JSON cannot hold"):
        Own().describe()


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda value, envs: value.sum(), r"Own.reward returned has shape \(\); .* \(3,\)"),
        (lambda value, envs: value, r"shape \(6,\); it must have shape \(3,\)"),
        (lambda value, envs: np.full(envs, np.nan), "environment 0: the reward .* is nan"),
    ],
)
def test_a_payoff_of_ones_own_rewards_each_environment(reward, words):
    class Own(Payoff):
        def reward(self, sources, picked, value, elapsed):
            return reward(value, elapsed.size)

    vec = CrawlVectorEnv(3, budget=2, payoff=Own())
    vec.reset(seed=0)
    with pytest.raises(ValueError, match=words):
        vec.step(np.ones((3, 4)))
