"""Independent Q-learning for every source.

A. Biswas, G. Aggarwal, P. Varakantham, M. Tambe: Learn to intervene: an adaptive learning policy
for restless bandits in application to preventive healthcare, IJCAI 2021, where it is called WIQL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import Tabular, TabularSettings, same_names
from crawl_env.numerics import FloatArray, IntArray


@dataclass(frozen=True)
class WIQLSettings(TabularSettings):
    """Step sizes and ε are those of the other tabular learners, not the authors'."""

    learning_rate: float = 0.5  # first step size of Q
    gamma: float = 0.95  # discount factor per step

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma >= 1:
            raise ValueError(f"gamma is {self.gamma}; it must be below 1")


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
