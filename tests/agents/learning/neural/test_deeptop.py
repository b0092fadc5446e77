"""DeepTOP on chains whose index is known, and its two losses taken apart."""

import numpy as np
import pytest
import torch

from agents.learning.neural.deeptop import DeepTOP, DeepTOPSettings
from agents.learning.neural.networks import Batch
from tests.agents.learning.chains import RESTART, ChainArms, index_by_bisection
from tests.agents.learning.common import crawl

# Learns faster than the settings that were chosen for many sources and rare crawls.
FAST = {"critic_learning_rate": 5e-3, "actor_learning_rate": 5e-3, "tau": 0.05}


def batch():
    """Return five transitions of each of four arms."""
    drawn = np.random.default_rng(0)
    state, after = (torch.tensor(drawn.integers(1, 9, (4, 5, 1))).float() for _ in range(2))
    active = torch.tensor(drawn.integers(0, 2, (4, 5))).float()
    return Batch(state, active, torch.tensor(drawn.random((4, 5))).float(), after)


def test_finds_the_index_of_the_restart_chain_at_its_discount():
    settings = DeepTOPSettings(**FAST, gamma=0.6, epsilon=1.0, max_age=5)
    arms = ChainArms(*RESTART[:2], 10.0 * RESTART[2], n=4, m=1, rows=8)
    agent = DeepTOP(arms, settings).learn(300)
    found = agent.score(np.arange(1.0, 6)[:, None, None].repeat(4, axis=1)).T / 10.0
    error, other = (np.abs(found - index_by_bisection(*RESTART, d)) for d in (0.6, 0.99))
    assert error.mean() < min(0.1, 0.5 * other.mean())
    assert error.max() < 0.2
    assert np.all(np.diff(found.mean(axis=0)) > 0)


def test_the_critic_is_taught_what_the_equation_says():
    agent, b = DeepTOP(crawl(8)), batch()
    agent.reward_scale.update(np.array([2.0, 4.0, 8.0, 16.0]), np.ones(4))
    charge = torch.tensor(np.random.default_rng(1).uniform(-1, 1, (4, 5, 1))).float()
    for weight in agent.target_critic.parameters():  # so that target and critic differ
        weight.data *= 1.5

    def q(network, arm, state, charge):
        seen = np.log1p(min(state, 100.0)) / np.log1p(100.0)
        return network(torch.tensor([[[seen, charge]]]).float().expand(4, 1, 2))[arm, 0]

    expected = 0.0
    for i in range(4):
        for k in range(5):
            a, paid = int(b.active[i, k]), float(charge[i, k])
            reward = float(b.reward[i, k]) / 2.0 ** (i + 1) - paid * a
            best = q(agent.target_critic, i, float(b.next_state[i, k]), paid).max()
            future = best - q(agent.target_critic, i, 1.0, paid).max()
            now = q(agent.critic.network, i, float(b.state[i, k]), paid)[a]
            expected += (now - (reward + 0.99 * future)).item() ** 2 / 5
    assert agent.critic_loss(b, charge).item() == pytest.approx(expected, rel=1e-4)


def test_each_loss_moves_its_own_network_alone():
    agent, b = DeepTOP(crawl(8)), batch()
    actor, critic = agent.actor.network, agent.critic.network

    def moved():
        networks = (actor, critic, agent.target_critic)
        return [any(w.grad is not None for w in network.parameters()) for network in networks]

    agent.actor_loss(b).backward()
    assert moved() == [True, False, False]
    actor.zero_grad()
    agent.critic_loss(b, torch.zeros(4, 5, 1)).backward()
    assert moved() == [False, True, False]


def test_the_actor_climbs_by_the_gain_of_activating_and_no_more():
    agent = DeepTOP(crawl(8))
    offset = agent.critic.network.biases[-1]
    with torch.no_grad():
        agent.critic.network.weights[-1].zero_()
        offset[:] = torch.tensor([1.0, 1.25])  # a gain of 1/4, whatever state and charge are
    agent.actor_loss(batch()).backward()
    slope = agent.actor.network.biases[-1].grad
    torch.testing.assert_close(slope, torch.full((4, 1, 1), -0.25))
