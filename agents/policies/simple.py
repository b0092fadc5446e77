"""Simple policies: myopic, fixed, oldest first, random."""

from __future__ import annotations

import numpy as np

from agents.policies.base import Agent, IndexAgent
from agents.policies.view import Seen, needs_parameters
from agents.theory.closed_form import myopic_index
from crawl_env import Sources, Task
from crawl_env.numerics import FloatArray


class Myopic(IndexAgent):
    """Crawls what brings most at once for each unit of cost."""

    name = "myopic"

    def worth(self, value: FloatArray, sources: Sources) -> FloatArray:
        return myopic_index(value, sources)


class Fixed(Agent):
    """Crawls always the same sources: those that bring most in one epoch for each unit of cost."""

    name = "fixed"

    def __init__(self, task: Task, seed: int | None = None) -> None:
        super().__init__(task, seed)
        needs_parameters(task, self.name)

    def priority(self, seen: Seen) -> FloatArray:
        worth = myopic_index(seen.sources.content_at(1), seen.sources)
        order = np.argsort(np.argsort(-worth, axis=-1, kind="stable"), axis=-1)
        ranked = 1.0 - order / worth.shape[-1]  # never negative: it does not wait
        return np.broadcast_to(ranked, (seen.batch, self.task.n))


class OldestFirst(Agent):
    """Crawls the sources in turn, whatever they are."""

    name = "oldest-first"

    def priority(self, seen: Seen) -> FloatArray:
        # All alike: the environment gives ties to the older source, then to the lower number.
        return np.zeros((seen.batch, self.task.n))


class Random(Agent):
    """Crawls sources drawn uniformly, from a generator of its own (`seed`)."""

    name = "random"

    def priority(self, seen: Seen) -> FloatArray:
        return self.rng.random((seen.batch, self.task.n))
