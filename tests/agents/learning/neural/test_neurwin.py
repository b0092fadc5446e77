"""NeurWIN on sources whose index is known, and its policy gradient taken apart."""

import numpy as np
import pytest
import torch

from agents import whittle_index
from agents.learning.neural.neurwin import NeurWIN, NeurWINSettings
from crawl_env import Sources
from tests.agents.learning.chains import restart
from tests.agents.learning.common import crawl

FEW = NeurWINSettings(n_steps=4, n_episodes=3)


def small():
    """Return an agent of two arms, two mini-batches of three episodes of four epochs."""
    agent = NeurWIN(restart(6, 2), FEW)
    agent.reward_scale.update(np.array([2.0, 4.0]), np.ones(2))
    return agent


def test_finds_the_index_of_table_1():
    settings = NeurWINSettings(gamma=0.9, n_steps=20, learning_rate=0.02)
    agent = NeurWIN(crawl(32), settings, seed=1).learn(2000)
    ages = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 10.0])
    sources = Sources.preset("table1")
    true = whittle_index(sources.content_at(ages[:, None]), sources, discount=0.9)
    found = agent.score(ages[:, None, None].repeat(4, axis=1))
    assert np.all(np.diff(found, axis=0) > 0)
    error = np.abs(found - true) / sources.ceiling
    assert error[:2].max() < 0.08  # ages that good policies reach
    assert error.max() < 0.25


def test_a_mini_batch_shares_start_and_charge_which_are_drawn_apart():
    agent = NeurWIN(crawl(16), NeurWINSettings(n_steps=2))
    probes = []
    agent.scaled_index, inner = lambda s: (probes.append(s), inner(s))[1], agent.scaled_index
    episodes = agent.rollout()
    start = episodes.state[0].reshape(2, 8, 4, 1)
    charge = episodes.multiplier.reshape(2, 8, 4)
    assert np.all(start == start[:, :1])
    assert np.all(charge == charge[:, :1])
    np.testing.assert_array_equal(charge[:, 0], inner(probes[0]))
    assert probes[0].shape == start[:, 0].shape
    assert np.any(probes[0] != start[:, 0])
    assert np.any(start[0, 0] != start[1, 0])


def test_an_advantage_is_the_discounted_rest_less_charges_above_its_mini_batch():
    agent = small()
    episodes = agent.rollout()
    unit = np.array([2.0, 4.0])
    expected = np.zeros(episodes.reward.shape)
    for t in range(4):
        for h in range(t, 4):
            paid = episodes.multiplier * episodes.active[h]
            expected[t] += 0.99 ** (h - t) * (episodes.reward[h] / unit - paid)
        for rows in (slice(0, 3), slice(3, 6)):
            expected[t, rows] -= expected[t, rows].mean(axis=0)
    np.testing.assert_allclose(agent.advantage(episodes), expected, atol=1e-12)
    assert np.abs(expected).max() > 0.1


def test_the_gradient_is_that_of_the_likelihood_under_a_constant_charge():
    agent = small()
    episodes = agent.rollout()
    advantage = agent.advantage(episodes)

    def likelihood():
        over = agent.scaled_index(episodes.state) - episodes.multiplier
        active = 1 / (1 + np.exp(-agent.settings.sigmoid_scale * over))
        chosen = np.where(episodes.active > 0, active, 1 - active)
        return float((np.log(chosen) * advantage).mean(axis=(0, 1)).sum())

    praise = agent.policy_objective(episodes)
    assert praise.item() == pytest.approx(likelihood(), rel=1e-4)
    praise.backward()
    offset = agent.index_network.network.biases[-1]
    assert offset.grad is not None
    for arm in range(2):
        values = []
        for shift in (-1e-2, 1e-2):
            with torch.no_grad():
                offset[arm] += shift
            values.append(likelihood())
            with torch.no_grad():
                offset[arm] -= shift
        assert offset.grad[arm].item() == pytest.approx((values[1] - values[0]) / 2e-2, rel=1e-2)


def test_chance_follows_the_index_above_the_charge():
    agent = NeurWIN(restart(600, 2), NeurWINSettings(n_steps=1))
    with torch.no_grad():
        agent.index_network.network.weights[-1] *= 10  # so that states differ at once
    episodes = agent.rollout()
    over = agent.scaled_index(episodes.state[0]) - episodes.multiplier
    likely = 1 / (1 + np.exp(-15 * over))
    spread = np.sqrt((likely * (1 - likely)).sum(axis=0))
    surplus = episodes.active[0].sum(axis=0) - likely.sum(axis=0)
    assert np.all(np.abs(surplus) < 4 * spread)  # 4 σ, two arms: 1e-4
    assert np.ptp(likely) > 0.2


def test_rows_must_be_whole_mini_batches():
    with pytest.raises(ValueError, match="multiple of 8"):
        NeurWIN(crawl(12))
