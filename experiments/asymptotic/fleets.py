"""The fleets that are copied, and one evaluation of copies as a job of work."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agents import relaxation
from agents.evaluation.rollout import evaluate
from crawl_env import Sources
from ephemeral_crawl.core.runner import Job, Result


@dataclass(frozen=True)
class Copied:
    """N sources and M budget units, to be copied k times."""

    sources: Callable[[], Sources]
    budget: float

    def copies(self, k: int) -> Sources:
        fleet = self.sources()
        return fleet.select(np.tile(np.arange(len(fleet)), k))

    @property
    def bound(self) -> float:
        """The relaxed bound of one copy: exactly 1/k of that of k copies."""
        return float(relaxation(self.sources(), self.budget).bound)


def mixed_costs() -> Sources:
    """Four sources with costs that leave two thirds of a budget of 3 unspent."""
    return Sources([10.0, 20, 5, 5], 1.0, [0.8, 0.4, 0.8, 0.4], [3.0, 1, 3, 3])


FLEETS = {
    "Table 1, M = 2": Copied(lambda: Sources.preset("table1"), 2),
    "Table 1, M = 1.5": Copied(lambda: Sources.preset("table1"), 1.5),
    "recovering-10, M = 3": Copied(lambda: Sources.preset("recovering-10"), 3),
    "random, N = 10, M = 2": Copied(lambda: Sources.random(10, seed=0), 2),
    "mixed costs, N = 4, M = 3": Copied(mixed_costs, 3),
}


def work(job: Job) -> Result:
    """Return the rewards per step and copy of one agent on k copies of a fleet."""
    copied = FLEETS[job["fleet"]]
    k = job["copies"]
    arguments = {"sources": copied.copies(k), "budget": k * copied.budget, **job["arguments"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a budget that no set of crawls uses up is of interest
        return {"reward": (evaluate(job["agent"], arguments, **job["runs"]).reward / k).tolist()}
