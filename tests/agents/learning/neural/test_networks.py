"""Stacked networks against torch's own layers, what is remembered, and the replay."""

import numpy as np
import pytest
import torch

from agents.learning.arms import Step
from agents.learning.neural.networks import (
    NetworkStack,
    ReplayBuffer,
    RewardScale,
    TrainedNetwork,
    indices,
    log_scaled,
    tensor,
)


def stack(seed=0):
    return NetworkStack(3, (2, 8, 8, 1), np.random.default_rng(seed))


def test_every_arm_has_an_ordinary_network_of_its_own():
    network, x = stack(), torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(1))
    for arm in range(3):
        layers = []
        for weight, offset in zip(network.weights, network.biases, strict=True):
            linear = torch.nn.Linear(*weight.shape[1:])
            linear.weight.data, linear.bias.data = weight[arm].T, offset[arm, 0]
            layers += [linear, torch.nn.ReLU()]
        alone = torch.nn.Sequential(*layers[:-1])
        torch.testing.assert_close(network(x)[arm], alone(x[arm]))


def test_what_one_arm_loses_moves_no_other_arm():
    network = stack()
    before = network.values
    x = torch.ones(3, 4, 2)
    TrainedNetwork(network, 0.1, "cpu").optimizer_step(network(x)[1].square().sum())
    moved = [np.abs(a - b).max(axis=(1, 2)) for a, b in zip(before, network.values, strict=True)]
    assert np.max(moved, axis=0)[1] > 0
    assert not np.max(moved, axis=0)[[0, 2]].any()


def test_a_follower_goes_a_share_of_the_way():
    follower, leader = stack(0), stack(1)
    start, aim = follower.values, leader.values
    follower.polyak_update(leader, 0.25)
    for now, a, b in zip(follower.values, start, aim, strict=True):
        np.testing.assert_allclose(now, 0.75 * a + 0.25 * b, rtol=1e-5, atol=1e-7)


def fed(capacity, steps):
    """Return a replay of two arms, two rows; every number tells epoch, row and arm."""
    replay = ReplayBuffer(capacity, arms=2, features=1)
    for epoch in range(steps):
        name = 100.0 * epoch + 10.0 * np.arange(2)[:, None] + np.arange(2)
        step = Step(name % 20 >= 10, name + 0.25, name[..., None] + 0.5)
        replay.add(name[..., None], step)
    return replay


def test_a_replay_keeps_the_last_transitions_whole_and_by_arm():
    replay = fed(capacity=6, steps=5)
    batch = replay.sample(500, np.random.default_rng(0), "cpu")
    assert set(batch.state[0, :, 0].tolist()) == {200, 210, 300, 310, 400, 410}
    assert set(batch.state[1, :, 0].tolist()) == {201, 211, 301, 311, 401, 411}
    torch.testing.assert_close(batch.reward, batch.state[..., 0] + 0.25)
    torch.testing.assert_close(batch.next_state, batch.state + 0.5)
    torch.testing.assert_close(batch.active, (batch.state[..., 0] % 20 >= 10).float())


def test_the_unit_is_the_largest_reward_and_charges_reach_a_little_beyond():
    unit = RewardScale(3)
    np.testing.assert_array_equal(unit.scale, 1.0)
    unit.update(np.array([[0.5, -3.0, 0.0], [0.25, 2.0, 0.0]]), np.array([[1, 0, 1], [1, 1, 0]]))
    unit.update(np.array([[[0.1, 0.0, 0.0]]]), np.array([[[0, 1, 1]]]))
    np.testing.assert_array_equal(unit.scale, [0.5, 3.0, 1.0])
    np.testing.assert_allclose(unit.multiplier_range, [[-0.3, -1.1, -0.1], [1.1, 2 / 3 + 0.1, 0.1]])


def test_states_are_squeezed_into_0_to_1_in_their_order():
    x = log_scaled(torch.tensor([0.0, 1.0, 10.0, 100.0, 1e9]), 100.0)
    assert x[0] == 0
    assert bool((x.diff()[:3] > 0).all())
    torch.testing.assert_close(x[3:], torch.ones(2))


def test_indices_have_the_layout_of_states():
    network = NetworkStack(3, (1, 8, 1), np.random.default_rng(0))
    state = np.arange(24.0).reshape(2, 4, 3, 1)
    found = indices(network, state, 100.0, "cpu")
    one = network(log_scaled(tensor(np.full((3, 1, 1), state[1, 2, 1, 0]), "cpu"), 100.0))[1]
    assert found.shape == (2, 4, 3)
    assert found[1, 2, 1] == pytest.approx(one.item(), rel=1e-5)
