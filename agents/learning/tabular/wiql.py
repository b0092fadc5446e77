"""Q-learning for every source by itself.

A. Biswas, G. Aggarwal, P. Varakantham, M. Tambe: Learn to intervene: an adaptive learning policy
for restless bandits in application to preventive healthcare, IJCAI 2021, where it is called WIQL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import IntArray, Tabular, TabularSettings
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class WIQLSettings(TabularSettings):
    """Step sizes and exploration are those of the other tabular learners, not the authors'."""

    fast: float = 0.5  # step of Q, as in whittle-q
    discount: float = 0.95  # γ

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount >= 1:
            raise ValueError(f"discount is {self.discount}; it must be below 1")


class WIQL(Tabular):
    """Crawls by the discounted advantage at no charge, [Q(s, 1) − Q(s, 0)]/C. A baseline.

    Q(s, a) moves by a_n [r + γ max_b Q(s′, b) − Q(s, a)]. Whatever its authors call it, this is no
    Whittle index: it is what one crawl brings to a source that may be crawled for nothing ever
    after. On a source of this model that is (1 − γα) x_k, whose order is nearly the myopic one.
    """

    name = "wiql"
    Settings = WIQLSettings
    settings: WIQLSettings
    keeps = ("q",)

    def begin(self) -> None:
        self.q = np.zeros((len(self.sources), self.settings.states, 2))

    @property
    def index(self) -> FloatArray:
        return (self.q[..., 1] - self.q[..., 0]) / self.arms.cost[:, None]

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, after: IntArray
    ) -> None:
        i, settings = self.sources, self.settings
        target = reward + settings.discount * self.q[i, after].max(axis=-1)
        step = self.step_size(settings.fast, state, action)
        self.add(self.q, state, action, step * (target - self.q[i, state, action]))
