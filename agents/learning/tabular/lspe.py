"""Index learning by least-squares policy evaluation, LSPE(0).

V. S. Borkar, K. Chadha: A learning algorithm for the Whittle index policy for scheduling web
crawlers, Allerton 2018. Only the abstract could be read: it says that the scheme is based on
LSPE(0) and leverages what is known of the structure of the index policy. All else here is a
reconstruction: the known structure is taken to be that the best policy of one source under a charge
crawls from some age on, and what is evaluated is the policy of every such threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import IntArray, Tabular, TabularSettings
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class LSPESettings(TabularSettings):
    """Found on Table 1, recovering bandits and random fleets, with 8 rows."""

    knots: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 11, 16)  # ages between which values are linear
    fast: float = 0.5  # step of the weights towards their least-squares fit
    slow: float = 0.1  # step of λ

    def __post_init__(self) -> None:
        super().__post_init__()
        knots = list(self.knots)
        if knots != sorted(set(knots)) or knots[0] != 1 or knots[-1] != self.states:
            raise ValueError(
                f"knots are {self.knots}; they must rise from 1 to the number of states, "
                f"{self.states}"
            )


class LSPE(Tabular):
    """Learns the average-reward index of every source's ages, with linear values.

    V_k(s) ≈ φ(s)·w_k is the value of crawling from age k on, with λ_k paid where it is not done;
    φ are hat functions of the age. An epoch in (s, a) is one of every threshold that does a in s,
    so all are learnt from one history. Every `epochs_at_once` epochs

        w_k += fast · argmin_v Σ [r + (1 − a) C λ_k − V_k(1) + V_k(s′) − V_k(s) − φ(s)·v]²
        λ_k += slow · [r̄(k, 1) + V̄_k(k, 1) − r̄(k, 0) − V̄_k(k, 0) − C λ_k]/C

    with the sum over all epochs of the threshold so far, V_k(1) in the place of the average reward,
    and r̄(s, a), V̄_k(s, a) the mean reward and mean V_k(s′) seen after (s, a). λ_k moves only where
    both actions have been seen in k. Sums need no falling steps.
    """

    name = "lspe"
    finds_index = True
    Settings = LSPESettings
    settings: LSPESettings
    epochs_at_once = 10
    keeps = ("rewards", "nexts", "weights", "charge")

    def begin(self) -> None:
        n, s, d = len(self.sources), self.settings.states, len(self.settings.knots)
        ages = np.arange(1, s + 1)
        hats = [np.interp(ages, self.settings.knots, hat) for hat in np.eye(d)]
        self.features = np.stack(hats, axis=-1)  # φ, (state, feature)
        self.crawls = ages >= ages[:, None]  # (threshold, state)
        self.rewards = np.zeros((n, s, 2))  # sums
        self.nexts = np.zeros((n, s, 2, d))  # sums of φ(s′)
        self.weights = np.zeros((n, s, d))  # of each threshold
        self.charge = np.zeros((n, s))  # λ of each threshold

    @property
    def index(self) -> FloatArray:
        return self.charge

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, after: IntArray
    ) -> None:
        self.add(self.rewards, state, action, reward)
        self.add(self.nexts, state, action, self.features[after])

    def improve(self) -> dict[str, float]:
        facts = super().improve()
        self.weights += self.settings.fast * self._misfit()
        seen, c = np.maximum(self.visits, 1), self.arms.cost[:, None]
        value = self.rewards + np.einsum("nkad,nkd->nka", self.nexts, self.weights)
        worth = (value[..., 1] / seen[..., 1] - value[..., 0] / seen[..., 0]) / c
        self.charge += np.where(self.known, self.settings.slow * (worth - self.charge), 0.0)
        return facts

    def _misfit(self) -> FloatArray:
        """Return the weights, (N, thresholds, features), that fit what the values leave open."""
        n = self._of_thresholds(self.visits)
        subsidy = self.arms.cost[:, None] * self.charge
        income = np.where(self.crawls, 0.0, subsidy[..., None]) - self.weights[..., :1]
        now = self.weights @ self.features.T
        after = np.einsum("nktd,nkd->nkt", self._of_thresholds(self.nexts), self.weights)
        left = self._of_thresholds(self.rewards) + after + n * (income - now)
        squares = np.einsum("nkt,td,te->nkde", n, self.features, self.features, optimize=True)
        # What no epoch tells of stays as it is.
        squares += 1e-6 * np.eye(self.features.shape[1])
        return np.linalg.solve(squares, (left @ self.features)[..., None])[..., 0]

    def _of_thresholds(self, table: FloatArray) -> FloatArray:
        """Return a table (N, states, 2, …) with what each threshold does: (N, thresholds, …)."""
        crawls = self.crawls.reshape(*self.crawls.shape, *[1] * (table.ndim - 3))
        return np.where(crawls, table[:, None, :, 1], table[:, None, :, 0])
