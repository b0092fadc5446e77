"""The index of one observed source under random arrivals, by value iteration on a grid."""

from __future__ import annotations

import numpy as np

from crawl_env import Sources
from crawl_env.arrivals import Cells, Poisson
from crawl_env.numerics import FloatArray

_GRID, _QUANTILES, _DRAWS = 300, 300, 300_000


def index_of_arm(x: FloatArray, source: Sources) -> FloatArray:
    """Return the charge at which waiting and crawling are equally good in each state x, (X,).

    V(x) + β = max(Cλ + E V(αx + U), x + E V(U)), exponential ξ. U is replaced by its quantiles,
    V by its values on a grid, linear in between. Only for demonstration: it takes seconds.
    """
    arm = _Arm(source)
    low, high = np.zeros_like(x), np.full_like(x, 1.5 * arm.top)
    charges = np.linspace(0, arm.top, 60)
    waiting_wins = np.array([arm.waiting_minus_crawling(c, x) > 0 for c in charges])  # (60, X)
    for j in range(len(x)):
        first = int(waiting_wins[:, j].argmax()) if waiting_wins[:, j].any() else len(charges) - 1
        low[j], high[j] = charges[max(first - 1, 0)], charges[first]
    for _ in range(8):
        middle = 0.5 * (low + high)
        wins = np.array(
            [arm.waiting_minus_crawling(c, x[j : j + 1])[0] > 0 for j, c in enumerate(middle)]
        )
        high, low = np.where(wins, middle, high), np.where(wins, low, middle)
    return 0.5 * (low + high) / source.cost[0]


class _Arm:
    def __init__(self, source: Sources) -> None:
        ceiling = source.ceiling[0]
        cell = Cells(
            np.full(_DRAWS, source.arrival_rate[0] * source.period),
            np.full(_DRAWS, source.mean_utility[0]),
            np.full(_DRAWS, source.decay_per_epoch[0]),
        )
        drawn, _ = Poisson().content(cell, np.ones(_DRAWS), False, np.random.default_rng(0))
        spread = np.sort(drawn).reshape(_QUANTILES, -1).mean(axis=1)
        self._new = spread * source.inflow[0] / spread.mean()
        self.top = float(2.5 * ceiling + self._new[-1])
        self._x = np.linspace(0.0, self.top, _GRID)
        after = source.retention[0] * self._x[:, None] + self._new
        self._after = self._weights(np.minimum(after, self.top))
        self._fresh = self._weights(self._new[None])
        self._retention = float(source.retention[0])
        self._values: FloatArray = np.zeros(_GRID)

    def _weights(self, x: FloatArray) -> FloatArray:
        """Return the matrix that takes V on the grid to E V at the states of each row."""
        step = self._x[1]
        left = np.minimum((x / step).astype(int), _GRID - 2)
        share = x / step - left
        matrix = np.zeros((len(x), _GRID))
        rows = np.broadcast_to(np.arange(len(x))[:, None], x.shape)
        np.add.at(matrix, (rows, left), (1 - share) / x.shape[1])
        np.add.at(matrix, (rows, left + 1), share / x.shape[1])
        return matrix

    def waiting_minus_crawling(self, charge: float, x: FloatArray) -> FloatArray:
        """Return by how much waiting is better than crawling in states x under the charge."""
        value = self._values
        for _ in range(2000):
            best = np.maximum(charge + self._after @ value, self._x + self._fresh @ value)
            best -= best[0]
            if np.abs(best - value).max() < 1e-5 * self.top:
                break
            value = 0.5 * (value + best)
        self._values = value
        after = self._weights(np.minimum(self._retention * x[:, None] + self._new, self.top))
        waiting: FloatArray = charge + after @ value - x - self._fresh @ value
        return waiting
