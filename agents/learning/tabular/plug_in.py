"""Learning the transitions and rewards of every source, and planning with the estimates.

BLINQ (arXiv 2511.20397) estimates the Markov chain of each arm and computes the Whittle indices of
the estimate. UCWhittle (K. Wang, L. Xu, A. Taneja, M. Tambe: Optimistic Whittle index policy:
online learning for restless bandits, AAAI 2023) explores by planning with the best chain that the
observations allow. Neither is told what a source is: that a crawl resets its age, or how content
decays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from agents.learning.tabular.base import T, Tabular, TabularSettings, same_names
from agents.theory.chain import chain_index
from crawl_env.numerics import FloatArray, IntArray


@dataclass(frozen=True)
class PlugInSettings(TabularSettings):
    """Hyper-parameters; none was tuned by hand."""

    gamma: float = 0.999  # discount factor of the index, close to that of the average reward
    prior_visits: float = 1.0  # weight of the source's other states in the estimate of one state


class _ChainPlanner(Tabular[T]):
    """Base class of learners that plan with estimates of every source's chain."""

    estimates_index = True
    steps_per_update = 10
    learnt: ClassVar = same_names("visits", "rewards", "following")
    not_negative = ("visits", "following")

    def create_arrays(self) -> None:
        n, s = len(self.sources), self.settings.max_age
        self.rewards = np.zeros((n, s, 2))  # sums
        self.following = np.zeros((n, s, 2, s))  # visits of each next state
        self._index: FloatArray | None = None  # of the present sums

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, next_state: IntArray
    ) -> None:
        self.add(self.rewards, state, action, reward)
        after = np.eye(self.settings.max_age)[next_state]
        self.add(self.following, state, action, after)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._index = None

    @property
    def index(self) -> FloatArray:
        if self._index is None:
            self._index = self._plan(0.0)
        return self._index

    def _plan(self, bonus: FloatArray | float) -> FloatArray:
        """Return the indices of the estimated chains, with a bonus on the rewards, (N, S, 2).

        Each pair of state and action counts `prior_visits` visits more, whose reward and next state
        are the mean of all that the source showed under this action.
        """
        settings = self.settings
        prior: float = settings.prior_visits  # type: ignore[attr-defined]
        gamma: float = settings.gamma  # type: ignore[attr-defined]
        all_visits = self.visits.sum(axis=1)[:, None]  # (N, 1, 2)
        usual = self.rewards.sum(axis=1)[:, None] / np.maximum(all_visits, 1.0)
        after = (self.following.sum(axis=1)[:, None] + 1e-9) / (
            all_visits[..., None] + 1e-9 * settings.max_age
        )
        weight = self.visits + prior
        reward = (self.rewards + prior * usual) / weight
        law = (self.following + prior * after) / weight[..., None]
        return chain_index(law, reward + bonus, self.arms.cost, gamma)


class PlugIn(_ChainPlanner[PlugInSettings]):
    """Crawls by the Whittle index of the chain that was estimated for each source, ε-greedily.

    The state is the age, as in the other tabular learners; that it grows by one and is reset by a
    crawl is learnt. The index is computed anew every `steps_per_update` steps
    (`agents.theory.chain`). A source needs 2·max_age·(max_age + 2) numbers.
    """

    name = "plug-in"
    Settings = PlugInSettings

    def update(self) -> dict[str, float]:
        metrics = super().update()
        self._index = None
        return metrics


@dataclass(frozen=True)
class UCWhittleSettings(PlugInSettings):
    """Hyper-parameters; none was tuned by hand."""

    epsilon: float = 0.0  # it explores by optimism
    confidence: float = 1.0  # of the bonus, in mean rewards of a crawl


class UCWhittle(_ChainPlanner[UCWhittleSettings]):
    """`PlugIn` that explores by optimism in the place of random steps.

    While it learns, the reward of every pair of state and action is raised by
    confidence · r̄ √(ln t/(n + 1)), where n is the number of visits of the pair, t that of the
    source, and r̄ the mean reward of all crawls. The original plans with the best transition
    probabilities in a confidence region and knows the rewards; here rewards are unknown, too, and
    one bonus stands for both, as in optimistic value iteration. The trained policy is that of the
    means, without a bonus.
    """

    name = "uc-whittle"
    Settings = UCWhittleSettings

    def update(self) -> dict[str, float]:
        crawls = max(1.0, float(self.visits[..., 1].sum()))
        mean = float(self.rewards[..., 1].sum()) / crawls
        steps = np.log(np.maximum(self.visits.sum(axis=(1, 2)), 1.0))[:, None, None]
        bonus = self.settings.confidence * mean * np.sqrt(steps / (self.visits + 1.0))
        self._index = self._plan(bonus)
        metrics = super().update()
        self._index = None
        return metrics
