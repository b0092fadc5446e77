"""Learning the Lagrangian index on three time scales.

G. Chen, S. C. Liew, D. Gündüz: GINO-Q: learning an asymptotically optimal index policy for restless
multi-armed bandits, arXiv 2408.09882; K. E. Avrachenkov, V. S. Borkar, P. Shah: Lagrangian index
policy for restless bandits with average reward, arXiv 2412.12641. One Lagrange multiplier for all
sources is learnt, at which the budget is just spent; the index of a state is the advantage of
activating it at that multiplier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import Tabular, TabularSettings, same_names
from crawl_env.numerics import FloatArray, IntArray


@dataclass(frozen=True)
class LagrangeQSettings(TabularSettings):
    """Chosen by hand on Table 1, recovering bandits and random fleets, with 8 environments.

    Step sizes of Q that decay later average the rewards of sparse sources over longer times; with
    learning_rate_decay_visits = 5 they decay too early for Table 1 (M = 3: score .95).
    """

    max_age: int = 32
    learning_rate_decay_visits: int = 20
    multiplier_decay_steps: int = 50
    activity_learning_rate: float = 0.9  # first step size of the activity F
    learning_rate: float = 0.5  # first step size of Q
    multiplier_learning_rate: float = 0.5  # of λ, in units of the mean reward per cost so far


class LagrangeQ(Tabular[LagrangeQSettings]):
    """Learns W(s) = [Q(s, 1; λ*) − Q(s, 0; λ*)]/C; sources need not be indexable.

    Q(s, a) moves by a_n [r − a C λ + max_b Q(s′, b) − mean(Q) − Q(s, a)]. The activity, the cost
    per step of taking the best action at λ in every state, is mean(F), where F is learnt from the
    same transitions: F(s, a) moves by [a C + F(s′, π(s′)) − mean(F) − F(s, a)], π(s) being the best
    action. λ rises while Σ mean(F) exceeds the budget and falls otherwise, within the largest
    reward per cost observed. Actions that have never been taken are left out of every maximum and
    mean, which is an addition to the papers. A source needs 4·max_age numbers.

    During learning exactly M sources are crawled, which differs from π; F learns the activity of π
    off-policy.
    """

    name = "lagrange-q"
    Settings = LagrangeQSettings
    learnt = same_names("visits", "q", "activity", "multiplier", "largest", "paid")

    def create_arrays(self) -> None:
        shape = len(self.sources), self.settings.max_age, 2
        self.q, self.activity = np.zeros(shape), np.zeros(shape)
        self.multiplier = np.zeros(1)
        self.largest = np.zeros(len(self.sources))  # reward observed, in absolute value
        self.paid = np.zeros(2)  # sum of rewards in absolute value, and sum of costs

    @property
    def index(self) -> FloatArray:
        return (self.q[..., 1] - self.q[..., 0]) / self.arms.cost[:, None]

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, next_state: IntArray
    ) -> None:
        i, settings, cost = self.sources, self.settings, self.arms.cost
        charge = action * cost
        best = np.where(self.visited(next_state), self.q[i, next_state], -np.inf).argmax(axis=-1)
        for table, payoff, first in (
            (self.q, reward - charge * self.multiplier, settings.learning_rate),
            (self.activity, charge, settings.activity_learning_rate),
        ):
            target = payoff + table[i, next_state, best] - self.reference(table)
            step = self.step_size(first, state, action)
            self.add(table, state, action, step * (target - table[i, state, action]))
        # Clipped to the possible range: early estimates can be far outside.
        activity = self.reference(self.activity).clip(0, cost)
        excess = float(activity.sum() / cost.sum()) - self.arms.activation_fraction
        self.largest = np.maximum(self.largest, np.abs(reward).max(axis=0))
        limit = float((self.largest / cost).max())
        self.paid += np.abs(reward).sum(), charge.sum()
        unit = float(self.paid[0] / self.paid[1]) if self.paid[1] > 0 else 0.0
        change = self.multiplier_step_size(settings.multiplier_learning_rate) * unit * excess
        self.multiplier = np.clip(self.multiplier + change, -limit, limit)
