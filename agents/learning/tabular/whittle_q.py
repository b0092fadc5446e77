"""Tabular Whittle Q-learning on two time scales.

K. E. Avrachenkov, V. S. Borkar: Whittle index based Q-learning for restless bandits with average
reward, Automatica 139, 2022; arXiv 2004.14427. Every reference state k has a Q-table of its own
under a Lagrange multiplier λ_k, which moves, more slowly, to the value at which activating and
waiting in k are equally good: the Whittle index of k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import Tabular, TabularSettings, same_names
from crawl_env.numerics import FloatArray, IntArray


@dataclass(frozen=True)
class WhittleQSettings(TabularSettings):
    """Chosen by hand on Table 1, recovering bandits and random fleets, with 8 environments."""

    learning_rate_decay_visits: int = 50
    learning_rate: float = 0.5  # c₁: first step size of Q
    multiplier_learning_rate: float = 0.2  # c₂: first step size of λ


class WhittleQ(Tabular[WhittleQSettings]):
    """Learns the average-reward Whittle index of every source's ages.

    Q_k(s, a) moves by a_n [r + (1 − a) C λ_k + max_b Q_k(s′, b) − mean(Q_k) − Q_k(s, a)], and λ_k
    by b_t [Q_k(k, 1) − Q_k(k, 0)]/C once both actions have been taken in k, within the range that
    the observed rewards allow. Without this gate and these limits, the λ of rarely visited ages
    diverge. Actions that have never been taken are left out of every maximum and mean. Gate, limits
    and this rule are additions to the paper.
    """

    name = "whittle-q"
    estimates_index = True
    Settings = WhittleQSettings
    learnt = same_names("visits", "q", "multiplier", "lowest", "highest")

    def create_arrays(self) -> None:
        n, s = len(self.sources), self.settings.max_age
        self.q = np.zeros((n, s, 2, s))  # source, state, action, reference state
        self.multiplier = np.zeros((n, s))  # λ of each reference state
        self.lowest, self.highest = np.zeros((n, 1)), np.zeros((n, 1))  # range of λ × cost

    @property
    def index(self) -> FloatArray:
        return self.multiplier

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, next_state: IntArray
    ) -> None:
        i, cost = self.sources, self.arms.cost[:, None]
        subsidy = (1 - action[..., None]) * cost * self.multiplier
        visited = self.visited(next_state)[..., None]
        best = self.q[i, next_state].max(axis=-2, where=visited, initial=-np.inf)
        target = reward[..., None] + subsidy + best - self.reference(self.q)
        step = self.step_size(self.settings.learning_rate, state, action)[..., None]
        self.add(self.q, state, action, step * (target - self.q[i, state, action]))
        own = np.einsum("nkak->nka", self.q)
        slow = self.multiplier_step_size(self.settings.multiplier_learning_rate)
        change = slow * (own[..., 1] - own[..., 0]) / cost
        self.multiplier += np.where(self.both_visited, change, 0.0)
        self._widen_range(action, reward)
        np.clip(self.multiplier, self.lowest / cost, self.highest / cost, out=self.multiplier)

    def _widen_range(self, action: IntArray, reward: FloatArray) -> None:
        """Widen the range of λ × cost: activating costs at most the largest reward of waiting, and
        gains at most the largest reward."""
        largest = np.abs(reward)
        least = np.where(action == 1, reward, -largest)
        self.lowest = np.minimum(self.lowest, least.min(axis=0)[:, None])
        self.highest = np.maximum(self.highest, largest.max(axis=0)[:, None])
