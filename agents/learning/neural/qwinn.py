"""QWINN: Whittle Q-learning on two time scales, with one network for all Q-tables of an arm.

F. Robledo Relaño, V. Borkar, U. Ayesta, K. Avrachenkov: Tabular and deep learning for the Whittle
index, ACM TOMPECS, 2024; arXiv 2406.02057. As in `WhittleQ`, every reference state k has a Lagrange
multiplier λ_k and a Q-function of its own; here rewards are discounted, and one network maps (s, k)
to Q_k(s, ·).
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.base import Learner, epsilon_greedy
from agents.learning.neural.networks import (
    Batch,
    NetworkStack,
    ReplayBuffer,
    RewardScale,
    TrainedNetwork,
    log_scaled,
    tensor,
)
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class QWINNSettings:
    """Chosen on Table 1 with 8 environments (M = 1, 2; three seeds); rates and ε as for DeepTOP.

    With multiplier_learning_rate = 1 the multipliers moved faster than the network could be
    trained. With multiplier_decay_steps = 500 they froze too early: they first rise to the
    immediate reward of a crawl, since the value of waiting is learnt later, and then could not
    decrease (M = 2: score of the myopic policy, .84). Up to about 5 000 steps scores are unstable,
    as each multiplier depends on the network's errors.
    """

    max_age: int = 16  # states are the ages 1 … max_age; older sources count as of age max_age
    gamma: float = 0.99  # discount factor per step
    epsilon: float = 0.5  # probability of random priorities in a step
    hidden: int = 64  # units of each of two hidden layers
    batch_size: int = 64
    buffer_size: int = 60_000  # transitions of each arm
    learning_rate: float = 1e-3
    tau: float = 5e-3  # Polyak coefficient of the target network
    multiplier_learning_rate: float = 0.1  # divided by 1 + t ln t/multiplier_decay_steps
    multiplier_decay_steps: int = 3000


class QWINN(Learner[QWINNSettings]):
    """Learns the discounted index of every arm's states 1 … `max_age`, one network per arm.

    A step of all environments is followed by one update of the network, each transition with a
    random k and the target r − λ_k Ca + γ [max_b Q′_k(s′, b) − max_b Q′_k(1, b)], and one of the
    multipliers: λ_k += step size × [Q_k(k, 1) − Q_k(k, 0)]/C for all k, within the range that the
    rewards allow. The paper's target lacks the second maximum: see `DeepTOP`. With γ = .99 the
    index is that of `agents.whittle_index(…, discount=0.99)`, not that of the average reward.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(8, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = QWINN(env).learn(20)
    >>> agent.score(agent.arms.state()).shape
    (8, 4)
    """

    name = "qwinn"
    estimates_index = True
    Settings = QWINNSettings
    size_settings = ("hidden", "max_age")
    learnt: ClassVar = {
        "critic": "critic",
        "target_critic": "target_critic.values",
        "replay_buffer": "_replay_buffer",
        "largest": "reward_scale.largest",
        "multiplier": "multiplier",
        "updates": "_updates",
    }
    not_negative = ("largest",)

    def setup(self) -> None:
        n, settings = self.arms.shape[1], self.settings
        layers = settings.hidden, settings.hidden
        network = NetworkStack(n, (2, *layers, 2), self.rng)  # of s and k; for a = 0, 1
        self.critic = TrainedNetwork(network, settings.learning_rate, self.device)
        self.target_critic = deepcopy(network)
        self._replay_buffer = ReplayBuffer(settings.buffer_size, n, 1)
        self.reward_scale = RewardScale(n)
        self.multiplier = np.zeros((n, settings.max_age))  # λ_k, in units of the reward scale
        self._updates = 0

    def update(self) -> dict[str, float]:
        settings, state = self.settings, self.arms.state()
        step = self.arms.step(epsilon_greedy(self.score(state), settings.epsilon, self.rng))
        self._replay_buffer.add(state[..., :1], step._replace(state=step.state[..., :1]))
        self.reward_scale.update(step.reward, step.active)
        batch = self._replay_buffer.sample(settings.batch_size, self.rng, self.device)
        reference = self.rng.integers(settings.max_age, size=batch.reward.shape)
        loss = self.critic.optimizer_step(self.critic_loss(batch, reference))
        self.target_critic.polyak_update(self.critic.network, settings.tau)
        self._updates += 1
        decay = 1 + self._updates * math.log(self._updates) / settings.multiplier_decay_steps
        change = settings.multiplier_learning_rate / decay * self.advantage()
        low, high = self.reward_scale.multiplier_range[..., None]
        self.multiplier = np.clip(self.multiplier + change, low, high)
        return {"critic loss, mean over arms": loss / len(batch.reward)}

    def score(self, state: FloatArray) -> FloatArray:
        place = np.clip(state[..., 0], 1, self.settings.max_age).astype(int) - 1
        index = self.multiplier[np.arange(place.shape[-1]), place]
        return index * self.reward_scale.scale / self.arms.cost

    def critic_loss(self, batch: Batch, reference: NDArray[np.int_]) -> torch.Tensor:
        """Return the mean squared TD error, summed over arms.

        reference: k − 1 of each transition, (N, K).
        """
        scale = tensor(self.reward_scale.scale[:, None], self.device)
        multiplier = tensor(np.take_along_axis(self.multiplier, reference, axis=1), self.device)
        k = tensor(reference[..., None] + 1, self.device)
        with torch.no_grad():
            best = self.q_values(self.target_critic, batch.next_state, k).amax(-1)
            first = self.q_values(self.target_critic, torch.ones_like(k), k).amax(-1)
            net = batch.reward / scale - batch.active * multiplier
            target = net + self.settings.gamma * (best - first)
        both = self.q_values(self.critic.network, batch.state, k)
        value = torch.where(batch.active > 0, both[..., 1], both[..., 0])
        return (value - target).square().mean(-1).sum()

    def advantage(self) -> FloatArray:
        """Return Q_k(k, 1) − Q_k(k, 0), (N, max_age), in units of the reward scale."""
        n, states = self.multiplier.shape
        every = torch.arange(1.0, states + 1, device=self.device).expand(n, -1)[..., None]
        with torch.no_grad():
            both = self.q_values(self.critic.network, every, every)
        return (both[..., 1] - both[..., 0]).cpu().numpy().astype(np.float64)

    def q_values(
        self, network: NetworkStack, state: torch.Tensor, reference: torch.Tensor
    ) -> torch.Tensor:
        """Return Q_k of both actions, (N, K, 2), in units of the reward scale."""
        inputs = (log_scaled(x, self.settings.max_age) for x in (state, reference))
        return network(torch.cat(tuple(inputs), dim=-1))
