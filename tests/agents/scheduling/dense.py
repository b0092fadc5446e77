"""The same policies, slowly: the index of every source in every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import NEVER, Parameters, decay_of, parameters_of, scale_of
from agents.scheduling.scheduler import POLICIES
from agents.scheduling.signals import expected, index_with
from crawl_env.compiled import compiled
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation import selection
from crawl_env.simulation.selection import Hosts


@compiled
def indices(
    parameters: Parameters, age: NDArray[np.int64], utility: FloatArray, since: NDArray[np.int64]
) -> FloatArray:
    """The index of every source at its age, one after the other.

    utility: (N,) expected utility from signals `since` steps ago.
    """
    index = np.empty(len(age))
    for i in range(len(age)):
        scale, decay = scale_of(parameters, i), decay_of(parameters, i)
        extra = expected(utility[i], since[i] * decay)
        if parameters.cost.size:
            extra /= np.float64(parameters.cost[i])
        index[i] = index_with(parameters, i, scale, decay, float(age[i]), extra)
    return index


class DenseScheduler:
    """Computes all N indices in each step and selects as the environment does.

    Arguments:
        columns: the fleet.
        budget: M.
        policy: as for `FleetScheduler`.
        ages: (N,) steps; 10⁹ or more for never.
        per_host: crawls per step and host, if any.
        balance: whether the budget is a token bucket; then `multiplier` is the least index.
    """

    def __init__(
        self,
        columns: Any,
        budget: float,
        policy: str,
        ages: FloatArray,
        multiplier: float | None = None,
        per_host: int | None = None,
    ) -> None:
        n = len(columns)
        self.parameters: Parameters = parameters_of(columns, POLICIES[policy])
        self.budget, self.multiplier = budget, multiplier
        self.cost = np.ones(n)
        if self.parameters.cost.size:
            self.cost = self.parameters.cost.astype(np.float64)
        self.delay = np.ones(n)
        if self.parameters.delay.size:
            self.delay = self.parameters.delay.astype(np.float64)
        self.crawled_at = np.where(ages >= NEVER, -np.inf, -np.minimum(ages, NEVER))
        self.tried_at = self.crawled_at.copy()
        self.steps = 0
        self.utility, self.signalled_at = np.zeros(n), np.zeros(n, np.int64)
        self.balance = budget
        self.hosts = None
        host = getattr(columns, "host", getattr(columns, "host_of", None))
        if per_host is not None and host is not None:
            own = np.where(host < 0, np.arange(n) + n, host)
            self.hosts = Hosts(np.unique(own, return_inverse=True)[1], per_host)

    @property
    def index(self) -> FloatArray:
        """The index of every source, (N,)."""
        age = np.minimum(self.steps - self.crawled_at, NEVER).astype(np.int64)
        return indices(self.parameters, age, self.utility, self.steps - self.signalled_at)

    def signal(self, sources: IntArray, utility: FloatArray) -> None:
        """Add expected utility, (K,), to some sources."""
        for i, more in zip(sources, utility, strict=True):
            since, decay = self.steps - int(self.signalled_at[i]), decay_of(self.parameters, int(i))
            self.utility[i] = expected(float(self.utility[i]), since * decay) + more
            self.signalled_at[i] = self.steps

    def step(self, failed: FloatArray | None = None) -> IntArray:
        """Return the sources tried in this step; `failed` (N,) marks those that would fail."""
        allowed = None
        if (self.delay > 1).any():
            allowed = (self.steps - self.tried_at >= self.delay) | (self.delay == 1)
            allowed = allowed[None]
        index, balance = self.index[None], None
        if self.multiplier is not None:
            balance = np.array([self.balance])
            index = np.where(index >= self.multiplier, index, -1.0)
        whole = selection.whole_budget(self.cost, self.budget)
        at = self.crawled_at[None]
        picked = np.ravel(
            selection.select(index, at, self.cost, self.budget, whole, balance, allowed, self.hosts)
        )
        self.tried_at[picked] = self.steps
        crawls = picked if failed is None else picked[~failed[picked]]
        self.crawled_at[crawls] = self.steps
        self.utility[crawls] = 0.0
        self.balance += self.budget - float(self.cost[picked].sum())
        self.steps += 1
        return picked
