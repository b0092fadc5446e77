"""Independent Q-learning for every source, ε-greedy or by upper confidence bounds.

A. Biswas, G. Aggarwal, P. Varakantham, M. Tambe: Learn to intervene: an adaptive learning policy
for restless bandits in application to preventive healthcare, IJCAI 2021, where it is called WIQL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.learning.base import epsilon_greedy
from agents.learning.tabular.base import Tabular, TabularSettings, same_names
from crawl_env.numerics import FloatArray, IntArray


@dataclass(frozen=True)
class WIQLSettings(TabularSettings):
    """Step sizes and ε are those of the other tabular learners, not the authors'."""

    learning_rate: float = 0.5  # first step size of Q
    gamma: float = 0.95  # discount factor per step


class WIQL(Tabular[WIQLSettings]):
    """Crawls by the discounted advantage at λ = 0, [Q(s, 1) − Q(s, 0)]/C. A baseline.

    Q(s, a) moves by a_n [r + γ max_b Q(s′, b) − Q(s, a)]. This is not a Whittle index: it is the
    gain of one crawl of a source that may be crawled without cost ever after, here (1 − γα) x_k,
    which ranks sources nearly as the myopic policy does.
    """

    name = "wiql"
    Settings = WIQLSettings
    learnt = same_names("visits", "q")

    def create_arrays(self) -> None:
        self.q = np.zeros((len(self.sources), self.settings.max_age, 2))

    @property
    def index(self) -> FloatArray:
        return (self.q[..., 1] - self.q[..., 0]) / self.arms.cost[:, None]

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, next_state: IntArray
    ) -> None:
        i, settings = self.sources, self.settings
        target = reward + settings.gamma * self.q[i, next_state].max(axis=-1)
        step = self.step_size(settings.learning_rate, state, action)
        self.add(self.q, state, action, step * (target - self.q[i, state, action]))


@dataclass(frozen=True)
class WIQLUCBSettings(WIQLSettings):
    """Hyper-parameters; `confidence` was not tuned by hand."""

    epsilon: float = 0.0  # probability of random priorities in a step, besides the bounds
    confidence: float = 1.0  # of the bonus, in mean rewards of a crawl per (1 − gamma)


class WIQLUCB(WIQL):
    """`WIQL` that explores by upper confidence bounds (Auer et al. 2002), by default without random
    steps: while it learns, it crawls by index + confidence · r̄/(C (1 − γ)) √(ln t/n), where n is
    the number of crawls of the source at this age, t the number of its steps, and r̄ the mean reward
    of all crawls: the bonus has the scale of Q.

    The trained policy is that of `WIQL`. Bounds alone are deterministic, so that some actions are
    never tried at some ages; their values stay 0, far below those beside them, and the index of
    these ages is meaningless. `epsilon=0.3` mends that.
    """

    name = "wiql-ucb"
    Settings = WIQLUCBSettings
    learnt = same_names("visits", "q", "rewards")

    def create_arrays(self) -> None:
        super().create_arrays()
        self.rewards = np.zeros(1)  # sum

    def explored(self, state: IntArray, score: FloatArray) -> NDArray[np.float32]:
        crawls = self.visits[self.sources, state, 1]
        steps = np.log(np.maximum(self.visits.sum(axis=(1, 2)), 1.0))
        mean = self.rewards[0] / max(1.0, self.visits[..., 1].sum())
        confidence: float = self.settings.confidence  # type: ignore[attr-defined]
        scale = mean / self.arms.cost / (1 - self.settings.gamma)
        bonus = confidence * scale * np.sqrt(steps / np.maximum(crawls, 0.1))
        return epsilon_greedy(score + bonus, self.settings.epsilon, self.rng)

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, next_state: IntArray
    ) -> None:
        super().transition(state, action, reward, next_state)
        self.rewards += (reward * action).sum()
