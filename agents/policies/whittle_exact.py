"""The Whittle index policy with the arm's true index where random content is seen."""

from __future__ import annotations

import numpy as np

from agents.policies.base import IndexAgent
from agents.theory.closed_form import whittle_index
from agents.theory.observed import Arms
from agents.theory.price import Price, alike
from agents.theory.task_bound import information, law_of, task_bound
from crawl_env import Arrivals, Sources, Task
from crawl_env.fleet.hosts import Hosts
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray


class WhittleExact(IndexAgent):
    """As `whittle`, with the exact index of sources that are seen under Poisson arrivals.

    Theorem 1 is exact on the belief and for deterministic arrivals, and is used there, as it is
    for arrivals of other kinds, for which no exact index is known. Each different source seen takes
    some milliseconds to solve when the agent first meets it. Failures count as higher costs, and
    capacities as in `agents.theory.price.alike`.

    Raises:
        ValueError: as for other index agents, or there are too many different sources to solve.
    """

    name = "whittle-exact"

    def __init__(self, task: Task, seed: int | None = None) -> None:
        super().__init__(task, seed)
        poisson = isinstance(task.arrivals, Arrivals)
        self._solves = poisson and information(task) in ("seen", "mixed")
        self._arms: Arms | None = None
        self._sources: Sources | None = None
        if self._solves:
            self._price = _ExactPrice(task, self.worth)

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        if not self._solves:
            return whittle_index(value, sources)
        if self._arms is None or not _alike(sources, self._sources):
            self._arms = Arms(alike(sources), self.task.observed, law_of(self.task))
        self._sources = sources
        index = self._arms.index(value)
        if sources.fails or sources.is_capped:  # which the closed form knows of
            return np.where(self.task.observed, index, whittle_index(value, sources))
        return index


class _ExactPrice(Price):
    """λ* of the exact relaxation, which knows no delays and hosts; with these, it is simulated."""

    def _find(self, sources: Sources) -> FloatArray:
        if sources.is_delayed or Hosts.of(sources, self._task.per_host) is not None:
            return super()._find(sources)
        return np.atleast_1d(task_bound(self._task, alike(sources)).price)


def _alike(sources: Sources, other: Sources | None) -> bool:
    return sources is other or (
        other is not None
        and all(np.array_equal(getattr(sources, p), getattr(other, p)) for p in PARAMETERS)
    )
