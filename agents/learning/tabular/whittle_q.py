"""Tabular Whittle Q-learning on two time scales.

K. E. Avrachenkov, V. S. Borkar: Whittle index based Q-learning for restless bandits with average
reward, Automatica 139, 2022; arXiv 2004.14427. For every reference state k there is a Q-table of
its own under the charge λ_k; λ_k moves, more slowly, to where activating and waiting in k are
equally good: that is the index of k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import IntArray, Tabular, TabularSettings
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class WhittleQSettings(TabularSettings):
    """Found on Table 1, recovering bandits and random fleets, with 8 rows."""

    visits: int = 50
    fast: float = 0.5  # c₁: step of Q, c₁ / ⌈n(s, a)/visits⌉
    slow: float = 0.2  # c₂: step of λ, c₂ / (1 + ⌈t ln t/settle⌉)


class WhittleQ(Tabular):
    """Learns the average-reward index of every source's ages.

    Q_k(s, a) moves by a_n [r + (1 − a) C λ_k + max_b Q_k(s′, b) − mean(Q_k) − Q_k(s, a)], and λ_k
    by b_t [Q_k(k, 1) − Q_k(k, 0)]/C where both actions have been seen in k, and never beyond
    what the rewards seen allow; without gate and limits the λ of ages that are hardly visited runs
    away. What was never tried counts in no maximum and no mean, which, like gate and limits, is an
    addition to the paper.
    """

    name = "whittle-q"
    finds_index = True
    Settings = WhittleQSettings
    settings: WhittleQSettings
    keeps = ("q", "charge", "lowest", "highest")

    def begin(self) -> None:
        n, s = len(self.sources), self.settings.states
        self.q = np.zeros((n, s, 2, s))  # source, state, action, reference state
        self.charge = np.zeros((n, s))  # λ of each reference state
        self.lowest, self.highest = np.zeros((n, 1)), np.zeros((n, 1))  # that λ may be, × cost

    @property
    def index(self) -> FloatArray:
        return self.charge

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, after: IntArray
    ) -> None:
        i, cost = self.sources, self.arms.cost[:, None]
        subsidy = (1 - action[..., None]) * cost * self.charge
        best = self.q[i, after].max(axis=-2, where=self.tried(after)[..., None], initial=-np.inf)
        target = reward[..., None] + subsidy + best - self.level(self.q)
        step = self.step_size(self.settings.fast, state, action)[..., None]
        self.add(self.q, state, action, step * (target - self.q[i, state, action]))
        own = np.einsum("nkak->nka", self.q)
        slow = self.slow_step_size(self.settings.slow)
        self.charge += np.where(self.known, slow * (own[..., 1] - own[..., 0]) / cost, 0.0)
        self._limit(action, reward)
        np.clip(self.charge, self.lowest / cost, self.highest / cost, out=self.charge)

    def _limit(self, action: IntArray, reward: FloatArray) -> None:
        """Activating may lose what waiting was seen to pay, and gain what anything did."""
        most = np.abs(reward)
        least = np.where(action == 1, reward, -most)
        self.lowest = np.minimum(self.lowest, least.min(axis=0)[:, None])
        self.highest = np.maximum(self.highest, most.max(axis=0)[:, None])
