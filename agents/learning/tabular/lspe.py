"""Index learning by least-squares policy evaluation, LSPE(0).

V. S. Borkar, K. Chadha: A learning algorithm for the Whittle index policy for scheduling web
crawlers, Allerton 2018. Only the abstract was available: the scheme is based on LSPE(0) and uses
the known structure of the index policy. Everything else is a reconstruction: the known structure is
taken to be that the optimal policy of one source under a Lagrange multiplier crawls from some age
on, and the policy of every such threshold is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import Tabular, TabularSettings, same_names
from crawl_env.numerics import FloatArray, IntArray


@dataclass(frozen=True)
class LSPESettings(TabularSettings):
    """Chosen by hand on Table 1, recovering bandits and random fleets, with 8 environments."""

    knots: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 11, 16)  # ages between which values are linear
    learning_rate: float = 0.5  # step size of the weights towards their least-squares fit
    multiplier_learning_rate: float = 0.1  # step size of λ

    def __post_init__(self) -> None:
        super().__post_init__()
        knots = list(self.knots)
        if knots != sorted(set(knots)) or knots[0] != 1 or knots[-1] != self.max_age:
            raise ValueError(
                f"knots is {self.knots}; knots must increase from 1 to max_age = {self.max_age}"
            )


class LSPE(Tabular[LSPESettings]):
    """Learns the average-reward Whittle index of every source's ages, with linear values.

    V_k(s) ≈ φ(s)·w_k is the value of crawling from age k on, with the subsidy λ_k for waiting; φ
    are hat functions of the age. A step (s, a) belongs to every threshold that takes a in s, so all
    thresholds are learnt from one trajectory. Every `steps_per_update` steps

        w_k += learning_rate · argmin_v Σ [r + (1 − a) C λ_k − V_k(1) + V_k(s′) − V_k(s) − φ(s)·v]²
        λ_k += multiplier_learning_rate · [r̄(k, 1) + V̄_k(k, 1) − r̄(k, 0) − V̄_k(k, 0) − C λ_k]/C

    where the sum is over all steps of the threshold so far, V_k(1) replaces the average reward, and
    r̄(s, a), V̄_k(s, a) are the mean reward and mean V_k(s′) observed after (s, a). λ_k moves only
    once both actions have been taken in k. Since all steps are summed, no step size decays.
    """

    name = "lspe"
    estimates_index = True
    Settings = LSPESettings
    steps_per_update = 10
    learnt = same_names("visits", "rewards", "next_features", "weights", "multiplier")

    def create_arrays(self) -> None:
        n, s, d = len(self.sources), self.settings.max_age, len(self.settings.knots)
        ages = np.arange(1, s + 1)
        hats = [np.interp(ages, self.settings.knots, hat) for hat in np.eye(d)]
        self.features = np.stack(hats, axis=-1)  # φ, (state, feature)
        self.crawls = ages >= ages[:, None]  # (threshold, state)
        self.rewards = np.zeros((n, s, 2))  # sums
        self.next_features = np.zeros((n, s, 2, d))  # sums of φ(s′)
        self.weights = np.zeros((n, s, d))  # of each threshold
        self.multiplier = np.zeros((n, s))  # λ of each threshold

    @property
    def index(self) -> FloatArray:
        return self.multiplier

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, next_state: IntArray
    ) -> None:
        self.add(self.rewards, state, action, reward)
        self.add(self.next_features, state, action, self.features[next_state])

    def update(self) -> dict[str, float]:
        metrics = super().update()
        settings = self.settings
        self.weights += settings.learning_rate * self._residual_fit()
        n, c = np.maximum(self.visits, 1), self.arms.cost[:, None]
        value = self.rewards + np.einsum("nkad,nkd->nka", self.next_features, self.weights)
        advantage = (value[..., 1] / n[..., 1] - value[..., 0] / n[..., 0]) / c
        change = settings.multiplier_learning_rate * (advantage - self.multiplier)
        self.multiplier += np.where(self.both_visited, change, 0.0)
        return metrics

    def _residual_fit(self) -> FloatArray:
        """Return the least-squares fit of the Bellman residuals, (N, thresholds, features)."""
        n = self._of_thresholds(self.visits)
        subsidy = self.arms.cost[:, None] * self.multiplier
        income = np.where(self.crawls, 0.0, subsidy[..., None]) - self.weights[..., :1]
        value = self.weights @ self.features.T
        next_value = np.einsum(
            "nktd,nkd->nkt", self._of_thresholds(self.next_features), self.weights
        )
        residual = self._of_thresholds(self.rewards) + next_value + n * (income - value)
        squares = np.einsum("nkt,td,te->nkde", n, self.features, self.features, optimize=True)
        squares += 1e-6 * np.eye(self.features.shape[1])  # features without data do not move
        return np.linalg.solve(squares, (residual @ self.features)[..., None])[..., 0]

    def _of_thresholds(self, table: FloatArray) -> FloatArray:
        """Return the entries of a table (N, max_age, 2, …) of each threshold's actions:
        (N, thresholds, …)."""
        crawls = self.crawls.reshape(*self.crawls.shape, *[1] * (table.ndim - 3))
        return np.where(crawls, table[:, None, :, 1], table[:, None, :, 0])
