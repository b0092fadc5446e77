"""Tabular Whittle Q-learning on two time scales.

K. E. Avrachenkov, V. S. Borkar: Whittle index based Q-learning for restless bandits with average
reward, Automatica 139, 2022; arXiv 2004.14427. For every reference state k there is a Q-table of
its own under the charge λ_k; λ_k moves, more slowly, to where activating and waiting in k are
equally good: that is the index of k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.learning.learner import Learner, explored
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class WhittleQSettings:
    """Found by hand on the age chain of Table 1."""

    states: int = 16  # ages 1 … states; older ones count as the oldest
    fast: float = 0.5  # c₁: step of Q, c₁ / ⌈n(s, a)/visits⌉
    slow: float = 0.2  # c₂: step of λ, c₂ / (1 + ⌈t ln t/visits⌉)
    visits: int = 500
    explore: float = 0.3  # share of the epochs in which the choice is chance


class WhittleQ(Learner):
    """Learns the index of every source's ages; sources share nothing, rows do.

    Q_k(s, a) moves by a_n [r + (1 − a) C λ_k + max_b Q_k(s′, b) − mean(Q_k) − Q_k(s, a)], and λ_k
    by b_t [Q_k(k, 1) − Q_k(k, 0)]/C where both actions have been seen in k, and never beyond the
    largest reward seen per cost; without gate and limit the λ of ages that are hardly visited runs
    away.
    """

    name = "whittle-q"
    Settings = WhittleQSettings
    settings: WhittleQSettings

    def prepare(self) -> None:
        n, s = self.arms.shape[1], self.settings.states
        self._q = np.zeros((n, s, s, 2))  # source, reference state, state, action
        self._charge = np.zeros((n, s))  # λ of each reference state
        self._visits = np.zeros((n, s, 2))
        self._largest = np.zeros(n)  # reward seen

    def improve(self) -> dict[str, float]:
        before = self._states(self.arms.state())
        charge = self._charge[np.arange(before.shape[1]), before]
        step = self.arms.step(explored(charge, self.settings.explore, self.rng))
        after = self._states(step.state)
        for row in range(len(before)):
            self._learn(before[row], step.active[row].astype(int), step.reward[row], after[row])
        return {"index of the first age, mean": float(self._charge[:, 0].mean())}

    def score(self, state: FloatArray) -> FloatArray:
        found = self._states(state)
        return np.asarray(self._charge[np.arange(found.shape[-1]), found])

    def memory(self) -> dict[str, Any]:
        return {
            "q": self._q,
            "charge": self._charge,
            "visits": self._visits,
            "largest": self._largest,
        }

    def remember(self, memory: dict[str, Any]) -> None:
        self._q, self._charge = memory["q"].copy(), memory["charge"].copy()
        self._visits, self._largest = memory["visits"].copy(), memory["largest"].copy()

    def _states(self, state: FloatArray) -> Any:
        """Return the number of each state, from 0."""
        return np.clip(state[..., 0], 1, self.settings.states).astype(int) - 1

    def _learn(self, state: Any, action: Any, reward: FloatArray, after: Any) -> None:
        """Learn from one transition of every source, (N,) each."""
        settings, cost = self.settings, self.arms.cost[:, None]
        i = np.arange(len(state))
        self._visits[i, state, action] += 1
        step = settings.fast / np.ceil(self._visits[i, state, action] / settings.visits)
        subsidy = (1 - action[:, None]) * cost * self._charge
        best = self._q[i, :, after].max(axis=-1)
        level = self._q.mean(axis=(2, 3))
        now = self._q[i, :, state, action]
        target = reward[:, None] + subsidy + best - level
        self._q[i, :, state, action] = now + step[:, None] * (target - now)
        own = np.einsum("nkka->nka", self._q)
        t = self._visits.sum(axis=(1, 2))[:, None]
        slow = settings.slow / (1 + np.ceil(t * np.log(t) / settings.visits))
        known = self._visits.min(axis=-1) > 0
        self._charge += np.where(known, slow * (own[..., 1] - own[..., 0]) / cost, 0.0)
        self._largest = np.maximum(self._largest, np.abs(reward))
        limit = self._largest[:, None] / cost
        np.clip(self._charge, -limit, limit, out=self._charge)
