"""DeepTOP for restless bandits: an actor that says the index, a critic that knows every charge.

K. Nakhleh, I-H. Hou: DeepTOP: deep threshold-optimal policy for MDPs and RMABs, NeurIPS 2022.
Whoever activates an arm whenever its index exceeds the charge λ should do as well as possible
under every λ. So the actor's index μ(s) climbs the gain Q(s, λ, 1) − Q(s, λ, 0) at λ = μ(s), and
comes to rest where activating and waiting are equally good: at the Whittle index.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agents.learning.base import Learner, explored
from agents.learning.neural.networks import (
    Batch,
    Replay,
    Stack,
    Trained,
    Unit,
    indices,
    squeezed,
    tensor,
)
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class DeepTOPSettings:
    """The paper's, but for what was found on Table 1 and ten recovering sources with 8 rows.

    There, an actor at 1e-3 and a target at .005 needed a quarter of the epochs of the paper's 1e-4
    and .001, and half as many hidden units lost nothing. With ε = .2, for the paper's .05, one of
    ten sources is activated so seldom that scores still wandered between .8 and 1 after 2 000
    epochs; with .5 they stayed above .97. Four times the batch did as much, at twice the work.
    """

    discount: float = 0.99
    explore: float = 0.5  # share of the epochs in which the choice is chance
    oldest: float = 100.0  # states beyond count as this one
    hidden: int = 64  # units of each of two layers
    batch: int = 64
    replay: int = 60_000  # transitions of each arm
    critic_rate: float = 1e-3
    actor_rate: float = 1e-3
    follow: float = 5e-3  # share of the way that the target goes to the critic at each update


class DeepTOP(Learner):
    """Learns the discounted index of each arm, with an actor and a critic of its own.

    An epoch of all rows is followed by one update. The critic's target is
    r − λCa + γ [max_b Q′(s′, λ, b) − max_b Q′(s₀, λ, b)], for a λ drawn anew for each transition
    from all that an index may be, which is learnt from the rewards seen. With γ = .99 the index is
    that of `agents.whittle_index(…, discount=0.99)`, not of the average reward.

    The paper's target lacks the second maximum, of the state s₀ in which learning began. It changes
    no gain, as it is the same for all states and actions, but keeps values from growing to
    1/(1 − γ) rewards, beside which gains are lost in the network's error (A. M. Devraj, S. P. Meyn:
    Q-learning with uniformly bounded variance, IEEE TAC, 2022).

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(8, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = DeepTOP(env).learn(epochs=20)
    >>> agent.score(agent.arms.state()).shape
    (8, 4)
    """

    name = "deeptop"
    finds_index = True
    Settings = DeepTOPSettings
    settings: DeepTOPSettings

    def prepare(self) -> None:
        _, n, d = self.arms.shape
        settings = self.settings
        critic = Stack(
            n, (d + 1, settings.hidden, settings.hidden, 2), self.rng
        )  # of s and λ; for a = 0, 1
        actor = Stack(n, (d, settings.hidden, settings.hidden, 1), self.rng)
        self._critic = Trained(critic, settings.critic_rate, self.device)
        self._actor = Trained(actor, settings.actor_rate, self.device)
        self._target = deepcopy(critic)
        self._replay = Replay(settings.replay, n, d)
        self._unit = Unit(n)
        self._first = self.arms.state()[0]  # (N, D)

    def improve(self) -> dict[str, float]:
        settings, before = self.settings, self.arms.state()
        step = self.arms.step(explored(self.score(before), settings.explore, self.rng))
        self._replay.add(before, step)
        self._unit.see(step.reward, step.active)
        batch = self._replay.draw(settings.batch, self.rng, self.device)
        low, high = self._unit.reach[..., None, None]
        charge = self.rng.uniform(low, high, (*batch.reward.shape, 1))
        surprise = self.surprise(batch, tensor(charge, self.device))
        error = self._critic.descend(surprise)
        self._target.follow(self._critic.network, settings.follow)
        self._actor.descend(-self.gain(batch))
        return {"critic's squared error, mean of arms": error / len(batch.reward)}

    def score(self, state: FloatArray) -> FloatArray:
        index = indices(self._actor.network, state, self.settings.oldest, self.device)
        return index * self._unit.size / self.arms.cost

    def surprise(self, batch: Batch, charge: torch.Tensor) -> torch.Tensor:
        """Return the critic's squared error, a sum over arms, under charges (N, K, 1) in units."""
        unit = tensor(self._unit.size[:, None], self.device)
        with torch.no_grad():
            best = self._q(self._target, batch.after, charge).amax(-1)
            first = tensor(self._first, self.device)[:, None].expand_as(batch.after)
            level = self._q(self._target, first, charge).amax(-1)
            paid = batch.active * charge[..., 0]
            target = batch.reward / unit - paid + self.settings.discount * (best - level)
        both = self._q(self._critic.network, batch.state, charge)
        taken = torch.where(batch.active > 0, both[..., 1], both[..., 0])
        return (taken - target).square().mean(-1).sum()

    def gain(self, batch: Batch) -> torch.Tensor:
        """Return what the actor climbs: [Q(s, μ, 1) − Q(s, μ, 0)] μ(s), the bracket constant."""
        index = self._actor.network(squeezed(batch.state, self.settings.oldest))
        with torch.no_grad():
            both = self._q(self._critic.network, batch.state, index)
            bracket = both[..., 1] - both[..., 0]
        return (bracket * index[..., 0]).mean(-1).sum()

    def memory(self) -> dict[str, Any]:
        return {
            "actor": self._actor.memory(),
            "critic": self._critic.memory(),
            "target": self._target.memory(),
            "replay": self._replay.memory(),
            "largest": self._unit.largest,
            "first": self._first,
        }

    def remember(self, memory: dict[str, Any]) -> None:
        self._actor.remember(memory["actor"])
        self._critic.remember(memory["critic"])
        self._target.remember(memory["target"])
        self._replay.remember(memory["replay"])
        self._unit.largest = np.array(memory["largest"])
        self._first = np.array(memory["first"])

    def _q(self, critic: Stack, state: torch.Tensor, charge: torch.Tensor) -> torch.Tensor:
        """Return Q of both actions, (N, K, 2), in units of the largest reward."""
        return critic(torch.cat((squeezed(state, self.settings.oldest), charge), dim=-1))
