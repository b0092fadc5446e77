"""The Whittle index policy with the arm's true index where random content is observed."""

from __future__ import annotations

import numpy as np

from agents.policies.base import IndexAgent
from agents.theory.arm import PerFleet, arm_of, information
from agents.theory.index import whittle_index
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.renewal import simplified
from agents.theory.task_bound import task_bound
from crawl_env import Poisson, Sources, Task
from crawl_env.fleet.hosts import Hosts
from crawl_env.numerics import FloatArray


class WhittleExact(IndexAgent):
    """As `whittle`, with the exact index of sources that are observed under Poisson arrivals.

    Theorem 1 is exact on the posterior mean and for deterministic arrivals, and is used there, as
    it is for arrivals of other kinds, for which no exact index is known. Each different observed
    source takes some milliseconds to solve when the agent first meets it. At observed sources,
    failures and capacities count as in `agents.theory.renewal.simplified`.

    Raises:
        ValueError: as for other index agents, or there are too many different sources to solve.
    """

    name = "whittle-exact"

    def __init__(self, task: Task, seed: int | None = None) -> None:
        super().__init__(task, seed)
        self._solves = information(task).is_random and isinstance(task.arrivals, Poisson)
        self._arm = PerFleet(lambda sources: arm_of(task, sources))
        if self._solves:
            self._price = _ExactMultiplier(task, self.worth)

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        return self._arm(sources).index(value) if self._solves else whittle_index(value, sources)


class _ExactMultiplier(BudgetMultiplier):
    """λ* of the exact relaxation, which has no delays and hosts; with these, it is simulated."""

    def _find(self, sources: Sources) -> FloatArray:
        if sources.is_delayed or Hosts.of(sources, self._task.per_host) is not None:
            return super()._find(sources)
        return np.atleast_1d(task_bound(self._task, simplified(sources)).multiplier)
