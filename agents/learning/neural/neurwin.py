"""NeurWIN: a network that is the index, trained by policy gradient in a simulator.

K. Nakhleh, S. Ganji, P.-C. Hsieh, I-H. Hou, S. Shakkottai: NeurWIN: neural Whittle index network
for restless bandits via deep RL, NeurIPS 2021. If activating wherever the index exceeds λ is
optimal under the charge λ = f(s̃), for every s̃, then f is the Whittle index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from agents.learning.arms import CrawlArms, CrawlSimulator, Simulator
from agents.learning.base import Learner
from agents.learning.neural.networks import Stack, Trained, Unit, indices, squeezed, tensor
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class NeurWINSettings:
    """Found on Table 1 with 64 rows, by the error of the index after 50 to 400 updates.

    The paper's sharp = 5 blurs the index by chance (source 2, age 1: to a tenth of its value); its
    rate is 1e-3, which is slow with so many rows, and episodes of 300 epochs, or of 100, taught no
    more in an update than those of 50.
    """

    discount: float = 0.99
    epochs: int = 50  # of an episode; an update follows each
    episodes: int = 8  # rows that share start and charge, and are compared
    sharp: float = 15.0  # m: P(a = 1 | s) = 1/(1 + exp(−m (f(s) − λ)))
    oldest: int = 32  # episodes start from ages up to this one; those beyond count as it
    hidden: int = 32  # units of each of two layers
    rate: float = 1e-2


class Episodes(NamedTuple):
    """What an update learns from: H epochs of B rows of N arms."""

    state: FloatArray  # (H, B, N, D)
    active: FloatArray  # (H, B, N) 0 or 1
    reward: FloatArray  # (H, B, N) utility
    charge: FloatArray  # (B, N) λ, in units of the largest reward


class NeurWIN(Learner):
    """Learns the discounted index of each arm by REINFORCE, with a network of its own.

    It does not interact with the fleet: it needs a simulator in which each arm can start in any
    state and be activated at will, so the budget plays no part, and what is learnt holds for any.
    The rows of the environment are episodes side by side, in mini-batches of `episodes`. In each
    mini-batch and for each arm, λ = f(s̃) and the start are drawn apart; how much better than its
    fellows an episode did from epoch t on, Σ_{h≥t} γ^{h−t} (r_h − λCa_h), is what the action at t
    is praised for. The paper praises all actions of an episode for its return from the start on. An
    epoch of a row is one of every source.

    Raises:
        ValueError: rows that are no whole number of mini-batches.

    >>> from crawl_env import CrawlVectorEnv
    >>> env = CrawlVectorEnv(16, features=("age", "crawled", "harvest"), horizon=None)
    >>> agent = NeurWIN(env).learn(epochs=50)
    >>> agent.score(agent.arms.state()).shape
    (16, 4)
    """

    name = "neurwin"
    finds_index = True
    Settings = NeurWINSettings
    settings: NeurWINSettings

    def prepare(self) -> None:
        rows, n, d = self.arms.shape
        settings = self.settings
        if rows % settings.episodes:
            raise ValueError(
                f"{rows} rows are no whole number of mini-batches of {settings.episodes} episodes; "
                f"make the vector environment with a multiple of {settings.episodes} rows"
            )
        self.epochs_at_once = settings.epochs  # type: ignore[misc]
        if isinstance(self.arms, CrawlArms):
            task = self.arms.env.task
            self._simulator: Simulator = CrawlSimulator(task, rows, settings.oldest)
        else:
            self._simulator = cast(Simulator, self.arms)
        network = Stack(n, (d, settings.hidden, settings.hidden, 1), self.rng)
        self._index = Trained(network, settings.rate, self.device)
        self._unit = Unit(n)

    def improve(self) -> dict[str, float]:
        episodes = self.play()
        self._unit.see(episodes.reward, episodes.active)
        self._index.descend(-self.praise(episodes))
        return {"share of epochs active": float(episodes.active.mean())}

    def score(self, state: FloatArray) -> FloatArray:
        return self._of(state) * self._unit.size / self.arms.cost

    def play(self) -> Episodes:
        """Return episodes of all rows under the present network."""
        settings, simulator = self.settings, self._simulator
        rows, n, _ = simulator.shape
        batches = rows // settings.episodes
        charge = self._of(simulator.draw(batches, self.rng)).repeat(settings.episodes, axis=0)
        state = simulator.draw(batches, self.rng).repeat(settings.episodes, axis=0)
        simulator.start(state, self.rng)
        states, actives, rewards = [], [], []
        for _ in range(settings.epochs):
            likely = 1 / (1 + np.exp(settings.sharp * (charge - self._of(state))))
            active = self.rng.random((rows, n)) < likely
            step = simulator.step(active, self.rng)
            states.append(state)
            actives.append(active)
            rewards.append(step.reward)
            state = step.state
        return Episodes(
            np.stack(states), np.stack(actives).astype(np.float64), np.stack(rewards), charge
        )

    def praise(self, episodes: Episodes) -> torch.Tensor:
        """Return Σ over arms of mean ln P(a | s) × advantage, whose gradient is the policy's."""
        states = episodes.state.reshape(-1, *episodes.state.shape[2:])
        inputs = squeezed(self._by_arm(states), self.settings.oldest)
        over = self._index.network(inputs)[..., 0] - self._by_arm(
            np.broadcast_to(episodes.charge, episodes.reward.shape).reshape(len(states), -1)
        )
        sign = 2 * self._by_arm(episodes.active.reshape(len(states), -1)) - 1
        likelihood = torch.nn.functional.logsigmoid(self.settings.sharp * sign * over)
        advantage = self._by_arm(self.advantage(episodes).reshape(len(states), -1))
        return (likelihood * advantage).mean(-1).sum()

    def advantage(self, episodes: Episodes) -> FloatArray:
        """Return by how much each epoch's return exceeds the mini-batch's mean, (H, B, N)."""
        net = episodes.reward / self._unit.size - episodes.charge * episodes.active
        coming = np.zeros_like(net)
        coming[-1] = net[-1]
        for t in range(len(net) - 2, -1, -1):
            coming[t] = net[t] + self.settings.discount * coming[t + 1]
        epochs, _, n = net.shape
        batches = coming.reshape(epochs, -1, self.settings.episodes, n)
        return np.asarray((batches - batches.mean(axis=2, keepdims=True)).reshape(net.shape))

    def memory(self) -> dict[str, Any]:
        return {"index": self._index.memory(), "largest": self._unit.largest}

    def remember(self, memory: dict[str, Any]) -> None:
        self._index.remember(memory["index"])
        self._unit.largest = np.array(memory["largest"])

    def _of(self, state: FloatArray) -> FloatArray:
        return indices(self._index.network, state, self.settings.oldest, self.device)

    def _by_arm(self, array: NDArray[Any]) -> torch.Tensor:
        """Return rows (K, N, …) as a network takes them, (N, K, …)."""
        return tensor(array.swapaxes(0, 1), self.device)
