"""NeurWIN: a network that is the index, trained by policy gradient in a simulator.

K. Nakhleh, S. Ganji, P.-C. Hsieh, I-H. Hou, S. Shakkottai: NeurWIN: neural Whittle index network
for restless bandits via deep RL, NeurIPS 2021. If activating wherever the index exceeds λ is
optimal under the Lagrange multiplier λ = f(s̃), for every s̃, then f is the Whittle index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.arms import CrawlArms, CrawlSimulator, Simulator
from agents.learning.base import Learner
from agents.learning.neural.networks import (
    NetworkStack,
    RewardScale,
    TrainedNetwork,
    indices,
    log_scaled,
    tensor,
)
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class NeurWINSettings:
    """Chosen on Table 1 with 64 environments, by the error of the index after 50 to 400 updates.

    The paper's sigmoid_scale = 5 biases the index through the randomness of the actions (source 2,
    age 1: to a tenth of its value). Its learning rate of 1e-3 is slow with so many environments,
    and episodes of 100 or 300 steps improved an update no more than those of 50.
    """

    gamma: float = 0.99  # discount factor per step
    n_steps: int = 50  # steps per episode; each episode is followed by an update
    n_episodes: int = 8  # episodes per mini-batch, with equal initial state and multiplier
    sigmoid_scale: float = 15.0  # m: P(a = 1 | s) = 1/(1 + exp(−m (f(s) − λ)))
    max_age: int = 32  # episodes start from ages up to this one; older ones count as of this age
    hidden: int = 32  # units of each of two hidden layers
    learning_rate: float = 1e-2


class Episodes(NamedTuple):
    """The data of one update: H steps of B environments with N arms."""

    state: FloatArray  # (H, B, N, D)
    active: FloatArray  # (H, B, N) 0 or 1
    reward: FloatArray  # (H, B, N) utility
    multiplier: FloatArray  # (B, N) λ, in units of the reward scale


class NeurWIN(Learner[NeurWINSettings]):
    """Learns the discounted index of each arm by REINFORCE, with a network of its own.

    It does not interact with the fleet, but requires a simulator in which each arm can start in any
    state and be activated independently; the budget is irrelevant, and the index holds for any.
    The environments are parallel episodes, in mini-batches of `n_episodes`. In each mini-batch and
    for each arm, λ = f(s̃) and the initial state are drawn independently. The gradient is
    REINFORCE with reward-to-go, Σ_{h≥t} γ^{h−t} (r_h − λCa_h), and the mini-batch mean as baseline;
    the paper uses the whole-episode return. A step of an environment is one step of every source.

    Raises:
        ValueError: the number of environments is not a multiple of `n_episodes`.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(16, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = NeurWIN(env).learn(50)
    >>> agent.score(agent.arms.state()).shape
    (16, 4)
    """

    name = "neurwin"
    estimates_index = True
    Settings = NeurWINSettings
    size_settings = ("hidden",)
    learnt: ClassVar = {"index": "index_network", "largest": "reward_scale.largest"}
    not_negative = ("largest",)

    def setup(self) -> None:
        num_envs, n, d = self.arms.shape
        settings = self.settings
        if num_envs % settings.n_episodes:
            raise ValueError(
                f"{num_envs} environments cannot be divided into mini-batches of "
                f"{settings.n_episodes} episodes; make the vector environment with a multiple of "
                f"{settings.n_episodes}"
            )
        self.steps_per_update = settings.n_steps
        if isinstance(self.arms, CrawlArms):
            task = self.arms.env.task
            self._simulator: Simulator = CrawlSimulator(task, num_envs, settings.max_age)
        else:
            self._simulator = cast(Simulator, self.arms)
        network = NetworkStack(n, (d, settings.hidden, settings.hidden, 1), self.rng)
        self.index_network = TrainedNetwork(network, settings.learning_rate, self.device)
        self.reward_scale = RewardScale(n)

    def update(self) -> dict[str, float]:
        episodes = self.rollout()
        self.reward_scale.update(episodes.reward, episodes.active)
        self.index_network.optimizer_step(-self.policy_objective(episodes))
        return {"fraction of arms activated": float(episodes.active.mean())}

    def score(self, state: FloatArray) -> FloatArray:
        return self.scaled_index(state) * self.reward_scale.scale / self.arms.cost

    def scaled_index(self, state: FloatArray) -> FloatArray:
        """Return the index of states (..., N, D), (..., N), in units of the reward scale."""
        return indices(self.index_network.network, state, self.settings.max_age, self.device)

    def rollout(self) -> Episodes:
        """Return episodes of all environments under the current network."""
        settings, simulator = self.settings, self._simulator
        num_envs, n, _ = simulator.shape
        batches = num_envs // settings.n_episodes
        multiplier = self.scaled_index(simulator.draw(batches, self.rng))
        multiplier = multiplier.repeat(settings.n_episodes, axis=0)
        state = simulator.draw(batches, self.rng).repeat(settings.n_episodes, axis=0)
        simulator.start(state, self.rng)
        states, actives, rewards = [], [], []
        for _ in range(settings.n_steps):
            distance = multiplier - self.scaled_index(state)
            probability = 1 / (1 + np.exp(settings.sigmoid_scale * distance))
            active = self.rng.random((num_envs, n)) < probability
            step = simulator.step(active, self.rng)
            states.append(state)
            actives.append(active)
            rewards.append(step.reward)
            state = step.state
        return Episodes(
            np.stack(states), np.stack(actives).astype(np.float64), np.stack(rewards), multiplier
        )

    def policy_objective(self, episodes: Episodes) -> torch.Tensor:
        """Return Σ over arms of the mean of ln P(a | s) × advantage: REINFORCE's objective."""
        states = episodes.state.reshape(-1, *episodes.state.shape[2:])
        inputs = log_scaled(self._by_arm(states), self.settings.max_age)
        excess = self.index_network.network(inputs)[..., 0] - self._by_arm(
            np.broadcast_to(episodes.multiplier, episodes.reward.shape).reshape(len(states), -1)
        )
        sign = 2 * self._by_arm(episodes.active.reshape(len(states), -1)) - 1
        log_prob = torch.nn.functional.logsigmoid(self.settings.sigmoid_scale * sign * excess)
        advantage = self._by_arm(self.advantage(episodes).reshape(len(states), -1))
        return (log_prob * advantage).mean(-1).sum()

    def advantage(self, episodes: Episodes) -> FloatArray:
        """Return each step's return less the mini-batch's mean return, (H, B, N)."""
        net = episodes.reward / self.reward_scale.scale - episodes.multiplier * episodes.active
        returns = np.zeros_like(net)
        returns[-1] = net[-1]
        for t in range(len(net) - 2, -1, -1):
            returns[t] = net[t] + self.settings.gamma * returns[t + 1]
        steps, _, n = net.shape
        batches = returns.reshape(steps, -1, self.settings.n_episodes, n)
        return np.asarray((batches - batches.mean(axis=2, keepdims=True)).reshape(net.shape))

    def _by_arm(self, array: NDArray[Any]) -> torch.Tensor:
        """Return arrays (K, N, …) as networks take them, (N, K, …)."""
        return tensor(array.swapaxes(0, 1), self.device)
