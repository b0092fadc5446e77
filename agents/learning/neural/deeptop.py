"""DeepTOP for restless bandits: an actor that is the index, and a critic for all multipliers.

K. Nakhleh, I-H. Hou: DeepTOP: deep threshold-optimal policy for MDPs and RMABs, NeurIPS 2022.
Activating an arm whenever its index exceeds the Lagrange multiplier λ should be optimal under every
λ. So the actor's index μ(s) follows the gradient of the advantage Q(s, λ, 1) − Q(s, λ, 0) at
λ = μ(s), and converges to where activating and waiting are equally good: the Whittle index.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import torch

from agents.learning.base import Learner, epsilon_greedy
from agents.learning.neural.networks import (
    Batch,
    NetworkStack,
    ReplayBuffer,
    RewardScale,
    TrainedNetwork,
    indices,
    log_scaled,
    tensor,
)
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class DeepTOPSettings:
    """The paper's hyper-parameters, changed as found on Table 1 and ten recovering sources.

    With 8 environments, an actor learning rate of 1e-3 and τ = .005 needed a quarter of the steps
    of the paper's 1e-4 and .001, and half as many hidden units were sufficient. With ε = .2 (the
    paper has .05), one of ten sources is activated so rarely that scores still varied between .8
    and 1 after 2 000 steps; with .5 they stayed above .97. Four times the batch size had the same
    effect, at twice the computing time.
    """

    gamma: float = 0.99  # discount factor per step
    epsilon: float = 0.5  # probability of random priorities in a step
    max_age: float = 100.0  # larger states count as this one
    hidden: int = 64  # units of each of two hidden layers
    batch_size: int = 64
    buffer_size: int = 60_000  # transitions of each arm
    critic_learning_rate: float = 1e-3
    actor_learning_rate: float = 1e-3
    tau: float = 5e-3  # Polyak coefficient of the target network


class DeepTOP(Learner[DeepTOPSettings]):
    """Learns the discounted index of each arm, with an actor and a critic of its own.

    A step of all environments is followed by one update. The critic's target is
    r − λCa + γ [max_b Q′(s′, λ, b) − max_b Q′(s₀, λ, b)], for a λ drawn for each transition from
    the range of possible indices, which is estimated from the rewards. With γ = .99 the index is
    that of `agents.whittle_index(…, discount=0.99)`, not that of the average reward.

    The paper's target lacks the second maximum, of the state s₀ in which learning began. As it is
    the same for all states and actions, it changes no advantage, but prevents values from growing
    to 1/(1 − γ) rewards, at which network errors exceed the advantages (A. M. Devraj, S. P. Meyn:
    Q-learning with uniformly bounded variance, IEEE TAC, 2022).

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(8, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = DeepTOP(env).learn(20)
    >>> agent.score(agent.arms.state()).shape
    (8, 4)
    """

    name = "deeptop"
    estimates_index = True
    Settings = DeepTOPSettings
    size_settings = ("hidden",)
    learnt: ClassVar = {
        "actor": "actor",
        "critic": "critic",
        "target_critic": "target_critic.values",
        "replay_buffer": "_replay_buffer",
        "largest": "reward_scale.largest",
        "first_state": "_first_state",
    }
    not_negative = ("largest",)

    def setup(self) -> None:
        _, n, d = self.arms.shape
        settings = self.settings
        layers = settings.hidden, settings.hidden
        critic = NetworkStack(n, (d + 1, *layers, 2), self.rng)  # of s and λ; for a = 0, 1
        actor = NetworkStack(n, (d, *layers, 1), self.rng)
        self.critic = TrainedNetwork(critic, settings.critic_learning_rate, self.device)
        self.actor = TrainedNetwork(actor, settings.actor_learning_rate, self.device)
        self.target_critic = deepcopy(critic)
        self._replay_buffer = ReplayBuffer(settings.buffer_size, n, d)
        self.reward_scale = RewardScale(n)
        self._first_state = self.arms.state()[0]  # (N, D)

    def update(self) -> dict[str, float]:
        settings, state = self.settings, self.arms.state()
        step = self.arms.step(epsilon_greedy(self.score(state), settings.epsilon, self.rng))
        self._replay_buffer.add(state, step)
        self.reward_scale.update(step.reward, step.active)
        batch = self._replay_buffer.sample(settings.batch_size, self.rng, self.device)
        low, high = self.reward_scale.multiplier_range[..., None, None]
        multiplier = self.rng.uniform(low, high, (*batch.reward.shape, 1))
        loss = self.critic.optimizer_step(self.critic_loss(batch, tensor(multiplier, self.device)))
        self.target_critic.polyak_update(self.critic.network, settings.tau)
        self.actor.optimizer_step(self.actor_loss(batch))
        return {"critic loss, mean over arms": loss / len(batch.reward)}

    def score(self, state: FloatArray) -> FloatArray:
        index = indices(self.actor.network, state, self.settings.max_age, self.device)
        return index * self.reward_scale.scale / self.arms.cost

    def critic_loss(self, batch: Batch, multiplier: torch.Tensor) -> torch.Tensor:
        """Return the mean squared TD error, summed over arms.

        multiplier: (N, K, 1), in units of the reward scale.
        """
        scale = tensor(self.reward_scale.scale[:, None], self.device)
        with torch.no_grad():
            best = self.q_values(self.target_critic, batch.next_state, multiplier).amax(-1)
            first = tensor(self._first_state, self.device)[:, None].expand_as(batch.next_state)
            reference = self.q_values(self.target_critic, first, multiplier).amax(-1)
            charge = batch.active * multiplier[..., 0]
            target = batch.reward / scale - charge + self.settings.gamma * (best - reference)
        both = self.q_values(self.critic.network, batch.state, multiplier)
        value = torch.where(batch.active > 0, both[..., 1], both[..., 0])
        return (value - target).square().mean(-1).sum()

    def actor_loss(self, batch: Batch) -> torch.Tensor:
        """Return −[Q(s, μ, 1) − Q(s, μ, 0)] μ(s), the bracket detached, summed over arms."""
        index = self.actor.network(log_scaled(batch.state, self.settings.max_age))
        with torch.no_grad():
            both = self.q_values(self.critic.network, batch.state, index)
            advantage = both[..., 1] - both[..., 0]
        return -(advantage * index[..., 0]).mean(-1).sum()

    def q_values(
        self, critic: NetworkStack, state: torch.Tensor, multiplier: torch.Tensor
    ) -> torch.Tensor:
        """Return Q of both actions, (N, K, 2), in units of the reward scale."""
        return critic(torch.cat((log_scaled(state, self.settings.max_age), multiplier), dim=-1))
