"""Learning the Lagrangian index on three time scales.

G. Chen, S. C. Liew, D. Gündüz: GINO-Q: learning an asymptotically optimal index policy for restless
multi-armed bandits, arXiv 2408.09882; K. E. Avrachenkov, V. S. Borkar, P. Shah: Lagrangian index
policy for restless bandits with average reward, arXiv 2412.12641. One charge for all sources is
learnt, at which the budget is just spent, and the index of a state is what activating it is then
worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learning.tabular.base import IntArray, Tabular, TabularSettings
from crawl_env.numerics import FloatArray


@dataclass(frozen=True)
class LagrangeQSettings(TabularSettings):
    """Found on Table 1, recovering bandits and random fleets, with 8 rows.

    Steps of Q that fall later take longer to average the rewards of sparse sources; with visits = 5
    they fall too soon for Table 1 (M = 3: .95).
    """

    states: int = 32
    visits: int = 20
    settle: int = 50
    fast: float = 0.9  # step of the activity
    medium: float = 0.5  # step of Q
    slow: float = 0.5  # step of λ, in units of what a crawl has brought per cost so far, on average


class LagrangeQ(Tabular):
    """Learns W(s) = [Q(s, 1; λ*) − Q(s, 0; λ*)]/C; where nothing is indexable it is right, too.

    Q(s, a) moves by a_n [r − a C λ + max_b Q(s′, b) − mean(Q) − Q(s, a)]. The activity, the cost
    per epoch of doing in every state what is best at λ, is mean(F), with F learnt in the same way
    from the same transitions: F(s, a) moves by [a C + F(s′, π(s′)) − mean(F) − F(s, a)], π(s) the
    best action. λ rises where Σ mean(F) exceeds the budget and falls where it does not, within the
    largest reward seen per cost. What was never tried counts in no maximum and no mean, which is an
    addition to the papers. The memory of a source is 4·states numbers.

    In learning exactly M sources are crawled, which is not what π says: hence F, which learns the
    activity of π from what others did.
    """

    name = "lagrange-q"
    Settings = LagrangeQSettings
    settings: LagrangeQSettings
    keeps = ("q", "activity", "charge", "largest", "paid")

    def begin(self) -> None:
        shape = len(self.sources), self.settings.states, 2
        self.q, self.activity = np.zeros(shape), np.zeros(shape)
        self.charge = np.zeros(1)
        self.largest = np.zeros(len(self.sources))  # reward seen
        self.paid = np.zeros(2)  # rewards so far, in absolute value, and what they cost

    @property
    def index(self) -> FloatArray:
        return (self.q[..., 1] - self.q[..., 0]) / self.arms.cost[:, None]

    def transition(
        self, state: IntArray, action: IntArray, reward: FloatArray, after: IntArray
    ) -> None:
        i, settings, cost = self.sources, self.settings, self.arms.cost
        spent = action * cost
        best = np.where(self.tried(after), self.q[i, after], -np.inf).argmax(axis=-1)
        for table, gain, first in (
            (self.q, reward - spent * self.charge, settings.medium),
            (self.activity, spent, settings.fast),
        ):
            target = gain + table[i, after, best] - self.level(table)
            step = self.step_size(first, state, action)
            self.add(table, state, action, step * (target - table[i, state, action]))
        # Within what it can be: while it is not yet known it may be anything.
        activity = self.level(self.activity).clip(0, cost)
        excess = float(activity.sum() / cost.sum()) - self.arms.share
        self.largest = np.maximum(self.largest, np.abs(reward).max(axis=0))
        limit = float((self.largest / cost).max())
        self.paid += np.abs(reward).sum(), spent.sum()
        unit = float(self.paid[0] / self.paid[1]) if self.paid[1] > 0 else 0.0
        change = self.slow_step_size(settings.slow) * unit * excess
        self.charge = np.clip(self.charge + change, -limit, limit)
