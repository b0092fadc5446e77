"""Arms that are activated one by one, from any state: what episodic learners need."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from agents.learning.arms import BoolArray, Step
from crawl_env import Task
from crawl_env.numerics import FloatArray
from crawl_env.simulation.simulation import Crawl


class Simulator(Protocol):
    """B rows of N arms that know of no budget and of no other arm."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D): rows, arms, numbers in a state."""

    @property
    def cost(self) -> FloatArray:
        """(N,) of activating each arm."""

    def draw(self, rows: int, rng: np.random.Generator) -> FloatArray:
        """Return states drawn from all that matter, (rows, N, D)."""

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        """Put the arms into states (B, N, D)."""

    def step(self, active: BoolArray, rng: np.random.Generator) -> Step:
        """Activate these arms, (B, N), and let an epoch pass."""


class CrawlSimulator:
    """The sources of a task, each crawled or not as one likes; a state is an age.

    An account that is never empty lets every source of priority ≥ 0 be crawled, and none else.

    Arguments:
        task: whose sources and arrivals; of these only what crawls bring is seen.
        rows: B.
        oldest: ages are drawn from 1 … oldest, log-uniformly: where the index still changes.

    >>> simulator = CrawlSimulator(Task.of(), rows=1, oldest=32)
    >>> rng = np.random.default_rng(0)
    >>> simulator.start(np.array([[[1.0], [2.0], [3.0], [40.0]]]), rng)
    >>> step = simulator.step(np.array([[True, False, True, True]]), rng)
    >>> step.reward.round(1), step.state[..., 0]
    (array([[179.8,   0. ,  62.7,  95.2]]), array([[1., 3., 1., 1.]]))
    """

    def __init__(self, task: Task, rows: int, oldest: int) -> None:
        free = float(task.sources.cost.sum())
        features = ("age", "crawled", "harvest")
        self._crawl = Crawl(
            replace(task, budget=free, budget_rule="average", per_host=task.n, features=features),
            rows,
        )
        self._oldest = oldest

    @property
    def shape(self) -> tuple[int, int, int]:
        return *self._crawl.world.shape, 1

    @property
    def cost(self) -> FloatArray:
        return self._crawl.task.sources.cost

    def draw(self, rows: int, rng: np.random.Generator) -> FloatArray:
        exponent = rng.uniform(0, np.log(self._oldest + 1), (rows, *self.shape[1:]))
        return np.floor(np.exp(exponent))

    def start(self, state: FloatArray, rng: np.random.Generator) -> None:
        self._crawl.reset(rng, options={"age": state[..., 0]})

    def step(self, active: BoolArray, rng: np.random.Generator) -> Step:
        self._crawl.step(np.where(active, 1.0, -1.0), rng)
        seen = self._crawl.observe().astype(np.float64)
        return Step(seen[..., 1] > 0, seen[..., 2], seen[..., :1])
