"""QWINN on chains whose index is known, and its two time scales taken apart."""

import numpy as np
import pytest
import torch

from agents.learning.neural.networks import Batch
from agents.learning.neural.qwinn import QWINN, QWINNSettings
from tests.agents.learning.chains import RESTART, index_by_bisection, restart
from tests.agents.learning.common import crawl


def test_finds_the_index_of_the_restart_chain():
    settings = QWINNSettings(epsilon=1.0, max_age=5, learning_rate=5e-3, tau=0.05)
    agent = QWINN(restart(8, 4), settings).learn(400)
    found = agent.score(np.arange(1.0, 6)[:, None, None].repeat(4, axis=1)).T
    error = np.abs(found - index_by_bisection(*RESTART, 0.99))
    assert error.mean() < 0.1
    assert error.max() < 0.3
    assert np.all(np.diff(found.mean(axis=0)) > 0)


def test_the_network_is_taught_what_the_equation_says():
    agent, drawn = QWINN(crawl(8)), np.random.default_rng(0)
    agent.reward_scale.update(np.array([2.0, 4.0, 8.0, 16.0]), np.ones(4))
    agent.multiplier = drawn.uniform(-1, 1, agent.multiplier.shape)
    for weight in agent.target_critic.parameters():  # so that target and critic differ
        weight.data *= 1.5
    state, after = drawn.integers(1, 20, (2, 4, 5, 1)).astype(np.float32)
    active, reward = drawn.integers(0, 2, (4, 5)), drawn.random((4, 5))
    k = drawn.integers(0, 16, (4, 5))

    def q(network, arm, state, k):
        x = np.log1p([min(state, 16.0), k + 1]) / np.log1p(16.0)
        return network(torch.tensor(x).float().expand(4, 1, 2))[arm, 0]

    expected = 0.0
    for i in range(4):
        for j in range(5):
            net = reward[i, j] / 2.0 ** (i + 1) - agent.multiplier[i, k[i, j]] * active[i, j]
            best = q(agent.target_critic, i, after[i, j, 0], k[i, j]).max().item()
            future = best - q(agent.target_critic, i, 1.0, k[i, j]).max().item()
            now = q(agent.critic.network, i, state[i, j, 0], k[i, j])[active[i, j]].item()
            expected += (now - (net + 0.99 * future)) ** 2 / 5
    batch = Batch(*(torch.tensor(x).float() for x in (state, active, reward, after)))
    loss = agent.critic_loss(batch, k)
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    loss.backward()
    assert all(weight.grad is None for weight in agent.target_critic.parameters())
    assert all(weight.grad is not None for weight in agent.critic.network.parameters())


def test_a_charge_rises_where_activating_is_better_and_stays_within_the_rewards():
    agent = QWINN(crawl(8), QWINNSettings(learning_rate=1e-9))
    with torch.no_grad():
        agent.critic.network.weights[-1].zero_()
        agent.critic.network.biases[-1][:] = torch.tensor([0.0, 0.5])
        agent.critic.network.biases[-1][2] = torch.tensor([0.5, 0.0])
    agent.learn(1)
    expected = np.array([0.05, 0.05, -0.05, 0.05])  # a first step of .1 times a gain of ± .5
    np.testing.assert_allclose(agent.multiplier, expected[:, None].repeat(16, 1), rtol=1e-4)
    agent.learn(120)
    np.testing.assert_allclose(agent.multiplier[2], -0.1)  # waiting pays nothing, nothing is dearer
