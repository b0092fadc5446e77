"""QWINN: Whittle Q-learning on two time scales, with a network for all the Q-tables of an arm.

F. Robledo Relaño, V. Borkar, U. Ayesta, K. Avrachenkov: Tabular and deep learning for the Whittle
index, ACM TOMPECS, 2024; arXiv 2406.02057. As in `WhittleQ`, every reference state
k has a charge λ_k and a Q-function of its own under it; here rewards are discounted, and one
network, given (s, k), says Q_k(s, ·).
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.base import Learner, explored
from agents.learning.neural.networks import Batch, Replay, Stack, Trained, Unit, squeezed, tensor
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class QWINNSettings:
    """Found on Table 1 with 8 rows (M = 1, 2; three seeds); rates and ε as in `deeptop`.

    With slow = 1 the charges moved faster than the network could follow. With visits = 500 they
    stood still too soon: first they rise to what a crawl brings at once, as the worth of waiting
    is learnt later, and then had no time to come down (M = 2: scores of myopic, .84). Until
    about 5 000 epochs scores still jump, as each charge follows the network's errors alone.
    """

    states: int = 16  # ages 1 … states; older ones count as the oldest
    discount: float = 0.99
    explore: float = 0.5  # share of the epochs in which the choice is chance
    hidden: int = 64  # units of each of two layers
    batch: int = 64
    replay: int = 60_000  # transitions of each arm
    rate: float = 1e-3
    follow: float = 5e-3  # share of the way that the target goes to the network at each update
    slow: float = 0.1  # step of λ at update t: slow / (1 + t ln t / visits)
    visits: int = 3000


class QWINN(Learner):
    """Learns the discounted index of every arm's states 1 … `states`, a network for each arm.

    An epoch of all rows is followed by one update of the network, each transition with a k drawn
    at chance and the target r − λ_k Ca + γ [max_b Q′_k(s′, b) − max_b Q′_k(1, b)], and then one of
    the charges: λ_k += step [Q_k(k, 1) − Q_k(k, 0)]/C, for all k, never beyond what the rewards
    seen allow. The paper's target lacks the second maximum: see `DeepTOP`. With
    γ = .99 the index is that of `agents.whittle_index(…, discount=0.99)`, not of the average
    reward.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(8, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = QWINN(env).learn(epochs=20)
    >>> agent.score(agent.arms.state()).shape
    (8, 4)
    """

    name = "qwinn"
    finds_index = True
    Settings = QWINNSettings
    settings: QWINNSettings

    def prepare(self) -> None:
        n, settings = self.arms.shape[1], self.settings
        network = Stack(
            n, (2, settings.hidden, settings.hidden, 2), self.rng
        )  # of s and k; for a = 0, 1
        self._critic = Trained(network, settings.rate, self.device)
        self._target = deepcopy(network)
        self._replay = Replay(settings.replay, n, 1)
        self._unit = Unit(n)
        self._charge = np.zeros((n, settings.states))  # λ of each k, in units
        self._updates = 0

    def improve(self) -> dict[str, float]:
        settings, before = self.settings, self.arms.state()
        step = self.arms.step(explored(self.score(before), settings.explore, self.rng))
        self._replay.add(before[..., :1], step._replace(state=step.state[..., :1]))
        self._unit.see(step.reward, step.active)
        batch = self._replay.draw(settings.batch, self.rng, self.device)
        surprise = self.surprise(batch, self.rng.integers(settings.states, size=batch.reward.shape))
        error = self._critic.descend(surprise)
        self._target.follow(self._critic.network, settings.follow)
        self._updates += 1
        slow = settings.slow / (1 + self._updates * math.log(self._updates) / settings.visits)
        self._charge = np.clip(self._charge + slow * self.gain(), *self._unit.reach[..., None])
        return {"critic's squared error, mean of arms": error / len(batch.reward)}

    def score(self, state: FloatArray) -> FloatArray:
        found = np.clip(state[..., 0], 1, self.settings.states).astype(int) - 1
        charge = self._charge[np.arange(found.shape[-1]), found]
        return charge * self._unit.size / self.arms.cost

    def surprise(self, batch: Batch, reference: NDArray[np.int_]) -> torch.Tensor:
        """Return the squared error, a sum over arms; reference states, (N, K), are from 0."""
        unit = tensor(self._unit.size[:, None], self.device)
        charge = tensor(np.take_along_axis(self._charge, reference, axis=1), self.device)
        k = tensor(reference[..., None] + 1, self.device)
        with torch.no_grad():
            best = self._q(self._target, batch.after, k).amax(-1)
            level = self._q(self._target, torch.ones_like(k), k).amax(-1)
            net = batch.reward / unit - batch.active * charge
            target = net + self.settings.discount * (best - level)
        both = self._q(self._critic.network, batch.state, k)
        taken = torch.where(batch.active > 0, both[..., 1], both[..., 0])
        return (taken - target).square().mean(-1).sum()

    def gain(self) -> FloatArray:
        """Return Q_k(k, 1) − Q_k(k, 0), (N, states), in units."""
        n, states = self._charge.shape
        every = torch.arange(1.0, states + 1, device=self.device).expand(n, -1)[..., None]
        with torch.no_grad():
            both = self._q(self._critic.network, every, every)
        return (both[..., 1] - both[..., 0]).cpu().numpy().astype(np.float64)

    def memory(self) -> dict[str, Any]:
        return {
            "critic": self._critic.memory(),
            "target": self._target.memory(),
            "replay": self._replay.memory(),
            "largest": self._unit.largest,
            "charge": self._charge,
            "updates": self._updates,
        }

    def remember(self, memory: dict[str, Any]) -> None:
        self._critic.remember(memory["critic"])
        self._target.remember(memory["target"])
        self._replay.remember(memory["replay"])
        self._unit.largest = np.array(memory["largest"])
        self._charge = np.array(memory["charge"])
        self._updates = memory["updates"]

    def _q(self, network: Stack, state: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """Return Q of both actions, (N, K, 2), in units of the largest reward."""
        states = self.settings.states
        both = torch.cat((squeezed(state, states), squeezed(reference, states)), dim=-1)
        return network(both)
